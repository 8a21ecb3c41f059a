#!/usr/bin/env python3
"""Reads the vectors of link-v1 with nothing but docs/spec/link-v1.md in hand.

It shares no code with the Go codec: every frame is taken apart by the layouts
below and its fields are compared with what the vector says. Since every byte of a
frame is a field, a reserved zero or a checksum, equal fields mean equal bytes.

    python3 check.py [folder]
"""
import glob
import json
import os
import struct
import sys

CONTROL_MAX, TEXT_MAX, ITEMS_MAX = 1 << 20, 256, 4096


class Refused(Exception):
    def __init__(self, code, offset):
        super().__init__(f"{code} at {offset}")
        self.code, self.offset = code, offset


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        if len(self.data) - self.at < n:
            raise Refused("LENGTH", len(self.data))
        self.at += n
        return self.data[self.at - n:self.at]

    def u(self, n):
        return int.from_bytes(self.take(n), "little")

    def u64(self):
        return str(self.u(8))

    def i32s(self, n):
        return list(struct.unpack(f"<{n}i", self.take(4 * n)))

    def u32s(self, n):
        return list(struct.unpack(f"<{n}I", self.take(4 * n)))

    def hex(self, n):
        return self.take(n).hex()

    def most(self, width, limit):
        v = self.u(width)
        if v > limit:
            raise Refused("LENGTH", self.at - width)
        return v

    def upto(self, limit, low=0):
        v = self.u(1)
        if not low <= v <= limit:
            raise Refused("INVALID", self.at - 1)
        return v

    def zero(self, n):
        for i, v in enumerate(self.take(n)):
            if v:
                raise Refused("INVALID", self.at - n + i)

    def zero16(self):
        if self.u(2):
            raise Refused("INVALID", self.at - 2)

    def text(self, n):
        raw = self.take(n)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise Refused("INVALID", self.at - n) from None

    def list(self, n, width, read):
        if len(self.data) - self.at < n * width:
            raise Refused("LENGTH", len(self.data))
        return [read(self) for _ in range(n)]

    def end(self):
        if self.at != len(self.data):
            raise Refused("LENGTH", self.at)


def want(c):
    return {"ns": c.u(2), "flags": c.u(2), "off": c.u(4), "max": c.u(4), "slot": c.u(4), "gen": c.u(4), "key": c.hex(32)}


def status(c):
    v = c.u(2)
    return 100 if v == 108 else v


def have(c):
    return {"status": status(c), "tier": c.upto(2), "attest": c.upto(2), "len": c.u(4), "head": c.hex(32),
            "slot": c.u(4), "gen": c.u(4)}


def push_item(c):
    ns = c.u(2)
    c.zero(2)
    return {"ns": ns, "key": c.hex(32), "have": have(c)}


def place(c):
    return {"status": status(c), "tier": c.upto(2), "attest": c.upto(2), "slot": c.u(4), "gen": c.u(4), "seg": c.u(4),
            "len": c.u(4), "gen_off": c.u(4), "off": c.u64()}


def put_item(c):
    out = {"ns": c.u(2), "tier": c.upto(2)}
    c.zero(1)
    out.update(len=c.u(4), off=c.u64(), key=c.hex(32), req=c.u(4))
    return out


def seg(c):
    out = {"id": c.u(4), "kind": c.upto(3, 1)}
    if out["kind"] == 3 and out["id"]:
        raise Refused("INVALID", c.at - 5)
    c.zero(3)
    out["size"] = c.u64()
    return out


def flag(c):
    v = c.upto(1) == 1
    c.zero(3)
    return v


def hello(c):
    if c.data[:4] != b"MLNK":
        raise Refused("LINK_MAGIC", 0)
    c.take(4)
    out = {"min": c.u(2), "max": c.u(2), "agent": c.hex(16), "inc": c.u64(), "session": c.hex(16), "lane": c.upto(16)}
    c.zero(3)
    out["limits"] = {k: c.u(4) for k in ("reqs", "items", "frame", "bytes_in_flight", "linger_ms")}
    out["features"], out["nonce"] = c.u64(), c.hex(32)
    n = c.most(2, 16)
    c.zero(2)
    out["auth"] = [{"type": c.u(2), "value": c.hex(c.most(2, 1024))} for _ in range(n)]
    return out


def open_(c):
    return {"manifest": c.hex(c.most(4, 4096))}


