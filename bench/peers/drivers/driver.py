"""What the drivers of foreign systems have in common.

A driver is two processes: a target, whose memory is read and written, and an
initiator that reads and writes it. Each takes one JSON object a line on
standard input and answers each by one on standard output; what the library
under test prints goes to standard error. An answer with "error" is a failure.

    target     prepare  a cell; answers what its initiator needs to find it
               wipe     the bytes of the cell's set become zero
               verify   ranges against the content that the initiator sends
    initiator  prepare  a cell, with the target's answer under "peer"
               check    one batch a stream: for a read compares every byte,
                        for a write answers which ranges the target should verify
               run      batches for some time; answers bytes, seconds and how
                        long each batch took

Content: the 64-bit word g of a region is seed << 56 | g, little-endian, so that
a byte of another place, another region or an older cell is never right.
"""
import array
import ctypes
import json
import math
import mmap
import os
import sys

SEED_REMOTE = 1  # what a target holds
SEED_LOCAL = 2  # what an initiator writes

WORD = 8
CHUNK = 1 << 20  # bytes that content is made and compared in


def content(seed, at, n):
    """The n bytes from offset at of a region; both are multiples of WORD."""
    first = (seed << 56) + at // WORD
    return array.array("Q", range(first, first + n // WORD)).tobytes()


class Region:
    """Page-aligned memory that does not move."""

    def __init__(self, size):
        self.size = size
        self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.addr = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def fill(self, seed):
        for at in range(0, self.size, CHUNK):
            n = min(CHUNK, self.size - at)
            self.memory[at : at + n] = content(seed, at, n)

    def wipe(self, n):
        ctypes.memset(self.addr, 0, n)

    def expect(self, at, n, seed, begin):
        """Raises unless n bytes at offset at are the content from offset begin."""
        for i in range(0, n, CHUNK):
            m = min(CHUNK, n - i)
            if self.memory[at + i : at + i + m] != content(seed, begin + i, m):
                raise ValueError("wrong content in the %d bytes at offset %d" % (m, at + i))


class Cell:
    """One cell of the matrix, and the order in which it uses its blocks: the
    same for every system, scattered, so that no two neighbours of a batch can
    be moved as one. Each stream goes round its own share of the batches."""

    def __init__(self, m):
        self.op = m["op"]
        self.size, self.batch, self.streams, self.set = m["size"], m["batch"], m["streams"], m["set"]
        self.blocks = self.set // self.size
        self.batches = self.blocks // self.batch
        step = int(self.blocks * 0.618) | 1
        while math.gcd(step, self.blocks) != 1:
            step += 2
        self.step = step

    def share(self, stream):
        """The numbers of the stream's batches."""
        return range(stream * self.batches // self.streams, (stream + 1) * self.batches // self.streams)

    def items(self, k):
        """The blocks of batch k."""
        return [(k * self.batch + j) * self.step % self.blocks for j in range(self.batch)]

    def local(self, stream, j):
        """Offset of the stream's buffer for item j."""
        return (stream * self.batch + j) * self.size


class Target:
    """The target of a system whose initiator names remote addresses. info()
    of the subclass tells how to reach it."""

    def __init__(self, size):
        self.region = Region(size)
        self.cell = None
        self.dirty = True

    def prepare(self, m):
        self.cell = Cell(m)
        if self.cell.op == "write":
            self.dirty = True
        elif self.dirty:
            self.region.fill(SEED_REMOTE)
            self.dirty = False
        return {"peer": dict(self.info(), addr=self.region.addr)}

    def wipe(self, _):
        self.region.wipe(self.cell.set)
        return {}

    def verify(self, m):
        total = 0
        for r in m["wrote"]:
            self.region.expect(r["block"] * self.cell.size, self.cell.size, SEED_LOCAL, r["from"])
            total += self.cell.size
        return {"bytes": total}


class Initiator:
    """The initiator of such a system. The subclass has connect(peer) and
    begin(), which readies a cell, once(stream), which moves the first batch
    of a stream, and measure(seconds)."""

    def __init__(self, size):
        self.region = Region(size)
        self.region.fill(SEED_LOCAL)
        self.wiped = False
        self.cell = None
        self.peer = None

    def prepare(self, m):
        self.cell = Cell(m)
        if m["peer"] != self.peer:
            self.connect(m["peer"])
            self.peer = m["peer"]
        if self.cell.op == "write" and self.wiped:
            self.region.fill(SEED_LOCAL)
        self.wiped = self.cell.op == "read"
        self.begin()
        return {}

    def check(self, _):
        c = self.cell
        if c.op == "read":
            self.region.wipe(c.streams * c.batch * c.size)
        wrote, total = [], 0
        for w in range(c.streams):
            self.once(w)
            for j, block in enumerate(c.items(c.share(w)[0])):
                total += c.size
                if c.op == "read":
                    self.region.expect(c.local(w, j), c.size, SEED_REMOTE, block * c.size)
                else:
                    wrote.append({"block": block, "from": c.local(w, j)})
        return {"bytes": total, "wrote": wrote}

    def run(self, m):
        took, ns = self.measure(m["ms"] / 1e3)
        return {"bytes": len(took) * self.cell.batch * self.cell.size, "seconds": ns / 1e9, "took": took}


def serve(start):
    """Plays the role of the command line (target or initiator, bytes): start
    makes it and tells the versions of what is measured."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not look like an answer

    def answer(m):
        out.write(json.dumps(m, separators=(",", ":")) + "\n")
        out.flush()

    role, size = sys.argv[1], int(sys.argv[2])
    try:
        me, version = start(role, size)
    except Exception as e:  # the harness tells it
        answer({"error": "%s: %s" % (type(e).__name__, e)})
        return
    answer({"version": version})
    for line in sys.stdin:
        m = json.loads(line)
        try:
            answer(getattr(me, m["do"])(m))
        except Exception as e:
            answer({"error": "%s: %s" % (type(e).__name__, e)})
