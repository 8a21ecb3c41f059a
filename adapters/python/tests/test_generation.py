"""Generation requests at a real daemon: the model table `thinker` has think tokens 1 and 2, end of sequence 3."""
import numpy as np

from meridian import COMPLETED, ENTER_THINK, EXIT_THINK, Code, RequestError

from .real import Case


class Generation(Case):
    def phases_until(self, kind):
        seen = []
        for _ in range(200):  # of 50 ms each at most
            seen += self.e.phases(timeout=0.05)
            if any(p.kind == kind for p in seen):
                return seen
        self.fail(f"no phase {kind} among {seen}")

    def test_a_request_thinks_answers_and_ends(self):
        req = self.e.begin([9, 9], model="thinker", id="a request")
        self.assertTrue(self.e.tokens([req], [3], [1, 7, 7]))
        self.assertTrue(self.e.tokens([req], [2], [2, 8]))
        seen = self.phases_until(EXIT_THINK)
        self.assertEqual([(p.req, p.kind) for p in seen], [(req, ENTER_THINK), (req, EXIT_THINK)])
        self.e.finish(req)
        self.assertEqual(self.phases_until(COMPLETED)[-1].req, req)
        self.e.finish(req)
        self.e.finish(77, abort=True)

    def test_blocks_follow_their_request(self):
        req = self.e.begin([9], model="thinker")
        keys, _ = self.stored(3, req=req, tier=2)
        self.assertEqual(self.e.has(self.space, keys)["tier"].tolist(), [2] * 3)
        self.e.finish(req)
        self.assertEqual(self.e.has(self.space, keys)["tier"].tolist(), [0] * 3)

    def test_a_number_in_use_is_refused(self):
        req = self.e.begin([9], model="thinker")
        with self.assertRaises(RequestError) as raised:
            self.e.begin([9], model="thinker", req=req)
        self.assertEqual(raised.exception.code, Code.INVALID)

    def test_columns_that_do_not_fit_are_not_sent(self):
        for req, n, tok in (([1], [2], [5]), ([1, 2], [1], [5]), (np.zeros(5000, int), np.zeros(5000, int), [])):
            with self.assertRaises(ValueError):
                self.e.tokens(req, n, tok)
        self.e.ping()

    def test_tokens_never_wait(self):
        req = np.arange(1, 257, dtype=np.uint32)
        for _ in range(2000):  # nobody reads, and unknown requests are ignored
            self.e.tokens(req, np.ones(256, np.uint8), np.zeros(256, np.int32))
        self.e.ping()
        self.assertEqual(self.e._sock.unsent, 0)