def opened(c):
    ns, st = c.u(2), c.u(2)
    lens = [c.most(2, TEXT_MAX) for _ in range(3)]
    return {"ns": ns, "status": 106 if st == 108 else st, **{k: c.text(n) for k, n in zip(("field", "ours", "theirs"), lens)}}


def has(c):
    return {"deadline_ms": c.u(4), "items": c.list(c.most(4, ITEMS_MAX), 52, want)}


def pull(c):
    return {"deadline_ms": c.u(4), "lease_ms": c.u(4), "items": c.list(c.most(4, ITEMS_MAX), 52, want)}


def table(c):
    return {"lease": c.hex(16), "items": c.list(c.most(4, ITEMS_MAX), 48, have)}


def push(c):
    return {"deadline_ms": c.u(4), "items": c.list(c.most(4, ITEMS_MAX), 84, push_item)}


def standing(c):
    out = {"ns": c.u(2), "tier": c.upto(2)}
    c.zero(1)
    return {**out, "n": c.most(4, ITEMS_MAX), "len": c.u(4)}


def grant(c):
    return {"status": c.list(c.most(4, ITEMS_MAX), 2, status)}


def end(c):
    code, text_len, retry = status(c), c.most(2, TEXT_MAX), c.u(4)
    return {"code": code, "retry_ms": retry, "status": c.list(c.most(4, ITEMS_MAX), 2, status), "text": c.text(text_len)}


def renew(c):
    return {"lease": c.hex(16), "ms": c.u(4)}


def release(c):
    return {"leases": c.list(c.most(4, 4096), 16, lambda c: c.hex(16))}


def goaway(c):
    return {"ms": c.u(4), "code": status(c), "text": c.text(c.most(2, TEXT_MAX))}


def error(c):
    return {"offset": c.u64(), "code": status(c), "text": c.text(c.most(2, TEXT_MAX))}


def map_(c):
    return {"segs": c.list(c.most(4, 253), 16, seg)}


def acquire(c):
    return {"deadline_ms": c.u(4), "lease_ms": c.u(4), "hold": flag(c), "items": c.list(c.most(4, ITEMS_MAX), 52, want)}


def acquired(c):
    return {"lease": c.hex(16), "items": c.list(c.most(4, ITEMS_MAX), 32, place)}


def put(c):
    return {"deadline_ms": c.u(4), "items": c.list(c.most(4, ITEMS_MAX), 52, put_item)}


def begin(c):
    out = {"req": c.u(4), "slo_ms": c.u32s(3)}
    id_len, model_len = c.most(2, TEXT_MAX), c.most(2, TEXT_MAX)
    out["prompt"] = c.i32s(c.most(4, 260000))
    out.update(id=c.text(id_len), model=c.text(model_len))
    return out


def tokens(c):
    n, tok_n = c.most(4, 4096), c.most(4, 65536)
    out = {"req": c.u32s(n), "n": list(c.take(n))}
    if sum(out["n"]) != tok_n:
        raise Refused("INVALID", 4)
    return {**out, "tok": c.i32s(tok_n)}


def phase(c):
    out = {"req": c.u(4), "kind": c.u(1), "reason": c.u(1)}
    n = c.most(2, 256)
    return {**out, "used": c.u(4), "inject": c.i32s(n)}


def finish(c):
    out = {"req": c.u(4), "reason": c.upto(1)}
    c.zero(3)
    return out


def window(c):
    out = {"ns": c.u(2), "proto": c.u(1)}
    c.zero(1)
    return {**out, "ttl_ms": c.u(4), "len": c.u32s(c.most(4, 4096))}


def windowed(c):
    out = {"addr": c.u64(), "len": c.u64()}
    n = c.most(2, TEXT_MAX)
    c.zero(2)
    return {**out, "peer": c.text(n)}


def window_end(c):
    return {"addr": c.u64(), "commit": flag(c), "items": c.list(c.most(4, ITEMS_MAX), 52, put_item)}


def records(c, *lists):
    """Lists whose bytes are all looked for before the values of the first count."""
    if len(c.data) - c.at < sum(n * width for n, width, _ in lists):
        raise Refused("LENGTH", len(c.data))
    return [c.list(n, width, read) for n, width, read in lists]


def nonzero(v, at):
    if not int(v, 16):
        raise Refused("INVALID", at)
    return v


def holder(c):
    agent, inc = nonzero(c.hex(16), c.at - 16), c.u64()
    if inc == "0":
        raise Refused("INVALID", c.at - 8)
    return {"agent": agent, "inc": inc}


