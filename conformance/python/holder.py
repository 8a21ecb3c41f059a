#!/usr/bin/env python3
"""An agent that is dialled and serves blocks, made from docs/spec alone. Some of them it serves wrongly.

    holder.py --listen unix:///PATH --name NAME --psk-file key

It has a block for each case below, under the key BLAKE3-256(namespace, name of the case), whatever namespace is opened. For each PULL and
PUSH of one it prints the case and what became of the lane: the code of the ERROR that came, or OK when the next request comes.
"""
import argparse
import os
import socket
import struct
import threading

import mrdn
from link import CODE, STANDING, Agent, Closed, Refused, batch, control, data, named

BODY = bytes(range(100))
GOOD = mrdn.header(BODY)
SLOT = struct.pack("<II", 1, 2)


def have(status=0, header=GOOD, length=100, tier=0):
    return struct.pack("<HBBI", CODE.get(status, status), tier, 2, length) + header + SLOT


def table(q, *items):
    return control("TABLE", q, bytes(16) + batch(items or (have(),)))


def end(q, code="OK", *status):
    return control("END", q, struct.pack("<HHII", CODE[code], 0, 0, len(status)) + struct.pack(f"<{len(status)}H", *[CODE[s] for s in status]))


def body(q, start=0, stop=100, arg=0, offset=None, data_of=BODY):
    return data(q, arg, start if offset is None else offset, data_of[start:stop])


# name: what is sent for the PULL of one item, given its id; the code of the ERROR that is due, OK where none is.
CASES = {
    "whole": (lambda q: table(q) + body(q) + end(q, "OK", "OK"), "OK"),
    "in pieces": (lambda q: table(q) + body(q, 0, 1) + body(q, 1, 99) + body(q, 99) + end(q, "OK", "OK"), "OK"),
    "without statuses": (lambda q: table(q) + body(q) + end(q), "OK"),
    "an unknown frame between": (lambda q: table(q) + control(77, q + 1, b"news") + body(q) + end(q), "OK"),
    "END a second time": (lambda q: table(q) + body(q) + end(q) + end(q, "CANCELLED"), "OK"),
    "another body": (lambda q: table(q) + body(q, data_of=bytes(100)) + end(q), "OK"),
    "ABSENT": (lambda q: table(q, have("ABSENT", bytes(32), 0)) + end(q), "OK"),
    "an unknown status": (lambda q: table(q, have(199, bytes(32), 0)) + end(q), "OK"),
    "DENIED": (lambda q: table(q, have(108, bytes(32), 0)) + end(q), "OK"),
    "DRAINING": (lambda q: end(q, "DRAINING"), "OK"),
    "given up half-way": (lambda q: table(q) + body(q, 0, 50) + end(q, "DEADLINE", "DEADLINE"), "OK"),
    "END OK before TABLE": (lambda q: end(q, "OK", "OK"), "STATE"),
    "END OK before all bytes": (lambda q: table(q) + body(q, 0, 99) + end(q, "OK", "OK"), "STATE"),
    "END with two statuses": (lambda q: table(q) + body(q) + end(q, "OK", "OK", "OK"), "STATE"),
    "TABLE twice": (lambda q: table(q) + table(q), "STATE"),
    "TABLE of two": (lambda q: table(q, have(), have()), "STATE"),
    "TABLE of another request": (lambda q: table(q + 1000), "STATE"),
    "TABLE with another magic": (lambda q: table(q, have(header=b"X" + GOOD[1:])), "INVALID"),
    "TABLE with tier 3 in the header": (lambda q: table(q, have(header=GOOD[:12] + b"\3" + GOOD[13:])), "INVALID"),
    "TABLE with padding in the header": (lambda q: table(q, have(header=GOOD[:15] + b"\1" + GOOD[16:])), "INVALID"),
    "TABLE with tier 3": (lambda q: table(q, have(tier=3)), "INVALID"),
    "TABLE with another len": (lambda q: table(q, have(length=99)), "INVALID"),
    "a body above max": (lambda q: table(q, have(length=101, header=mrdn.header(bytes(101)))), "FLOW_VIOLATION"),
    "DATA before TABLE": (lambda q: body(q), "FLOW_VIOLATION"),
    "DATA beyond len": (lambda q: table(q) + body(q) + body(q, 0, 1, offset=100), "FLOW_VIOLATION"),
    "DATA of another request": (lambda q: table(q) + body(q + 1000), "FLOW_VIOLATION"),
    "DATA of another item": (lambda q: table(q) + body(q, arg=1), "STATE"),
    "DATA from another offset": (lambda q: table(q) + body(q, 1, 100), "STATE"),
    "GRANT": (lambda q: control("GRANT", q, batch([b"\0\0"])), "STATE"),
    "OPENED": (lambda q: control("OPENED", q, bytes(10)), "STATE"),
    "a request of the other parity": (lambda q: control("PING", q), "STATE"),
    "TABLE with a wrong trailer": (lambda q: table(q)[:-1] + b"\x99", "CRC"),
    "TABLE cut short": (lambda q: control("TABLE", q, bytes(16) + struct.pack("<I", 1)), "LENGTH"),
}

