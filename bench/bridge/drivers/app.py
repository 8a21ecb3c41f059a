"""What the applications of a run have in common.

An application is one process with memory of its own: the source of the blocks of a
bridge, or their sink. It takes one JSON object a line on standard input and answers
each by one on standard output; what its library prints goes to standard error. An answer
with "error" is a failure. A daemon is named by its agent.name.

    load      the payloads of a run, from a file: to bring, or to compare with
    prepare   which of them are brought next, and where
    bring     brings them; answers when the daemon has told of each that it has it
    lend      memory for blocks of the daemon, wiped before
    expect    which blocks are to come next
    collect   answers when the daemon has told of each of them that it lies here
    check     compares what came with the payloads, byte by byte
"""
import ctypes
import json
import mmap
import os
import sys
import time

PATIENCE = 60  # seconds without any progress
PAUSE = 100e-6  # between two looks of a source
REST = 1e-3  # of a sink: looks take processor time from what it waits for

_compare = ctypes.CDLL(None).memcmp
_compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Region:
    """Page-aligned memory that does not move."""

    def __init__(self, size):
        self.size = size
        self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.addr = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))


class Patience:
    """Ends a wait in which nothing has happened for too long."""

    def __init__(self, what):
        self.what, self.since, self.last = what, time.monotonic(), None

    def wait(self, left, pause=PAUSE):
        now = time.monotonic()
        if left != self.last:
            self.last, self.since = left, now
        elif now - self.since > PATIENCE:
            raise TimeoutError("%s: %d are missing, and nothing has come for %d s" % (self.what, left, PATIENCE))
        time.sleep(pause)


class Application:
    """self.region is its memory."""

    def load(self, m):
        """The payloads lie in the file, and in the memory of a source, one after the
        other, stride bytes apart."""
        self.n, self.stride, self.count = m["n"], m["stride"], m["count"]
        with open(m["path"], "rb") as f:
            if m["bring"]:
                into = memoryview(self.region.memory)[: self.count * self.stride]
                if f.readinto(into) != len(into):
                    raise ValueError("the file is too short")
            else:
                self.sent = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE)
                self.sent_at = ctypes.addressof(ctypes.c_char.from_buffer(self.sent))
        return {}

    def expect(self, m):
        """Block i of the list is payload i."""
        self.expected = {("%s %s" % (m["ns"], key)): i for i, key in enumerate(m["keys"])}
        self.stored = {}
        return {}

    def hear_stored(self, words):
        """Takes the words of one line: mrdn stored NAMESPACE KEY ADDRESS LENGTH."""
        block = words[2] + " " + words[3]
        if block not in self.expected:
            raise ValueError("a block that was not sent: " + block)
        self.stored[block] = (int(words[4]), int(words[5]))

    def check(self, _):
        """Compares the header of each block, and its body, with those that were sent."""
        for block, i in self.expected.items():
            addr, n = self.stored[block]
            if n != self.n:
                raise ValueError("%d bytes of block %d, want %d" % (n, i, self.n))
            if addr < self.region.addr or addr + n > self.region.addr + self.region.size:
                raise ValueError("block %d lies at %d, which is not lent" % (i, addr))
            want = self.sent_at + i * self.stride
            if _compare(addr, want, 32) != 0:
                raise ValueError("block %d has another header" % i)
            if _compare(addr + 32, want + 32, n - 32) != 0:
                raise ValueError("block %d has another body" % i)
        return {"count": len(self.expected)}


def serve(start):
    """start makes the application from the command line; it answers version and
    where it is found."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not look like an answer

    def answer(m):
        out.write(json.dumps(m, separators=(",", ":")) + "\n")
        out.flush()

    try:
        me, first = start(*sys.argv[1:])
    except Exception as e:  # the harness tells it
        answer({"error": "%s: %s" % (type(e).__name__, e)})
        return
    answer(first)
    for line in sys.stdin:
        m = json.loads(line)
        try:
            answer(getattr(me, m["do"])(m))
        except Exception as e:
            answer({"error": "%s: %s" % (type(e).__name__, e)})
    os._exit(0)  # a library's destructor may wait for its peers