def load_item(c, holders):
    out = {"ns": c.u(2), "flags": c.u(2), "holder": c.u(2)}
    if out["holder"] > holders:
        raise Refused("INVALID", c.at - 2)
    c.zero16()
    return {**out, "slot": c.u(4), "gen": c.u(4), "key": c.hex(32)}


def load(c):
    out = {"deadline_ms": c.u(4), "lease_ms": c.u(4), "hold": c.upto(1) == 1}
    c.zero(1)
    h, n = c.most(2, 256), c.most(4, ITEMS_MAX)
    out["holders"], out["items"] = records(c, (h, 24, holder), (n, 48, lambda c: load_item(c, h)))
    return out


def loaded(c):
    out = {"lease": c.hex(16), "first": c.u(4)}
    n = c.most(4, ITEMS_MAX)
    if n == 0:
        raise Refused("INVALID", c.at - 4)
    return {**out, "items": c.list(n, 32, place)}


def store_item(c):
    out = {"ns": c.u(2), "tier": c.u(1)}
    if 2 < out["tier"] < 255:
        raise Refused("INVALID", c.at - 1)
    out.update(flags=c.upto(1), len=c.u(4), off=c.u64(), key=c.hex(32), req=c.u(4), pos=c.u(4), pin_ms=c.u(4))
    if out["pin_ms"] and not out["flags"]:
        raise Refused("INVALID", c.at - 4)
    return out


def reserve_item(c):
    out = store_item(c)
    if out["off"] != "0":
        raise Refused("INVALID", c.at - 52)
    return out


def put_at(c):
    return {"deadline_ms": c.u(4), "items": c.list(c.most(4, ITEMS_MAX), 60, store_item)}


def reserve(c):
    return {"deadline_ms": c.u(4), "ttl_ms": c.u(4), "items": c.list(c.most(4, ITEMS_MAX), 60, reserve_item)}


def reserved(c):
    return {"rsv": c.u64(), "status": c.list(c.most(4, ITEMS_MAX), 2, status)}


def fill(c):
    return {"rsv": c.u64(), "last": flag(c), "items": c.list(c.most(4, ITEMS_MAX), 16, lambda c: {"item": c.u(4), "len": c.u(4), "off": c.u64()})}


def phase_at(c):
    out = {"req": c.u(4), "kind": c.u(1), "reason": c.u(1)}
    n = c.most(2, 256)
    return {**out, "used": c.u(4), "pos": c.u(4), "inject": c.i32s(n)}


def resume(c):
    out = {"req": c.u(4), "slo_ms": c.u32s(3)}
    id_len, model_len = c.most(2, TEXT_MAX), c.most(2, TEXT_MAX)
    out["first"] = c.u(4)
    prompt = c.most(4, 260000)
    decoded = c.most(4, 260000 - prompt)
    return {**out, "prompt": c.i32s(prompt), "decoded": c.i32s(decoded), "id": c.text(id_len), "model": c.text(model_len)}


def handoff(c):
    return {"req": c.u(4), "keep_ms": c.u(4)}


def evicted_item(c):
    out = {"req": c.u(4), "ns": c.u(2)}
    c.zero16()
    return {**out, "key": c.hex(32)}


def evicted(c):
    return {"items": c.list(c.most(4, ITEMS_MAX), 40, evicted_item)}


def empty(c):
    return {}


