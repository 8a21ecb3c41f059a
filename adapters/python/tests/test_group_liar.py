"""The forms of feature GROUP with a daemon that lies about them, or has none of them."""
import array
import math
import os
import struct

import numpy as np

from meridian import AUTO, ClosedError, Code, Group, Manifest, MeridianError, RequestError, Space, frames
from meridian.records import EVICTED_ITEM

from .liar import Case, acquired, end, hello, place, raw

SPACE = Space(0, Manifest())
GROUPED = frames.LOCAL | frames.RING | frames.PLAIN | frames.GROUP
OWN = Group(b"\3" * 16, 5)


def loaded(req, first, *places, n=None, lease=b"\1" * 16):
    return raw(frames.LOADED, req, lease + struct.pack("<II", first, len(places) if n is None else n) + b"".join(places))


def reserved(req, number, *statuses, n=None):
    return raw(frames.RESERVED, req, struct.pack("<QI", number, len(statuses) if n is None else n) + struct.pack(f"<{len(statuses)}H", *statuses))


class Grouped(Case):
    def playing(self, script, client, **more):
        def whole(peer):
            peer.greet(features=GROUPED)
            script(peer)
        engine, thread = self.dial(whole, **more)
        try:
            return client(engine)
        finally:
            engine.close()
            thread.join()
            self.assertEqual(self.wrong, [])

    def fault(self, code, answer, client):
        def script(peer):
            peer.segments()
            _, req, _ = peer.read()
            peer.write(answer(req))
            while True:
                peer.read()
        def run(e):
            with self.assertRaises(MeridianError) as raised:
                client(e)
            self.assertEqual(raised.exception.code, code, raised.exception)
            self.assertIsInstance(e.error, ClosedError)
        self.playing(script, run)

    def test_hello_says_the_group_and_its_secret(self):
        def first(peer):
            kind, _, fields = peer.read()
            self.assertEqual((fields[8:24], fields[24:32]), (b"\3" * 16, struct.pack("<Q", 5)))
            self.assertEqual(fields[116:], b"\3\0\0\0" + b"\5\0\0\0")
            peer.write(hello(features=GROUPED, auth_n=1, auth=b"\5\0\x20\0" + b"s" * 32))
        e, thread = self.dial(first, group=Group(b"\3" * 16, 5, b""))
        self.assertEqual(e.group, Group(b"\3" * 16, 5, b"s" * 32))
        e.close()
        thread.join()
        self.assertEqual(self.wrong, [])

    def test_a_daemon_that_makes_no_secret_is_not_trusted(self):
        with self.assertRaises(ClosedError) as raised:
            self.dial(lambda peer: peer.greet(features=GROUPED), group=Group(b"\3" * 16, 5, b""))
        self.assertEqual(raised.exception.code, Code.AUTH)

    def test_groups_that_cannot_be(self):
        for wrong in ((bytes(16), 1), (b"x" * 15, 1), (b"x" * 16, 0), (b"x" * 16, 1 << 64), (b"x" * 16, 1, b"short")):
            with self.assertRaises(ValueError):
                Group(*wrong)

    def test_an_older_daemon_is_told_apart(self):
        def script(peer):
            peer.greet()
            while True:
                peer.read()
        e, thread = self.dial(script)
        self.assertIsNone(e.group)
        e.ring.grow(np.zeros(4096, np.uint8))
        keys = np.zeros(1, "V32")
        for ask in (lambda: e.start_load(SPACE, keys), lambda: e.start_reserve(SPACE, keys, 5), lambda: e.start_resume([1], [2]), lambda: e.start_handoff(1, 1),
                    lambda: e.put(SPACE, keys, [b"x"], pin=1), lambda: e.put(SPACE, keys, [b"x"], tier=AUTO), lambda: e.put(SPACE, keys, [b"x"], pos=0),
                    e.process):
            with self.assertRaises(RequestError) as raised:
                ask()
            self.assertEqual(raised.exception.code, Code.UNSUPPORTED)
        self.assertEqual(e.ring.used, 0)
        e.close()
        thread.join()
        self.assertEqual(self.wrong, [])

    def test_a_load_comes_in_parts(self):
        def script(peer):
            peer.segments()
            kind, req, fields = peer.read()
            deadline, ms, hold, holders, n = struct.unpack_from("<IIBxHI", fields)
            self.assertEqual((kind, deadline, ms, hold, holders, n), (frames.LOAD, 30_000, 2_000, 0, 2, 5))
            self.assertEqual(fields[16:64], b"\7" * 16 + struct.pack("<Q", 9) + b"\6" * 16 + struct.pack("<Q", 8))
            self.assertEqual(struct.unpack_from("<HHHHII", fields, 64 + 48), (0, 1 | 8, 2, 0, 3, 4))
            peer.write(loaded(req, 0, place(), place(), lease=b"\1" * 16))
            self.assertEqual(peer.read()[0], frames.PING)  # the first part was taken before the second came
            peer.write(loaded(req, 2, place(status=100, tier=0, attest=0, slot=0, gen=0, seg=0, size=0, gen_off=0, off=0), lease=bytes(16)))
            peer.write(loaded(req, 3, place(), place(), lease=b"\2" * 16) + end(req, text=b"peer b: absent"))
            released = b""
            while len(released) < 32:
                kind, _, fields = peer.read()
                if kind == frames.RELEASE:
                    released += fields[4:]
            self.assertEqual(released, b"\1" * 16 + b"\2" * 16)
        def client(e):
            refs = np.zeros(5, [("slot", "<u4"), ("gen", "<u4")])
            refs["slot"], refs["gen"] = 3, 4
            keys = np.frombuffer(os.urandom(160), "V32")
            load = e.start_load(SPACE, keys, fetch=True, wait=True, ttl=2, holders=[(b"\7" * 16, 9), (b"\6" * 16, 8)], holder=[1, 2, 2, 2, 2], refs=refs)
            parts = load.parts()
            one = next(parts)
            self.assertEqual((one.first, len(one), one.granted, load.done), (0, 2, True, False))
            e.simple("ping", frames.PING)
            two, three = parts
            self.assertEqual([(p.first, p.status.tolist()) for p in (two, three)], [(2, [100]), (3, [0, 0])])
            self.assertTrue((three.keys == keys[3:]).all())
            self.assertEqual(load.why, "peer b: absent")
            for p in (one, two, three):
                p.release()
        self.playing(script, client)

    def test_a_load_that_fails_keeps_the_parts_that_came(self):
        def script(peer):
            peer.segments()
            _, req, _ = peer.read()
            peer.write(loaded(req, 0, place()) + end(req, Code.DEADLINE))
            peer.read()
        def client(e):
            load = e.start_load(SPACE, np.zeros(3, "V32"))
            with self.assertRaises(RequestError) as raised:
                load.wait()
            self.assertEqual(raised.exception.code, Code.DEADLINE)
            part, = load.came()
            self.assertEqual(part.check().tolist(), [True])
            part.release()
        self.playing(script, client)

    def test_a_cancelled_load_gives_back_what_nobody_took(self):
        def script(peer):
            peer.segments()
            _, req, _ = peer.read()
            peer.write(loaded(req, 0, place(), lease=b"\1" * 16))
            self.assertEqual(peer.read()[:2], (frames.CANCEL, req))
            peer.write(loaded(req, 1, place(), lease=b"\2" * 16) + end(req, Code.CANCELLED))
            kind, _, fields = peer.read()
            self.assertEqual((kind, fields[4:]), (frames.RELEASE, b"\2" * 16))
        def client(e):
            load = e.start_load(SPACE, np.zeros(3, "V32"), hold=True)
            one = next(load.parts())
            self.assertEqual(one.left, math.inf)
            load.cancel()
            while not load.done:
                e.poll(0.05)
            e.flush()
        self.playing(script, client)

    def test_parts_that_cannot_be(self):
        two = np.zeros(2, "V32")
        for name, code, answer in (
                ("a gap", Code.STATE, lambda r: loaded(r, 1, place())), ("more than asked", Code.STATE, lambda r: loaded(r, 0, place(), place(), place())),
                ("twice", Code.STATE, lambda r: loaded(r, 0, place()) * 2), ("none", Code.LENGTH, lambda r: loaded(r, 0)),
                ("none, with bytes", Code.INVALID, lambda r: loaded(r, 0, place(), n=0)), ("a count above", Code.LENGTH, lambda r: loaded(r, 0, place(), n=4097)),
                ("a count that does not fit", Code.LENGTH, lambda r: loaded(r, 0, place(), n=2)), ("END OK too early", Code.STATE, lambda r: loaded(r, 0, place()) + end(r)),
                ("no lease", Code.INVALID, lambda r: loaded(r, 0, place(), lease=bytes(16))), ("out of the segment", Code.LENGTH, lambda r: loaded(r, 0, place(off=4090))),
                ("ACQUIRED", Code.STATE, lambda r: acquired(r, place(), place())), ("LOADED first + n wraps", Code.STATE, lambda r: loaded(r, 2 ** 32 - 1, place())),
        ):
            with self.subTest(name):
                self.fault(code, answer, lambda e: e.start_load(SPACE, two).wait())
        self.fault(Code.STATE, lambda r: loaded(r, 0, place()), lambda e: e.acquire(SPACE, two))

    def test_reservations(self):
        def script(peer):
            kind, req, fields = peer.read()
            self.assertEqual((kind, struct.unpack_from("<III", fields)), (frames.RESERVE, (30_000, 5_000, 3)))
            self.assertEqual(struct.unpack_from("<HBBIQ32sIII", fields, 12), (0, 255, 1, 100, 0, bytes(32), 7, 0, 1500))
            self.assertEqual(struct.unpack_from("<HBBIQ32sIII", fields, 132)[-2], 32)
            peer.write(reserved(req, 77, 0, 102, 0) + end(req, text=b"item 1: is there"))
            kind, req, fields = peer.read()
            self.assertEqual((kind, fields[:16]), (frames.FILL, struct.pack("<QBxxxI", 77, 0, 2)))
            self.assertEqual(struct.unpack_from("<IIQIIQ", fields, 16), (0, 100, 0, 2, 50, 128))
            peer.write(end(req, 0, (0, 107)))
            kind, req, fields = peer.read()
            self.assertEqual((kind, fields), (frames.FILL, struct.pack("<QBxxxI", 77, 1, 0)))
        def client(e):
            e.ring.grow(np.zeros(4096, np.uint8))
            with e.reserve(SPACE, np.zeros(3, "V32"), 100, tier=AUTO, req=7, pos=[0, 16, 32], pin=1.5, ttl=5) as r:
                self.assertEqual((r.statuses.tolist(), r.wanted.tolist(), r.why), ([0, 102, 0], [0, 2], "item 1: is there"))
                self.assertEqual(r.fill(r.wanted, e.stage(2, 100), lens=[100, 50]).statuses.tolist(), [0, 107])
            r.close()
            self.assertEqual(e.ring.used, 0)
        self.playing(script, client)

    def test_reservations_that_cannot_be(self):
        keys = np.zeros(2, "V32")
        for name, code, answer in (
                ("another count", Code.STATE, lambda r: reserved(r, 1, 0)), ("a count that does not fit", Code.LENGTH, lambda r: reserved(r, 1, 0, 0, n=4)),
                ("no number", Code.INVALID, lambda r: reserved(r, 0, 0, 0)), ("a number for nothing", Code.INVALID, lambda r: reserved(r, 1, 103, 103)),
                ("END OK too early", Code.STATE, end),
        ):
            with self.subTest(name):
                self.fault(code, answer, lambda e: e.reserve(SPACE, keys, 5))

    def test_advice_with_positions_and_evictions(self):
        key = os.urandom(32)
        def script(peer):
            _, req, _ = peer.read()
            peer.write(raw(frames.PHASEAT, 0, struct.pack("<IBBHII2i", 7, 3, 3, 2, 40, 90, 5, 6)) + raw(frames.PHASE, 0, struct.pack("<IBBHI", 7, 4, 5, 0, 40)))
            peer.write(raw(frames.EVICTED, 0, struct.pack("<IIHH", 1, 7, 2, 0) + key) + raw(frames.EVICTED, 0, bytes(4)) + end(req))
        def client(e):
            e.ping()
            at, old = e.phases()
            self.assertEqual((at.req, at.kind, at.reason, at.used, at.inject.tolist(), at.pos), (7, 3, 3, 40, [5, 6], 90))
            self.assertEqual(old.pos, -1)
            gone = e.evicted()
            self.assertEqual((gone.dtype, len(gone), gone["req"][0], gone["ns"][0], gone["key"][0].tobytes()), (EVICTED_ITEM, 1, 7, 2, key))
        self.playing(script, client)

    def test_advice_that_cannot_be(self):
        for bad in (raw(frames.PHASEAT, 0, struct.pack("<IBBHII", 7, 3, 3, 2, 40, 90)), raw(frames.EVICTED, 0, struct.pack("<I", 1)),
                    raw(frames.EVICTED, 0, struct.pack("<I", 2) + bytes(40)), raw(frames.PHASE, 0, struct.pack("<IBBHI", 7, 3, 3, 257, 40) + bytes(1028))):
            self.fault(Code.LENGTH, lambda r: bad, lambda e: e.ping())

    def test_resume_keeps_the_last_tokens_and_says_where_they_begin(self):
        seen = []
        def script(peer):
            for _ in range(4):
                kind, req, fields = peer.read()
                seen.append((kind, *struct.unpack_from("<III", fields, 20)))
                peer.write(end(req))
        def client(e):
            self.assertEqual(e.resume([1, 2], [3], req=9, id="x", model="m"), 9)
            e.resume(np.zeros(259_999, np.int32), [1, 2, 3], first=10)
            e.resume(np.zeros(10, np.int32), np.zeros(260_005, np.int32))
            e.begin(np.zeros(260_001, np.int32))
        self.playing(script, client)
        self.assertEqual(seen, [(frames.RESUME, 0, 2, 1), (frames.RESUME, 12, 259_997, 3), (frames.RESUME, 15, 0, 260_000), (frames.RESUME, 1, 260_000, 0)])

    def test_a_pidfd_travels_with_process(self):
        def script(peer):
            data, notes, _, _ = peer.sock.recvmsg(28, 64)
            fds = array.array("i", notes[0][2])
            with open(f"/proc/self/fdinfo/{fds[0]}", encoding="ascii") as f:
                self.assertIn(f"Pid:\t{os.getpid()}", f.read())
            os.close(fds[0])
            peer.write(end(struct.unpack_from("<Q", data, 8)[0]))
        self.playing(script, lambda e: e.process())

