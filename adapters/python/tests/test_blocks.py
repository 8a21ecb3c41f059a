"""Blocks at a real daemon: put, look-up, leases, and what is refused."""
import gc
import os
import pathlib
import threading

import numpy as np

from meridian import Code, OpenError, RequestError
from meridian.records import HEAD

from .real import BLOCK, SOCKET, Case, bodies, hashes, manifest


class Blocks(Case):
    def test_blocks_come_back_byte_for_byte(self):
        keys, kv = self.stored(40)
        out = np.zeros((40, BLOCK), np.uint8)
        with self.e.acquire(self.space, keys) as lease:
            self.assertTrue(lease.granted)
            self.assertTrue(lease.check().all())
            for i in (0, 7, 39):
                self.assertTrue((lease.body(i) == kv[i]).all())
                self.assertFalse(lease.body(i).flags.writeable)
            self.assertEqual(lease.copy_into(out).tolist(), [0] * 40)
            heads = lease.heads()
        self.assertTrue((out == kv).all())
        self.assertEqual(heads.dtype, HEAD)
        self.assertEqual(set(heads["magic"]), {b"MRDN"})
        self.assertEqual(set(heads["body_len"]), {BLOCK})

    def test_bodies_of_any_shape_and_length(self):
        keys = self.keys(6)
        kv = [os.urandom(3), bytearray(b""), memoryview(os.urandom(BLOCK)), np.arange(10, dtype=np.float32), bodies(2, 60).reshape(3, 40), b"x" * 64]
        self.assertTrue(self.e.put(self.space, keys, kv).kept)
        with self.e.acquire(self.space, keys) as lease:
            self.assertEqual([lease.body(i).tobytes() for i in range(6)], [bytes(memoryview(b).cast("B")) if len(b) else b"" for b in kv])
        keys = self.keys(2)
        self.assertTrue(self.e.put(self.space, keys, np.ones((2, 16), np.float16), lens=[32, 6]).kept)
        self.assertEqual(self.e.has(self.space, keys)["len"].tolist(), [32, 6])

    def test_what_is_staged_is_put_where_it_lies(self):
        keys = self.keys(5)
        staged = self.e.stage(5, 1000)
        staged.data[:] = np.arange(5)[:, None]
        self.assertTrue(self.e.put(self.space, keys, staged).kept)
        with self.e.acquire(self.space, keys) as lease:
            self.assertEqual([set(lease.body(i).tolist()) for i in range(5)], [{i} for i in range(5)])
        self.assertEqual(self.e.ring.used, 0)
        self.e.stage(1, 10).free()
        self.assertEqual(self.e.ring.used, 0)

    def test_more_than_the_ring_holds_goes_in_parts(self):
        size = 256 << 10
        m = manifest(model="large", block_bytes=size)
        space = self.e.open(m)
        kv = bodies(30, size)
        keys = m.keys(hashes(30))
        got = self.e.put(space, keys, kv)
        self.assertEqual(got.statuses.tolist(), [0] * 30, got.why)
        self.assertLess(self.e.ring.size, kv.nbytes)
        with self.e.acquire(space, keys) as lease:
            self.assertTrue(all((lease.body(i) == kv[i]).all() for i in range(30)))

    def test_each_item_has_its_own_status(self):
        keys, _ = self.stored(3)
        mixed = np.concatenate((keys, self.keys(2), np.zeros(1, keys.dtype)))
        with self.e.acquire(self.space, mixed) as lease:
            self.assertEqual(lease.status.tolist(), [0, 0, 0, Code.ABSENT, Code.ABSENT, Code.ABSENT])
            self.assertEqual(lease.check().tolist(), [True] * 3 + [False] * 3)
            self.assertEqual([b is None for b in lease.bodies()], [False] * 3 + [True] * 3)
            with self.assertRaises(RequestError) as raised:
                lease.body(3)
            self.assertEqual(raised.exception.code, Code.ABSENT)
        for remote in (False, True):
            self.assertEqual(self.e.has(self.space, mixed, remote)["status"].tolist(), [0, 0, 0, 100, 100, 100])
        again = self.e.put(self.space, mixed[2:5], bodies(3))
        self.assertEqual(again.statuses.tolist(), [Code.EXISTS, 0, 0])
        self.assertTrue(again.kept)
        wrong = self.e.put(self.space, np.concatenate((self.keys(1), np.zeros(1, keys.dtype))), [bytes(BLOCK + 1), b"x"])
        self.assertEqual(wrong.statuses.tolist(), [Code.TOO_LARGE, Code.INVALID])
        self.assertIn("item 0", wrong.why)

    def test_a_reference_finds_its_block_and_no_other(self):
        keys, kv = self.stored(2)
        with self.e.acquire(self.space, keys) as first:
            refs = first.places.copy()
        zero = np.zeros(2, keys.dtype)
        with self.e.acquire(self.space, zero, refs=refs) as lease:
            self.assertTrue((lease.body(1) == kv[1]).all())
        refs["gen"] += 2
        with self.e.acquire(self.space, zero, refs=refs) as lease:
            self.assertEqual(lease.status.tolist(), [Code.STALE] * 2)

    def test_leases_are_renewed_given_back_and_lost(self):
        keys, _ = self.stored(4)
        lease, other = self.e.acquire(self.space, keys, ttl=5), self.e.acquire(self.space, keys[:1], ttl=5)
        self.assertLess(lease.left, 5)
        self.e.renew((lease, other), ttl=20)
        self.assertGreater(lease.left, 15)
        other.release()
        other.release()
        with self.assertRaises(RequestError) as raised:
            other.renew()
        self.assertEqual(raised.exception.code, Code.LEASE_LOST)
        short = self.e.acquire(self.space, keys, ttl=0.001)
        while short.left > -0.001:  # the daemon's clock began no later than the answer
            pass
        with self.assertRaises(RequestError) as raised:
            short.renew()
        self.assertEqual(raised.exception.code, Code.LEASE_LOST)
        self.e.release((lease, short))
        with self.assertRaises(RequestError):
            lease.body(0)
        self.assertEqual(self.e.acquire(self.space, keys, hold=True).left, float("inf"))

    def test_a_batch_beyond_the_limit_is_refused_before_it_is_sent(self):
        many = np.zeros(self.e.items + 1, "V32")
        for ask in (self.e.has, self.e.acquire):
            with self.assertRaises(RequestError) as raised:
                ask(self.space, many)
            self.assertEqual(raised.exception.code, Code.TOO_LARGE)
        most = self.e.has(self.space, many[1:])
        self.assertEqual(set(most["status"]), {Code.ABSENT})

    def test_manifests_that_are_refused_say_why(self):
        with self.assertRaises(OpenError) as raised:
            self.e.open(manifest(block_bytes=BLOCK * 2))
        self.assertEqual((raised.exception.code, raised.exception.field), (Code.GEOMETRY, "block_bytes"))
        self.assertEqual((raised.exception.ours, raised.exception.theirs), (str(BLOCK * 2), str(BLOCK)))
        with self.assertRaises(OpenError) as raised:
            self.e.open(manifest(tenant="stranger"))
        self.assertEqual(raised.exception.code, Code.NS_UNKNOWN)
        self.assertEqual(self.e.open(self.m), self.space)

    def test_a_ring_above_the_limit_is_refused(self):
        with self.assertRaises(RequestError) as raised:
            self.e.need_ring(1 << 40)
        self.assertIn(raised.exception.code, (Code.TOO_LARGE, Code.BUSY))
        self.assertTrue(raised.exception.text)

    def test_a_cancelled_request_gives_back_what_it_got(self):
        keys, _ = self.stored(8)
        pending = self.e.start_acquire(self.space, keys)
        pending.cancel()
        self.e.ping()
        self.assertTrue(pending.done)
        self.assertEqual(len(self.e._releases), 0)

    def test_requests_run_side_by_side(self):
        keys, _ = self.stored(64)
        pending = [self.e.start_has(self.space, keys[i:]) for i in range(32)]
        leases = [self.e.start_acquire(self.space, keys[:i + 1]) for i in range(32)]
        self.assertEqual([len(p.wait()) for p in reversed(pending)], list(range(33, 65)))
        self.e.release([p.wait() for p in leases])

    def test_threads_share_a_connection(self):
        keys, kv = self.stored(64)
        wrong = []

        def run(seed):
            for i in range(40):
                at = (seed * 7 + i) % 60
                with self.e.acquire(self.space, keys[at:at + 4]) as lease:
                    if not (lease.body(1) == kv[at + 1]).all():
                        wrong.append(at)
                if i % 8 == seed and not self.e.put(self.space, self.keys(2), bodies(2)).kept:
                    wrong.append(-1)

        threads = [threading.Thread(target=run, args=(s,)) for s in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_arrays_outlive_the_connection_and_memory_goes_with_them(self):
        keys, kv = self.stored(1)
        body = self.e.acquire(self.space, keys).body(0)
        self.e.close()
        self.assertTrue((body == kv[0]).all())
        fds = len(os.listdir("/proc/self/fd"))
        other = self.engine()
        other.open(self.m)
        other.close()
        del other
        gc.collect()
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), fds)

    def test_the_first_example_of_the_page_runs(self):
        page = (pathlib.Path(__file__).resolve().parents[3] / "docs" / "python.md").read_text(encoding="utf-8")
        example = page.split("```python\n")[1].split("```")[0]
        self.assertIn("/run/meridian/engine.sock", example)
        names = {}
        exec(example.replace("/run/meridian/engine.sock", SOCKET), names)
        self.assertEqual(names["status"].tolist(), [0] * len(names["kv"]))
        self.assertTrue((names["out"] == names["kv"]).all())