# type: name, reader, least and most payload bytes without the trailer.
TYPES = {
    1: ("HELLO", hello, 116, 116 + 16 * 1028), 2: ("OPEN", open_, 4, 4 + 4096), 3: ("OPENED", opened, 10, 10 + 3 * 256),
    4: ("HAS", has, 8, 8 + 4096 * 52), 5: ("TABLE", table, 20, 20 + 4096 * 48), 6: ("PULL", pull, 12, 12 + 4096 * 52),
    7: ("PUSH", push, 8, 8 + 4096 * 84), 8: ("GRANT", grant, 4, 4 + 4096 * 2), 10: ("COMMIT", empty, 0, 0),
    11: ("END", end, 12, 12 + 4096 * 2 + 256), 12: ("RENEW", renew, 20, 20), 13: ("RELEASE", release, 4, 4 + 4096 * 16),
    14: ("STAT", has, 8, 8 + 4096 * 52), 15: ("PING", empty, 0, 0), 16: ("CANCEL", empty, 0, 0), 17: ("ABORT", empty, 0, 0),
    18: ("GOAWAY", goaway, 8, 8 + 256), 19: ("ERROR", error, 12, 12 + 256), 20: ("STANDING", standing, 12, 12), 21: ("DELIVER", push, 8, 8 + 4096 * 84),
    32: ("MAP", map_, 4, 4 + 253 * 16),
    33: ("ACQUIRE", acquire, 16, 16 + 4096 * 52), 34: ("ACQUIRED", acquired, 20, 20 + 4096 * 32), 35: ("PUT", put, 8, 8 + 4096 * 52),
    36: ("BEGIN", begin, 24, CONTROL_MAX - 4), 37: ("TOKENS", tokens, 8, 8 + 4096 * 5 + 65536 * 4), 38: ("PHASE", phase, 12, 12 + 256 * 4),
    39: ("FINISH", finish, 8, 8), 40: ("WINDOW", window, 12, 12 + 4096 * 4), 41: ("WINDOWEND", window_end, 16, 16 + 4096 * 52),
    42: ("WINDOWED", windowed, 20, 20 + 256),
    43: ("LOAD", load, 16, 16 + 256 * 24 + 4096 * 48), 44: ("LOADED", loaded, 56, 24 + 4096 * 32),
    45: ("RESERVE", reserve, 12, 12 + 4096 * 60), 46: ("RESERVED", reserved, 12, 12 + 4096 * 2), 47: ("FILL", fill, 16, 16 + 4096 * 16),
    48: ("PUTAT", put_at, 8, 8 + 4096 * 60), 49: ("PHASEAT", phase_at, 16, 16 + 256 * 4), 50: ("RESUME", resume, 32, 32 + 4 * 260000 + 2 * 256),
    51: ("HANDOFF", handoff, 8, 8), 52: ("EVICTED", evicted, 4, 4 + 4096 * 40), 53: ("PROCESS", empty, 0, 0),
}
DATA = 9


def read_frame(raw, plain):
    if len(raw) < 24:
        raise Refused("LENGTH", len(raw))
    length, kind, flags, cls, zero, req, arg, crc = struct.unpack("<IBBBBQII", raw[:24])
    if crc != (0 if plain else crc32c(raw[:20])):
        raise Refused("CRC", 20)
    for offset, bad in ((5, flags > 1), (6, cls > 3), (7, zero != 0)):
        if bad:
            raise Refused("INVALID", offset)
    if kind == DATA:
        low, high = 5, (256 << 10) + 4
    elif kind in TYPES:
        low, high = TYPES[kind][2] + 4, TYPES[kind][3] + 4
    else:
        low, high = 4, CONTROL_MAX
    if not low <= length <= high:
        raise Refused("LENGTH", 0)
    return {"len": length, "type": kind, "flags": flags, "class": cls, "req": str(req), "arg": arg}


def read_payload(raw, plain):
    if int.from_bytes(raw[-4:], "little") != (0 if plain else crc32c(raw[:-4])):
        raise Refused("CRC", len(raw) - 4)
    return raw[:-4]


def read(raw, plain=False):
    """The name, the frame header and the fields of a whole frame; the stage where it was refused is on the error.
    plain: the frame follows HELLOs with PLAIN."""
    stage = "frame"
    try:
        frame = read_frame(raw, plain)
        rest = raw[24:]
        assert len(rest) == frame["len"], "a vector is one whole frame"
        if frame["type"] == DATA:
            return "DATA", frame, {"offset": int.from_bytes(rest[:4], "little"), "body": rest[4:].hex()}
        stage = "payload"
        body = read_payload(rest, plain)
        stage = "message"
        name, parse, _, _ = TYPES[frame["type"]]
        cursor = Cursor(body)
        fields = parse(cursor)
        cursor.end()
        return name, frame, fields
    except Refused as refused:
        refused.stage = stage
        raise


def main(folder):
    bad = good = 0
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        with open(path, encoding="utf-8") as file:
            vectors = json.load(file)
        for v in vectors:
            raw = bytes.fromhex(v["hex"])
            try:
                name, frame, fields = read(raw, os.path.basename(path) == "plain.json")
                ok = "fields" in v and (name, frame, fields) == (v["type"], v["frame"], v["fields"])
                got = f"{name} {frame} {fields}"
            except Refused as refused:
                ok = (v.get("stage"), v.get("code"), v.get("offset")) == (refused.stage, refused.code, refused.offset)
                got = f"refused at {refused.stage}: {refused}"
            good += ok
            if not ok:
                bad += 1
                print(f"{os.path.basename(path)}: {v['name']}: {got}")
    print(f"{good} vectors agree, {bad} do not")
    return 1 if bad or not good else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))))