def grant(q, *codes):
    return control("GRANT", q, batch([struct.pack("<H", CODE[c]) for c in codes or ("OK",)]))


# The same for the PUSH of one item: what is sent for PUSH, and what for COMMIT.
PUSHES = {
    "push": (grant, lambda q: table(q) + end(q, "OK", "OK"), "OK"),
    "push of what is there": (lambda q: grant(q, "EXISTS"), lambda q: table(q, have("EXISTS", bytes(32), 0)) + end(q, "OK", "EXISTS"), "OK"),
    "push without room": (lambda q: grant(q, "FULL"), lambda q: table(q, have("FULL", bytes(32), 0)) + end(q, "OK", "FULL"), "OK"),
    "push refused": (lambda q: end(q, "DRAINING"), lambda q: b"", "OK"),
    "push that did not match": (grant, lambda q: table(q, have("CHECKSUM", bytes(32), 0)) + end(q, "OK", "CHECKSUM"), "OK"),
    "push, END OK at once": (lambda q: end(q, "OK", "OK"), lambda q: b"", "STATE"),
    "push, TABLE at once": (table, lambda q: b"", "STATE"),
    "push, GRANT of two": (lambda q: grant(q, "OK", "OK"), lambda q: b"", "STATE"),
    "push, GRANT twice": (lambda q: grant(q) + grant(q), lambda q: b"", "STATE"),
    "push, DATA": (lambda q: grant(q) + body(q), lambda q: b"", "FLOW_VIOLATION"),
    "push, END OK without TABLE": (grant, lambda q: end(q, "OK", "OK"), "STATE"),
    "push, TABLE with another header": (grant, lambda q: table(q, have(header=mrdn.header(bytes(100)))), "INVALID"),
    "push, TABLE with what was not granted": (lambda q: grant(q, "FULL"), table, "INVALID"),
}


def home(n=1):
    """STANDING for the namespace that the pusher opened first."""
    return control("STANDING", 0, struct.pack("<HHII", 1, 0, n, 100))


# What is sent for the DELIVER of one item, once COMMIT has come. Each needs a home, of which the push before it tells.
DELIVERS = {
    "delivered": (lambda q: table(q) + end(q, "OK", "OK"), "OK"),
    "delivered, and there": (lambda q: table(q, have("EXISTS", bytes(32), 0)) + end(q, "OK", "EXISTS"), "OK"),
    "delivered, turned away": (lambda q: end(q, "DRAINING"), "OK"),
    "delivered, did not match": (lambda q: table(q, have("CHECKSUM", bytes(32), 0)) + end(q, "OK", "CHECKSUM"), "OK"),
    "delivered, GRANT": (grant, "STATE"),
    "delivered, END OK without TABLE": (lambda q: end(q, "OK", "OK"), "STATE"),
    "delivered, TABLE with another header": (lambda q: table(q, have(header=mrdn.header(bytes(100)))), "INVALID"),
}
for name in list(DELIVERS):
    PUSHES["push, before " + name] = (grant, lambda q: table(q) + end(q, "OK", "OK") + home(), "OK")
# A home that was told of and is not there: the pusher comes back with a PUSH.
PUSHES["push, before homeless"] = (lambda q: grant(q), lambda q: table(q) + end(q, "OK", "OK") + home(), "OK")
DELIVERS["homeless"] = (lambda q: table(q, have("FULL", bytes(32), 0)) + end(q, "OK", "FULL"), "OK")
PUSHES["homeless"] = (grant, lambda q: table(q) + end(q, "OK", "OK"), "OK")


