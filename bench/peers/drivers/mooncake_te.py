"""Mooncake's transfer engine over TCP, without a metadata server. Its pool of
connections is on, with the four lanes that are its default."""
import threading
import time
from importlib.metadata import version

import driver
from mooncake.engine import TransferEngine

HOST = "127.0.0.1"


def engine(region):
    e = TransferEngine()
    if e.initialize(HOST, "P2PHANDSHAKE", "tcp", "") != 0:
        raise RuntimeError("the engine did not initialize")
    if e.register_memory(region.addr, region.size) != 0:
        raise RuntimeError("%d bytes could not be registered" % region.size)
    return e


class Target(driver.Target):
    def __init__(self, size):
        super().__init__(size)
        self.engine = engine(self.region)

    def info(self):
        return {"name": "%s:%d" % (HOST, self.engine.get_rpc_port())}


class Initiator(driver.Initiator):
    def __init__(self, size):
        super().__init__(size)
        self.engine = engine(self.region)

    def connect(self, peer):
        self.name, self.remote = peer["name"], peer["addr"]

    def begin(self):
        c = self.cell
        self.move = self.engine.batch_transfer_sync_read if c.op == "read" else self.engine.batch_transfer_sync_write
        self.sizes = [c.size] * c.batch
        self.here = [[self.region.addr + c.local(w, j) for j in range(c.batch)] for w in range(c.streams)]
        # Addresses are made up front: the loop has no arithmetic of ours in it.
        self.there = [[[self.remote + b * c.size for b in c.items(k)] for k in c.share(w)] for w in range(c.streams)]
        self.next = [0] * c.streams

    def once(self, w):
        if self.move(self.name, self.here[w], self.there[w][0], self.sizes) != 0:
            raise RuntimeError("a batch failed")

    def measure(self, seconds):
        took, failed = [], []
        began = time.perf_counter_ns()
        end = began + int(seconds * 1e9)

        def stream(w):
            there, here, mine, i = self.there[w], self.here[w], [], self.next[w]
            t = time.perf_counter_ns()
            while True:  # once at least, however late a busy machine lets it begin
                if self.move(self.name, here, there[i % len(there)], self.sizes) != 0:
                    failed.append(w)
                    break
                i += 1
                now = time.perf_counter_ns()
                mine.append(now - t)
                t = now
                if t >= end:
                    break
            self.next[w] = i
            took.extend(mine)

        if self.cell.streams == 1:
            stream(0)
        else:
            threads = [threading.Thread(target=stream, args=(w,)) for w in range(self.cell.streams)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        ns = time.perf_counter_ns() - began
        if failed:
            raise RuntimeError("a batch of stream %d failed" % failed[0])
        return took, ns


def start(role, size):
    made = Target(size) if role == "target" else Initiator(size)
    return made, "mooncake-transfer-engine-non-cuda " + version("mooncake-transfer-engine-non-cuda")


if __name__ == "__main__":
    driver.serve(start)
