"""The smallest system: the initiator reads and writes the target's memory by
/proc. With "wrong" in the environment every block lands a word too late."""
import ctypes
import os
import time

import driver

SHIFT = 8 if os.environ.get("TINY") == "wrong" else 0


class Target(driver.Target):
    def __init__(self, size):
        super().__init__(size)
        # PR_SET_PTRACER, PR_SET_PTRACER_ANY: where Yama is on, only a parent may.
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1 & (2**64 - 1)), 0, 0, 0)

    def info(self):
        return {"pid": os.getpid()}


class Initiator(driver.Initiator):
    def connect(self, peer):
        self.file = open("/proc/%d/mem" % peer["pid"], "r+b", buffering=0)
        self.remote = peer["addr"]

    def begin(self):
        print("a library that talks")  # must not reach the harness

    def batch(self, w, k):
        c = self.cell
        for j, block in enumerate(c.items(k)):
            here = memoryview(self.region.memory)[c.local(w, j) :][: c.size]
            at = self.remote + block * c.size + SHIFT
            if c.op == "read":
                os.preadv(self.file.fileno(), [here], at)
            else:
                os.pwritev(self.file.fileno(), [here], at)

    def once(self, w):
        self.batch(w, self.cell.share(w)[0])

    def measure(self, seconds):
        took, began = [], time.perf_counter_ns()
        while time.perf_counter_ns() < began + seconds * 1e9:
            t = time.perf_counter_ns()
            self.batch(0, self.cell.share(0)[len(took) % len(self.cell.share(0))])
            took.append(time.perf_counter_ns() - t)
        return took, time.perf_counter_ns() - began


if __name__ == "__main__":
    driver.serve(lambda role, size: ((Target if role == "target" else Initiator)(size), "tiny 1"))