def order():
    """The cases as they are to be tried."""
    for name in [*CASES, *PUSHES]:
        if name not in DELIVERS:
            yield name
        if name.startswith("push, before "):
            yield name[len("push, before "):]


class Holder:
    def __init__(self, agent):
        self.agent, self.spaces, self.lock = agent, {}, threading.Lock()

    def lane(self, sock):
        case = None
        try:
            lane = self.agent.accept(sock)
            numbers = self.spaces.setdefault(lane.session, [])
            lane.delivered = False
            while True:
                name, frame, fields = lane.read()
                if case and name in ("PULL", "PUSH", "DELIVER", "PING"):  # the lane went on
                    self.say(case, "OK")
                    case = None
                case = self.answer(lane, numbers, name, int(frame["req"]), fields) or case
        except Refused as refused:
            if case:
                self.say(case, named(refused.code))
        except (Closed, OSError):
            pass
        finally:
            sock.close()

    def say(self, case, code):
        with self.lock:
            want = (CASES.get(case) or DELIVERS.get(case) or PUSHES[case])[-1]
            print(f"{'ok   ' if code == want else 'FAIL '} {case}: {code}, want {want}", flush=True)

    def answer(self, lane, numbers, name, req, fields):
        """Answers one message; gives the case that a PULL is of."""
        if name == "OPEN":
            numbers.append(mrdn.namespace(bytes.fromhex(fields["manifest"])))
            lane.write(control("OPENED", req, struct.pack("<HHHHH", len(numbers), 0, 0, 0, 0)))
        elif name in ("HAS", "STAT"):
            lane.write(table(req, *[have()] * len(fields["items"])) + end(req))
        elif name == "PULL":
            item, = fields["items"]
            space = numbers[item["ns"] - 1]
            case = next(c for c in CASES if mrdn.key(space, c.encode()).hex() == item["key"])
            if item["off"]:  # a pull that goes on after a lane was lost
                lane.write(table(req) + body(req, item["off"]) + end(req))
                return None
            lane.write(CASES[case][0](req))
            return case
        elif name in ("PING", "RENEW", "RELEASE"):
            lane.write(end(req))
        elif name == "PUSH":
            item, = fields["items"]
            lane.pushed = next((c for c in PUSHES if mrdn.key(numbers[item["ns"] - 1], c.encode()).hex() == item["key"]), None)
            lane.write(PUSHES[lane.pushed][0](req) if lane.pushed else end(req, "UNSUPPORTED"))
            return lane.pushed
        elif name == "DELIVER":
            item, = fields["items"]
            lane.pushed = next(c for c in DELIVERS if mrdn.key(numbers[item["ns"] - 1], c.encode()).hex() == item["key"])
            lane.delivered = True
            return lane.pushed
        elif name == "COMMIT":
            lane.write((DELIVERS if lane.delivered else PUSHES)[lane.pushed][-2](req))
            lane.delivered = False
        elif name in ("ABORT", "CANCEL"):
            lane.write(end(req, "CANCELLED"))
        elif name == "END":  # of the unknown frame
            assert named(fields["code"]) == "UNSUPPORTED"
        return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--list", action="store_true", help="print the cases and leave")
    p.add_argument("--listen", default="tcp://127.0.0.1:0")
    p.add_argument("--name", default="")
    p.add_argument("--psk-file")
    p.add_argument("--method", type=int, default=0)
    a = p.parse_args()
    if a.list:
        print("\n".join(order()))
        return
    psk = b""
    if a.psk_file:
        with open(a.psk_file, "rb") as file:
            psk = file.read()
    holder = Holder(Agent("", a.name, 2 if psk else a.method, psk))
    holder.agent.features = STANDING
    listener = socket.socket(socket.AF_UNIX if a.listen.startswith("unix") else socket.AF_INET, socket.SOCK_STREAM)
    where = a.listen.split("://")[1]
    listener.bind(where if a.listen.startswith("unix") else (where.rsplit(":", 1)[0], int(where.rsplit(":", 1)[1])))
    listener.listen()
    print("listening on", a.listen.split("://")[0] + "://" + (where if a.listen.startswith("unix") else "%s:%d" % listener.getsockname()), flush=True)
    while True:
        threading.Thread(target=holder.lane, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main()
