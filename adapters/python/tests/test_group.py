"""Groups and what they bring, at a real daemon."""
import os
import threading

import numpy as np

from meridian import AUTO, COMPLETED, ENTER_THINK, EXIT_THINK, ClosedError, Code, Engine, Group, RequestError

from .real import BLOCK, SOCKET, Case, bodies

STEP = [1, 7, 7, 2, 8]  # thinking begins, two thoughts, thinking ends, the answer begins


class Groups(Case):
    def setUp(self):
        super().setUp()
        self.group = Group.new(secret=True)
        self.a = self.engine(group=self.group)
        self.b = self.engine(group=self.a.group)
        self.space = self.a.open(self.m)
        self.seen = {}

    def phase(self, e, req, kind):
        for _ in range(200):  # of 50 ms each at most
            for p in self.seen.setdefault(e, []):
                if (p.req, p.kind) == (req, kind):
                    return p
            self.seen[e] += e.phases(timeout=0.05)
        self.fail(f"no phase {kind} of {req} among {self.seen[e]}")

    def test_strangers_stay_out(self):
        for wrong in (Group(self.group.agent, self.group.inc), Group(self.group.agent, self.group.inc, b""), Group(self.group.agent, self.group.inc, b"x" * 32)):
            with self.assertRaises(ClosedError) as raised:
                Engine(SOCKET, group=wrong)
            self.assertEqual(raised.exception.code, Code.AUTH)
        self.a.ping()
        self.b.ping()

    def test_namespaces_and_leases_are_common(self):
        self.assertEqual(self.b.open(self.m), self.space)
        keys, kv = self.stored(3)
        lease = self.a.acquire(self.space, keys, ttl=10)
        lease._blocks = self.b  # the lease by the other session
        lease.renew(ttl=20)
        lease._blocks = self.a
        lease.release()
        self.a.ping()  # it has been given back, whoever asks next
        with self.assertRaises(RequestError) as raised:
            lease._blocks = self.b
            lease.renew()
        self.assertEqual(raised.exception.code, Code.LEASE_LOST)
        with self.b.acquire(self.space, keys) as lease:
            self.assertTrue((lease.body(2) == kv[2]).all())

    def test_advice_comes_to_all_with_positions(self):
        req = self.a.begin([5] * 20, model="thinker")
        self.b.tokens([req], [5], STEP)
        for e in (self.a, self.b):
            self.assertEqual(self.phase(e, req, ENTER_THINK).pos, 21)
            self.assertEqual(self.phase(e, req, EXIT_THINK).pos, 24)
        self.b.finish(req)
        for e in (self.a, self.b):
            self.assertEqual(self.phase(e, req, COMPLETED).pos, 25)

    def test_the_daemon_decides_tiers_by_position(self):
        req = self.a.begin([5] * 32, model="thinker")
        self.a.tokens([req], [17], [1] + [7] * 16)
        self.a.ping()
        keys = self.keys(3)  # of the prompt, of thinking, of both
        self.assertTrue(self.b.put(self.space, keys, bodies(3), req=req, pos=[0, 33, 20], tier=AUTO).kept)
        self.assertTrue(self.b.put(self.space, keys[:1], bodies(1), req=req, pos=np.int64(0), tier=AUTO).kept)
        self.assertEqual(self.a.has(self.space, keys)["tier"].tolist(), [2, 1, 2])
        self.a.finish(req)
        self.assertEqual(self.a.has(self.space, keys)["tier"].tolist(), [0, 0, 0])

    def test_a_request_goes_on_after_resume(self):
        req = self.a.resume([5] * 20, STEP[:3], model="thinker")
        self.assertEqual(self.phase(self.b, req, ENTER_THINK).pos, 21)
        self.a.tokens([req], [2], STEP[3:])
        self.assertEqual(self.phase(self.b, req, EXIT_THINK).pos, 24)
        self.a.finish(req)

    def test_room_is_reserved_and_filled(self):
        keys, _ = self.stored(1)
        mine = np.concatenate((keys, self.keys(3)))
        with self.a.reserve(self.space, mine, BLOCK) as r:
            self.assertEqual(r.statuses.tolist(), [Code.EXISTS, 0, 0, 0])
            staged = self.a.stage(2, BLOCK)
            staged.data[:] = bodies(2)
            want = staged.data.copy()
            self.assertEqual(r.fill(r.wanted[:2], staged).statuses.tolist(), [0, 0])
            again = self.a.stage(1, BLOCK)
            self.assertEqual(r.fill([1], again).statuses.tolist(), [Code.INVALID])
        late = self.a.stage(1, BLOCK)
        r.number = 12345
        self.assertEqual(r.fill([3], late).statuses.tolist(), [Code.LEASE_LOST])
        with self.b.acquire(self.space, mine) as lease:
            self.assertEqual(lease.status.tolist(), [0, 0, 0, Code.ABSENT])
            self.assertTrue((lease.body(1) == want[0]).all() and (lease.body(2) == want[1]).all())

    def test_fill_takes_arrays_as_put_does(self):
        keys, kv = self.keys(3), bodies(3)
        with self.a.reserve(self.space, keys, BLOCK) as r:
            with self.assertRaisesRegex(ValueError, "3 items for 2 bodies"):
                r.fill(r.wanted, kv[:2])
            self.assertEqual(r.fill(r.wanted[:2], kv[:2]).statuses.tolist(), [0, 0])
            self.assertEqual(r.fill([2], [kv[2].tobytes()], last=True).statuses.tolist(), [0])
            self.assertEqual(r.number, 0)
        with self.b.acquire(self.space, keys) as lease:
            out = np.empty_like(kv)
            self.assertEqual(lease.copy_into(out).tolist(), [0, 0, 0])
            self.assertTrue((out == kv).all())
        with self.a.reserve(self.space, keys, BLOCK) as known:
            self.assertEqual(known.statuses.tolist(), [Code.EXISTS] * 3)
            self.assertTrue(known.fill(known.wanted, kv[known.wanted], last=True).kept)

    def test_a_load_waits_until_a_block_is_put(self):
        keys, kv = self.stored(2)
        later, late = self.keys(2), bodies(2)
        load = self.b.start_load(self.space, np.concatenate((keys, later)), wait=True)
        parts = load.parts()
        one = next(parts)
        self.assertEqual((one.first, one.status.tolist()), (0, [0, 0]))
        self.assertFalse(load.done)
        self.assertTrue(self.a.put(self.space, later, late).kept)
        rest = list(parts)
        got = np.concatenate([p.status for p in rest])
        self.assertEqual(got.tolist(), [0, 0])
        out = np.zeros((2, BLOCK), np.uint8)
        for p in rest:
            self.assertEqual(p.copy_into(out[p.first - 2:p.first - 2 + len(p)]).tolist(), [0] * len(p))
            p.release()
        self.assertTrue((out == late).all())
        one.release()

    def test_a_load_that_waits_in_vain_is_absent_at_its_deadline(self):
        parts = self.a.start_load(self.space, self.keys(1), wait=True, timeout=0.05).wait()
        self.assertEqual(np.concatenate([p.status for p in parts]).tolist(), [Code.ABSENT])

    def test_a_holder_that_is_none_is_named_in_the_text(self):
        load = self.a.start_load(self.space, self.keys(1), holders=[(os.urandom(16), 1)], holder=1)
        self.assertEqual(load.wait()[0].status.tolist(), [Code.ABSENT])
        self.assertTrue(load.why)

    def test_threads_wait_for_loads_and_puts(self):
        wrong = []

        def run(e):
            keys, kv = self.keys(4), bodies(4)
            load = e.start_load(self.space, keys, wait=True)
            if not self.a.put(self.space, keys, kv).kept:
                wrong.append("put")
            for part in load.parts():
                if not part.granted or not (part.body(0) == kv[part.first]).all():
                    wrong.append(part.first)
                part.release()

        threads = [threading.Thread(target=run, args=(e,)) for e in (self.a, self.b, self.a, self.b)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_hand_off_keeps_blocks_and_is_idempotent(self):
        req = self.a.begin([5], model="thinker")
        self.assertTrue(self.b.put(self.space, self.keys(2), bodies(2), req=req).kept)
        self.assertIn("2", self.a.handoff(req, keep=0.05))
        self.a.handoff(req, keep=0.05)
        with self.assertRaises(RequestError) as raised:
            self.a.handoff(req, keep=0)
        self.assertEqual(raised.exception.code, Code.INVALID)

    def test_pinned_blocks_are_put(self):
        self.assertTrue(self.a.put(self.space, self.keys(1), bodies(1), pin=0.05).kept)

    def test_a_process_shows_itself_by_its_pidfd(self):
        self.a.process()
        with open("/dev/null", encoding="ascii") as f, self.assertRaises(RequestError) as raised:
            self.a.process(f.fileno())
        self.assertEqual(raised.exception.code, Code.INVALID)

    def test_blocks_of_a_running_request_that_are_evicted_are_told(self):
        req = self.a.begin([5], model="thinker")
        kept, sent = [], 0
        for _ in range(200):  # the arena of the test holds some 2,000 of them
            keys = self.keys(64)
            kept.append(keys)
            sent += int((self.b.put(self.space, keys, bodies(64), req=req).statuses == 0).sum())
            gone = self.a.evicted()
            if len(gone):
                break
        else:
            self.fail(f"none of {sent} blocks was evicted")
        self.assertEqual(set(gone["req"]), {req})
        mine = {k.tobytes() for keys in kept for k in keys}
        self.assertLessEqual({k.tobytes() for k in gone["key"]}, mine)
        self.assertEqual(set(self.a.has(self.space, gone["key"])["status"]), {Code.ABSENT})
        self.a.finish(req, abort=True)

    def test_ten_thousand_loads_wait_and_one_more_is_refused(self):
        keys = self.keys(10_000)
        loads = [self.a.start_load(self.space, keys[i:i + 1], wait=True, timeout=300) for i in range(len(keys))]
        with self.assertRaises(RequestError) as raised:
            self.a.start_load(self.space, self.keys(1), wait=True).wait()
        self.assertEqual(raised.exception.code, Code.BUSY)
        self.assertIn("10000", raised.exception.text)
        self.assertTrue(self.b.put(self.space, keys[:64], bodies(64)).kept)
        for load in loads[:64]:
            part, = load.wait(60)
            self.assertTrue(part.granted)
            part.release(later=True)
        for load in loads[64:]:
            load.cancel()
        self.a.ping(60)
        for load in loads[64:]:
            with self.assertRaises(RequestError) as raised:
                load.wait(60)
            self.assertEqual(raised.exception.code, Code.CANCELLED)
        self.assertEqual(self.a._calls, {})
