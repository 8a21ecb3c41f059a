"""What tests with a real daemon share. MERIDIAN_ENGINE is its socket; the daemon has tenant acme among its own."""
import os
import unittest

import numpy as np

from meridian import Engine, Manifest

SOCKET = os.environ.get("MERIDIAN_ENGINE", "")
BLOCK = 8192


def manifest(**more):
    return Manifest(**{"tenant": "acme", "model": "python", "role": "kv", "dtype": "bf16", "block_tokens": 16, "block_bytes": BLOCK,
                       "tp_size": 1, "pp_size": 1, "dcp_size": 1, **more})


def hashes(n):
    return np.frombuffer(os.urandom(32 * n), np.uint8).reshape(n, 32)


def bodies(n, size=BLOCK):
    return np.frombuffer(os.urandom(size * n), np.uint8).reshape(n, size)


class Case(unittest.TestCase):
    """A test with an engine that has a namespace open."""

    def setUp(self):
        self.e = self.engine()
        self.m = manifest()
        self.space = self.e.open(self.m)

    def engine(self, **more):
        e = Engine(SOCKET, **more)
        self.addCleanup(e.close)
        return e

    def keys(self, n):
        return self.m.keys(hashes(n))

    def stored(self, n, size=BLOCK, **more):
        """n new blocks at the daemon: keys and bodies."""
        keys, kv = self.keys(n), bodies(n, size)
        got = self.e.put(self.space, keys, kv, **more)
        self.assertEqual(got.statuses.tolist(), [0] * n, got.why)
        return keys, kv
