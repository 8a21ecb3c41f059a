"""What needs no daemon: checksums, BLAKE3, manifests and records, by the vectors of conformance/."""
import dataclasses
import json
import os
import pathlib
import unittest

import numpy as np

from meridian import Code, Manifest, MeridianError, RequestError, frames, records
from meridian.blake3 import blake3, blake3_many
from meridian.crc import crc32c

ROOT = pathlib.Path(__file__).resolve().parents[3]
VECTORS = ROOT / "conformance" / "vectors"


TABLE = list(range(256))
for _ in range(8):
    TABLE = [n >> 1 ^ (0x82F63B78 if n & 1 else 0) for n in TABLE]


def bytewise(data):
    """CRC-32C a byte at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


class Formats(unittest.TestCase):
    def test_codes_are_those_of_the_daemon(self):
        with open(ROOT / "wire" / "errors.json", encoding="utf-8") as f:
            self.assertEqual({e["name"]: e["code"] for e in json.load(f)}, {c.name: c.value for c in Code})

    def test_crc32c(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)
        for n in [*range(0, 140), 4095, 4096, 4097, 8192 + 95]:
            data = os.urandom(n)
            self.assertEqual(crc32c(data), bytewise(data), n)
        data = bytes(64 ** 3) + b"x" * 100
        self.assertEqual(crc32c(memoryview(data)), bytewise(data))

    def test_blake3_by_the_headers_of_the_page(self):
        # docs/spec/mrdn-v1.md, "Payload": the first 16 bytes of each digest
        for body, checksum in ((b"", "af1349b9f5f9a1a6a0404dea36dcc949"), (b"hello disagg world", "b5991e5ca82b6864630d4c369fd90835"),
                               (b"payload", "ec90915fa26ab012a89a88ecc8b47e4d"), (b"\x2a" * 64, "6c0faf6370479a209c749303e94f181d"),
                               (b"reasoning-kv", "f0113489ef383028cecdb96b31a45b34"), (bytes(16384), "111f6c2f2ac0fc43154414a6e3e4c104")):
            self.assertEqual(blake3(body)[:16].hex(), checksum)
        self.assertEqual(blake3_many(np.empty((0, 64), np.uint8)).shape, (0, 32))

    def test_keys_of_a_batch_are_those_of_each(self):
        m = Manifest(tenant="acme", model="q", block_bytes=4096)
        for n, size in ((1, 32), (5, 32), (64, 8), (3, 1200)):
            hashes = np.frombuffer(os.urandom(n * size), np.uint8).reshape(n, size)
            self.assertEqual([k.tobytes() for k in m.keys(hashes)], [m.key(h.tobytes()) for h in hashes])

    def test_manifests_and_keys_are_those_of_the_vectors(self):
        with open(VECTORS / "mrdn-v1" / "index.json", encoding="utf-8") as f:
            index = json.load(f)
        kinds = {f.name: type(f.default) for f in dataclasses.fields(Manifest)}
        good = [v for v in index["manifests"] if v["code"] == 0]
        for v in good:
            raw = (VECTORS / "mrdn-v1" / v["file"]).read_bytes()
            lines = (line.partition("=") for line in raw.decode().split("\n")[:-1])
            m = Manifest(**{name: kinds[name](value) for name, _, value in lines})
            self.assertEqual(m.canonical, raw, v["name"])
            self.assertEqual(m.namespace.hex(), v["namespace"])
        self.assertGreaterEqual(len(good), 3)
        for v in index["keys"]:
            made = v["engine_hash"]
            tail = bytes.fromhex(made["hex"]) if made["kind"] == "hex" else bytes(i % 251 for i in range(made["length"]))
            self.assertEqual(blake3(bytes.fromhex(v["namespace"]) + tail).hex(), v["key"])

    def test_manifests_have_one_form(self):
        m = Manifest(tenant="a=b", layer_last=3)
        lines = m.canonical.decode().splitlines()
        self.assertEqual(lines, sorted(lines, key=lambda line: line.split("=")[0]))
        self.assertIn("tenant=a=b", lines)
        self.assertIn("layer_last=3", lines)
        self.assertEqual(len(lines), 19)
        for wrong in ({"block_bytes": -1}, {"block_bytes": 1 << 32}, {"model": "a\nb"}, {"model": "x" * 513}, {"model": "\x85"}, {"model": "\ud800"},
                      {"tp_size": True}, {"tp_size": "1"}, {"model": 3}):
            with self.assertRaises(MeridianError, msg=wrong) as raised:
                Manifest(**wrong).canonical
            self.assertEqual(raised.exception.code, Code.MANIFEST)

    def test_records_have_the_widths_of_the_page(self):
        for name, width in (("WANT", 52), ("HAVE", 48), ("PLACE", 32), ("PUT_ITEM", 52), ("SEG", 16), ("HEAD", 32), ("HOLDER", 24), ("LOAD_ITEM", 48),
                            ("STORE_ITEM", 60), ("FILL_ITEM", 16), ("EVICTED_ITEM", 40)):
            self.assertEqual(getattr(records, name).itemsize, width, name)

    def test_frames_are_those_of_the_vectors(self):
        seen = set()
        for path in sorted((VECTORS / "link-v1").glob("*.json")):
            if path.name == "refused.json":
                continue
            for v in json.loads(path.read_text(encoding="utf-8")):
                raw, head = bytes.fromhex(v["hex"]), v["frame"]
                if head["class"] or head["arg"] or v["type"] == "DATA":
                    continue  # an engine sends none of these
                plain = path.name == "plain.json"
                self.assertEqual(frames.frame(head["type"], int(head["req"]), (raw[24:-4],), plain, head["flags"]).hex(), v["hex"], v["name"])
                seen.add(v["type"])
        self.assertLess({"HELLO", "ACQUIRE", "ACQUIRED", "LOAD", "LOADED", "PUTAT", "TOKENS", "EVICTED"}, seen)

    def test_records_are_those_of_the_vectors(self):
        # where the count of items stands, and their dtype
        layout = {"ACQUIRE": (12, records.WANT), "HAS": (4, records.WANT), "ACQUIRED": (16, records.PLACE), "TABLE": (16, records.HAVE), "PUT": (4, records.PUT_ITEM),
                  "LOADED": (20, records.PLACE), "RESERVE": (8, records.STORE_ITEM), "PUTAT": (4, records.STORE_ITEM), "FILL": (12, records.FILL_ITEM),
                  "EVICTED": (0, records.EVICTED_ITEM), "MAP": (0, records.SEG), "LOAD": (12, records.LOAD_ITEM)}
        compared = dict.fromkeys(layout, 0)
        for path in sorted((VECTORS / "link-v1").glob("*.json")):
            if path.name == "refused.json":
                continue
            for v in json.loads(path.read_text(encoding="utf-8")):
                if v["type"] not in layout:
                    continue
                at, dtype = layout[v["type"]]
                fields = bytes.fromhex(v["hex"])[24:-4]
                n = int.from_bytes(fields[at:at + 4], "little")
                holders = 24 * len(v["fields"].get("holders", ()))
                items = np.frombuffer(fields, dtype, n, at + 4 + holders)
                self.assertEqual(len(fields), at + 4 + holders + n * dtype.itemsize)
                for item, want in zip(items, v["fields"].get("items", v["fields"].get("segs")), strict=True):
                    for name, value in want.items():
                        if name in dtype.names:
                            got = item[name]
                            self.assertEqual(got.tobytes().hex() if got.dtype.kind == "V" else str(got), value if got.dtype.kind == "V" else str(int(value)),
                                             (v["name"], name))
                            compared[v["type"]] += 1
        self.assertNotIn(0, compared.values(), compared)

    def test_keys_come_in_four_forms(self):
        raw = os.urandom(96)
        each = [raw[:32], raw[32:64], raw[64:]]
        for form in (raw, each, np.frombuffer(raw, np.uint8).reshape(3, 32), np.frombuffer(raw, "V32")):
            self.assertEqual([k.tobytes() for k in records.keys_array(form)], each)
        for wrong in (raw[:95], [raw[:31], raw[31:64]], np.zeros((3, 31), np.uint8), np.zeros(96, np.uint8)):
            with self.assertRaises(ValueError):
                records.keys_array(wrong)

    def test_hashes_lose_no_bytes_on_the_way_to_keys(self):
        m = Manifest(tenant="t", model="m")
        raw = [os.urandom(32) for _ in range(3)]
        want = [m.key(h) for h in raw]
        for form in (raw, np.frombuffer(b"".join(raw), np.uint8).reshape(3, 32)):
            self.assertEqual([k.tobytes() for k in m.keys(form)], want)
        self.assertEqual(len(m.keys([])), 0)
        for wrong in (np.zeros((3, 4), np.uint64), np.zeros(96, np.uint8), [b"12", b"123"]):
            with self.assertRaisesRegex(ValueError, "hashes"):
                m.keys(wrong)

    def test_an_error_says_its_code_once(self):
        e = RequestError("handoff", Code.INVALID, "keep_ms is 0: INVALID")
        self.assertEqual(str(e), "INVALID: handoff: keep_ms is 0")
        self.assertEqual((e.code, e.text), (Code.INVALID, "keep_ms is 0: INVALID"))

    def test_texts_are_cut_between_characters(self):
        self.assertEqual(frames.clip("é" * 200), "é".encode() * 128)
        self.assertEqual(frames.clip("x" + "é" * 200), b"x" + "é".encode() * 127)
