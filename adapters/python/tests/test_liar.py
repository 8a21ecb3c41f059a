"""A daemon that lies, never answers, or takes nothing: every fault has its code, every wait its end, and no memory is touched."""
import contextlib
import os
import socket
import struct
import threading
from unittest import mock

import numpy as np

from meridian import ClosedError, Code, Engine, Manifest, MeridianError, ProtocolError, RequestError, Space, connection, frames, session

from .liar import Case, acquired, end, hello, map_of, memory, place, raw

SPACE = Space(0, Manifest())
KEYS = np.zeros(1, "V32")


def put_one(e):
    staged = e.stage(1, 64)
    return e.start_put(SPACE, KEYS, staged).wait()


class Greeting(Case):
    def refused(self, script, code, **more):
        with self.assertRaises(ClosedError) as raised:
            self.dial(script, **more)
        self.assertEqual(raised.exception.code, code)
        self.assertEqual(self.wrong, [])

    def test_nobody_listens(self):
        with self.assertRaises(ClosedError) as raised:
            Engine(os.path.join(self.dir.name, "none"))
        self.assertEqual(raised.exception.code, Code.UNREACHABLE)

    def test_a_daemon_that_says_nothing(self):
        def silent(peer):
            peer.read()
            peer.take(1)
        with mock.patch.object(frames, "HELLO_TIMEOUT", 0.2):
            self.refused(silent, Code.HELLO_TIMEOUT)

    def test_a_refusal_has_its_code_and_text(self):
        said = struct.pack("<QHH", 4, Code.AUTH, 2) + b"no"
        def script(peer):
            peer.read()
            peer.write(frames.frame(frames.ERROR, 0, (said,), plain=False, flags=1))
        self.refused(script, Code.AUTH)

    def test_hellos_that_are_none(self):
        for code, fields in ((Code.LINK_MAGIC, {"magic": b"HTTP"}), (Code.LINK_VERSION, {"least": 2, "most": 9}), (Code.UNSUPPORTED, {"features": 4}),
                             (Code.INVALID, {"lane": 1}), (Code.LENGTH, {"auth_n": 1}), (Code.LENGTH, {"auth": b"\0" * 4}),
                             (Code.LENGTH, {"auth_n": 1, "auth": b"\5\0\x21\0" + bytes(32)}), (Code.INVALID, {"auth_n": 17})):
            with self.subTest(code=code, fields=fields):
                self.refused(lambda peer: peer.greet(**fields), code)

    def test_a_hello_that_is_cut_or_damaged_anywhere(self):
        whole = hello()
        for at in range(0, len(whole), 3):
            def cut(peer):
                peer.read()
                peer.write(whole[:at])
            def damaged(peer):
                peer.read()
                peer.write(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
            self.refused(cut, Code.LANE_LOST)
            with self.assertRaises(ProtocolError):
                self.dial(damaged)

    def test_another_first_frame_is_another_protocol(self):
        def script(peer):
            peer.read()
            peer.write(frames.frame(frames.PING, 0, (), plain=False))
        self.refused(script, Code.LINK_MAGIC)


class Answers(Case):
    def fault(self, code, answer, client, maps=True):
        """answer(peer, req) to client's request is a fault with a code, and the connection is over."""
        def script(peer):
            if maps:
                peer.segments()
            kind, req, _ = peer.read()
            answer(peer, req)
            while True:
                peer.read()
        def run(e):
            e.ring.grow(np.zeros(4096, np.uint8))
            with self.assertRaises(MeridianError) as raised:
                client(e)
            self.assertEqual(raised.exception.code, code, raised.exception)
            self.assertIsInstance(e.error, ClosedError)
            with self.assertRaises(ClosedError):
                e.ping()
        self.playing(script, run)

    def test_places_outside_of_what_is_mapped(self):
        two = np.zeros(2, "V32")
        for code, bad in ((Code.STATE, place(seg=2)), (Code.LENGTH, place(off=31)), (Code.LENGTH, place(off=4096)), (Code.LENGTH, place(off=4000)),
                          (Code.LENGTH, place(off=2 ** 64 - 50)), (Code.LENGTH, place(off=2 ** 32 + 64)), (Code.LENGTH, place(size=2 ** 32 - 1)),
                          (Code.LENGTH, place(gen_off=64)), (Code.LENGTH, place(gen_off=60)), (Code.LENGTH, place(gen_off=2 ** 32 - 8)),
                          (Code.LENGTH, place(gen_off=4)), (Code.INVALID, place(tier=3)), (Code.INVALID, place(attest=3))):
            for items in ((bad, place()), (place(), bad), (bad, place(status=100, tier=0, attest=0, slot=0, gen=0, seg=0, size=0, gen_off=0, off=0))):
                with self.subTest(code=code, bad=bad):
                    self.fault(code, lambda peer, req: peer.write(acquired(req, *items)), lambda e: e.acquire(SPACE, two))

    def test_places_at_the_very_edge_are_taken(self):
        def script(peer):
            peer.segments()
            _, req, _ = peer.read()
            peer.write(acquired(req, place(off=3996), place(off=32, size=4064), place(size=0, off=4096), place(gen_off=56)) + end(req))
            _, req, _ = peer.read()
        def client(e):
            lease = e.acquire(SPACE, np.zeros(4, "V32"))
            self.assertEqual([len(b) for b in lease.bodies()], [100, 4064, 0, 100])
            self.assertEqual(lease.check().tolist(), [True, True, True, False])
            lease.release()
        self.playing(script, client)

    def test_answers_that_do_not_fit_the_request(self):
        ok = place()
        have = struct.pack("<HBBI32sII", 0, 2, 2, 5, bytes(32), 1, 2)
        def table(req, n, items):
            return raw(frames.TABLE, req, bytes(16) + struct.pack("<I", n) + items)
        acquire, has = (lambda e: e.acquire(SPACE, KEYS)), (lambda e: e.has(SPACE, KEYS))
        for name, code, answer, client in (
                ("another count", Code.STATE, lambda r: acquired(r, ok, ok), acquire),
                ("no item", Code.STATE, lambda r: acquired(r), acquire),
                ("a count above the items", Code.LENGTH, lambda r: acquired(r, ok, n=2), acquire),
                ("a count above all", Code.LENGTH, lambda r: acquired(r, ok, n=2 ** 32 - 1), acquire),
                ("bytes behind", Code.LENGTH, lambda r: raw(frames.ACQUIRED, r, bytes(16) + struct.pack("<I", 1) + ok + b"x"), acquire),
                ("another answer", Code.STATE, lambda r: table(r, 1, have), acquire),
                ("a second one", Code.STATE, lambda r: acquired(r, ok) + acquired(r, ok), acquire),
                ("END OK at once", Code.STATE, end, acquire),
                ("of another request", Code.STATE, lambda r: acquired(r + 2, ok), acquire),
                ("END of a request that never was", Code.STATE, lambda r: end(r + 2), acquire),
                ("END with an even number", Code.STATE, lambda r: end(2), acquire),
                ("statuses of others", Code.STATE, lambda r: end(r, 202, (0, 0)), acquire),
                ("more statuses than bytes", Code.LENGTH, lambda r: end(r, 202, n=9), acquire),
                ("a text that is none", Code.INVALID, lambda r: end(r, 202, text=b"\xff"), acquire),
                ("TABLE of two", Code.STATE, lambda r: table(r, 2, have * 2), has),
                ("a tier that is none", Code.INVALID, lambda r: table(r, 1, struct.pack("<HBBI32sII", 0, 3, 2, 5, bytes(32), 1, 2)), has),
                ("OPENED cut short", Code.LENGTH, lambda r: raw(frames.OPENED, r, struct.pack("<5H", 0, 0, 5, 0, 0)), lambda e: e.open(Manifest())),
                ("END OK without OPENED", Code.STATE, end, lambda e: e.open(Manifest())),
                ("PUT without statuses", Code.STATE, end, put_one),
                ("PUT with too many", Code.STATE, lambda r: end(r, 0, (0, 0)), put_one),
        ):
            with self.subTest(name):
                self.fault(code, lambda peer, req: peer.write(answer(req)), client)

    def test_frames_that_are_wrong(self):
        for name, code, bad in (
                ("a checksum with PLAIN", Code.CRC, raw(frames.END, 1, bytes(12), crc=1)), ("a trailer with PLAIN", Code.CRC, raw(frames.END, 1, bytes(12), trailer=1)),
                ("flags", Code.INVALID, raw(frames.END, 1, bytes(12), flags=2)), ("class", Code.INVALID, raw(frames.END, 1, bytes(12), cls=4)),
                ("reserved", Code.INVALID, raw(frames.END, 1, bytes(12), reserved=1)), ("too short", Code.LENGTH, raw(frames.END, 1)),
                ("too long", Code.LENGTH, raw(frames.END, 1, size=2 ** 32 - 1)), ("an engine's message", Code.STATE, raw(frames.PING, 1)),
                ("DATA", Code.FLOW_VIOLATION, raw(9, 1, bytes(9))), ("unknown and critical", Code.UNSUPPORTED, raw(200, 1, flags=1)),
                ("HELLO again", Code.STATE, raw(frames.HELLO, 0, bytes(116))), ("ERROR", Code.AUTH, raw(frames.ERROR, 0, struct.pack("<QHH", 0, 305, 0))),
        ):
            with self.subTest(name):
                self.fault(code, lambda peer, req: peer.write(bad), lambda e: e.ping(), maps=False)

    def test_frames_of_unknown_type_are_skipped_and_may_come_in_pieces(self):
        def script(peer):
            for _ in range(2):
                _, req, _ = peer.read()
                stream = raw(201, 0, os.urandom(700_000)) + raw(250) + end(req)
                for at in range(0, len(stream), 100_003):
                    peer.write(stream[at:at + 100_003])
            _, req, _ = peer.read()
            for byte in end(req):
                peer.write(bytes([byte]))
        self.playing(script, lambda e: [e.ping() for _ in range(3)])

    def test_checksums_where_the_daemon_has_no_plain(self):
        def script(peer):
            peer.read()
            peer.write(hello(features=frames.LOCAL))
            _, req, _ = peer.read()
            peer.write(frames.frame(frames.END, req, (bytes(12),), plain=False))
            kind, req, fields = peer.read()
            self.assertEqual(kind, frames.HAS)
            answer = frames.frame(frames.TABLE, req, (bytes(16) + struct.pack("<I", 1000) + bytes(48 * 1000),), plain=False)
            peer.write(answer + frames.frame(frames.END, req, (bytes(12),), plain=False))
            _, req, _ = peer.read()
            bad = bytearray(frames.frame(frames.END, req, (bytes(12),), plain=False))
            bad[30] ^= 1
            peer.write(bytes(bad))
        e, thread = self.dial(script)
        e.ping()
        self.assertEqual(len(e.has(SPACE, np.zeros(1000, "V32"))), 1000)
        with self.assertRaises(ProtocolError) as raised:
            e.ping()
        self.assertEqual(raised.exception.code, Code.CRC)
        e.close()
        thread.join()
        self.assertEqual(self.wrong, [])


class Maps(Case):
    def refused(self, code, *segs, fds):
        def script(peer):
            _, req, _ = peer.read()
            peer.write(map_of(*segs), *fds)
            while True:
                peer.read()
        def client(e):
            with self.assertRaises(ProtocolError) as raised:
                e.ping()
            self.assertEqual(raised.exception.code, code, raised.exception)
        try:
            self.playing(script, client)
        finally:
            for fd in fds:
                os.close(fd)

    def test_maps_that_cannot_be(self):
        for code, segs, fds in (
                (Code.LENGTH, [(1, 1, 8192)], [memory(4096)]), (Code.LENGTH, [(1, 1, 0)], [memory(4096)]), (Code.LENGTH, [(1, 1, 2 ** 63)], [memory(4096)]),
                (Code.INVALID, [(1, 1, 4096)], [memory(4096, sealed=False)]), (Code.INVALID, [(1, 1, 4096)], [os.open("/proc/self/exe", os.O_RDONLY)]),
                (Code.INVALID, [(1, 0, 4096)], [memory(4096)]), (Code.INVALID, [(1, 4, 4096)], [memory(4096)]), (Code.INVALID, [(1, 3, 4096)], [memory(4096)]),
                (Code.STATE, [(1, 1, 4096), (1, 2, 64)], [memory(4096)]), (Code.STATE, [(1, 1, 4096)], []),
        ):
            with self.subTest(segs=segs):
                self.refused(code, *segs, fds=fds)

    def test_descriptors_that_nobody_expects_are_closed(self):
        def script(peer):
            stray = memory(4096)
            for _ in range(20):
                _, req, _ = peer.read()
                peer.write(end(req), *[stray] * 50)
            peer.write(map_of((1, 1, 4096)), stray, stray, stray)
            os.close(stray)
            _, req, _ = peer.read()
            peer.write(end(req))
        def client(e):
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(21):
                e.ping()
            self.assertLessEqual(len(os.listdir("/proc/self/fd")), before + 1)  # a map has one of its own
            self.assertEqual(len(e.maps.bytes[1]), 4096)
        self.playing(script, client)


class Waits(Case):
    def test_a_daemon_that_never_answers(self):
        seen = []
        def script(peer):
            while True:
                seen.append(peer.read())
        def client(e):
            with self.assertRaises(RequestError) as raised:
                e.acquire(SPACE, KEYS, timeout=0.1)
            self.assertEqual(raised.exception.code, Code.DEADLINE)
            with self.assertRaises(RequestError):
                e.open(Manifest(), timeout=0.05)
            with self.assertRaises(RequestError):
                e.start_has(SPACE, KEYS).wait(0.05)
            others = [threading.Thread(target=lambda: self.assertRaises(RequestError, e.ping, 0.05)) for _ in range(4)]
            for t in others:
                t.start()
            for t in others:
                t.join()
        with mock.patch.object(session, "GRACE", 0.05):
            self.playing(script, client)
        self.assertEqual([k for k, _, _ in seen[:4]], [frames.ACQUIRE, frames.CANCEL, frames.OPEN, frames.CANCEL])
        self.assertEqual(seen[0][1], seen[1][1])

    def test_what_a_cancelled_request_is_granted_goes_back(self):
        lease = b"\5" * 16
        def script(peer):
            peer.segments()
            _, req, _ = peer.read()
            self.assertEqual(peer.read()[:2], (frames.CANCEL, req))
            peer.write(acquired(req, place(), lease=lease) + end(req))
            kinds = [peer.read(), peer.read()]
            self.assertEqual(kinds[0][0], frames.PING)
            peer.write(end(kinds[0][1]))
            self.assertEqual((kinds[1][0], kinds[1][2][4:]), (frames.RELEASE, lease))
        def client(e):
            with self.assertRaises(RequestError):
                e.acquire(SPACE, KEYS, timeout=0.05)
            pending = e.simple("ping", frames.PING)
            with contextlib.suppress(ClosedError):  # the script's end
                while not pending.done:
                    e.poll(0.05)
            self.assertEqual(len(e._releases), 0)
        with mock.patch.object(session, "GRACE", 0.05):
            self.playing(script, client)

    def test_a_daemon_that_takes_nothing(self):
        go = threading.Event()
        got = []
        def script(peer):
            go.wait(20)
            while True:
                got.append(peer.read())
        def client(e):
            step = (np.arange(256), np.ones(256), np.arange(256))
            sent = sum(e.tokens(*step) for _ in range(3000))
            self.assertEqual(e.dropped, 3000 - sent)
            self.assertGreater(e.dropped, 0)
            with mock.patch.object(session, "GRACE", 0.05):
                e.start_begin(np.zeros(1000, np.int32))  # waits for nobody
                with self.assertRaises(RequestError):
                    e.ping(0.05)
            with mock.patch.object(connection, "SEND_TIMEOUT", 0.2), self.assertRaises(ClosedError) as raised:
                for _ in range(8):
                    e.start_begin(np.zeros(250_000, np.int32))
            self.assertEqual(raised.exception.code, Code.LANE_LOST)
            self.assertLess(e._sock.unsent, 8 << 20)
            go.set()
        self.playing(script, client)
        self.assertLess({k for k, _, _ in got}, {frames.TOKENS, frames.BEGIN, frames.PING, frames.CANCEL})

    def test_a_begun_frame_is_completed_before_others(self):
        go, sent = threading.Event(), [0]
        got = []
        def script(peer):
            go.wait(20)
            while True:
                got.append(peer.read())
                if got[-1][0] == frames.PING:
                    peer.write(end(got[-1][1]))
        def client(e):
            e._sock.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)  # a step is several buffers of the kernel
            step = (np.arange(4096), np.ones(4096) * 2, np.arange(8192))
            while e.dropped < 3:
                sent[0] += e.tokens(*step)
            self.assertGreater(e._sock.unsent, 0)
            go.set()
            e.ping()
            self.assertEqual(e._sock.unsent, 0)
            sent[0] += e.tokens(*step)
            e.ping()
        self.playing(script, client)
        self.assertEqual([k for k, _, _ in got], [frames.TOKENS] * (sent[0] - 1) + [frames.PING, frames.TOKENS, frames.PING])

    def test_a_daemon_that_only_writes_is_read_meanwhile(self):
        def script(peer):
            _, req, _ = peer.read()
            for _ in range(40):  # more than a socket holds, before anything is read
                peer.write(raw(frames.PHASE, 0, struct.pack("<IBBHI", 1, 1, 0, 256, 0) + bytes(1024)) * 20)
            peer.write(end(req))
            while True:
                kind, req, _ = peer.read()
                peer.write(end(req))
        def client(e):
            e.start_finish(1)
            for _ in range(3):
                e.begin(np.zeros(250_000, np.int32))
            self.assertEqual(len(e.phases()), 800)
        self.playing(script, client)

    def test_goaway_and_the_end(self):
        def script(peer):
            _, req, _ = peer.read()
            peer.write(raw(frames.GOAWAY, 0, struct.pack("<IHH", 1000, Code.DRAINING, 0)) + end(req))
        def client(e):
            e.ping()
            self.assertTrue(e.draining)
            with self.assertRaises(ClosedError) as raised:
                for _ in range(50):
                    e.poll(0.05)
            self.assertEqual(raised.exception.code, Code.DRAINING)
        self.playing(script, client)

    def test_advice_that_nobody_takes_is_bounded(self):
        def script(peer):
            _, req, _ = peer.read()
            peer.write(raw(frames.PHASE, 0, struct.pack("<IBBHI", 1, 1, 0, 0, 0)) * 30 + end(req))
        def client(e):
            e.ping()
            self.assertEqual(e.advice_dropped, 20)
            self.assertEqual(len(e.phases()), 10)
        with mock.patch("meridian.generation.MAX_ADVICE", 10):
            self.playing(script, client)


