"""An application with a transfer engine of Mooncake, over TCP and without a metadata
server. docs/mooncake.md has the notifies. A notify follows a batch and names its blocks;
while the daemon takes those of one, the next batch is written by another thread."""
import threading
from importlib.metadata import version

import app
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

HOST = "127.0.0.1"
THREADS = 2  # each with a part of the window
LINES = 64  # of a notify: docs/mooncake.md has the limit
BATCH_BYTES = 8 << 20  # of a transfer


class Application(app.Application):
    def __init__(self, size):
        self.engine = TransferEngine()
        if self.engine.initialize(HOST, "P2PHANDSHAKE", "tcp", "") != 0:
            raise RuntimeError("the engine did not initialize")
        self.region = app.Region(size)
        if self.engine.register_memory(self.region.addr, size) != 0:
            raise RuntimeError("%d bytes could not be registered" % size)
        self.name = "%s:%d" % (HOST, self.engine.get_rpc_port())

    def prepare(self, m):
        self.peer, self.keys = m["segment"], m["keys"]
        window = self.engine.get_first_buffer_address(self.peer)
        batch = max(1, min(LINES, BATCH_BYTES // self.stride))
        here = [self.region.addr + i * self.stride for i in range(len(self.keys))]
        there = [[window + (w * batch + j) * self.stride for j in range(batch)] for w in range(THREADS)]
        self.batches = [[] for _ in range(THREADS)]
        for k, at in enumerate(range(0, len(self.keys), batch)):
            w = k % THREADS
            keys = self.keys[at : at + batch]
            lines = ["mrdn put %s %s %d %d" % (m["ns"], key, there[w][j], self.n) for j, key in enumerate(keys)]
            n = len(keys)
            self.batches[w].append((here[at : at + n], there[w][:n], [self.n] * n, TransferNotify(self.name, "\n".join(lines))))
        return {}

    def bring(self, _):
        failed = []

        def thread(w):
            for here, there, sizes, notify in self.batches[w]:
                if self.engine.batch_transfer_sync(self.peer, here, there, sizes, TransferOpcode.Write, notify) != 0:
                    failed.append(w)
                    return

        threads = [threading.Thread(target=thread, args=(w,)) for w in range(THREADS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if failed:
            raise RuntimeError("a transfer of thread %d failed" % failed[0])
        left = set(self.keys)
        patience = app.Patience("blocks that the daemon has not taken")
        while left:
            for n in self.engine.get_notifies():
                for line in n.msg.split("\n"):
                    words = line.split(" ")
                    if words[1] != "put-done":
                        raise RuntimeError("the daemon says " + line)
                    left.discard(words[3])
            if left:
                patience.wait(len(left))
        return {}


def start(size):
    made = Application(int(size))
    return made, {"name": made.name, "version": "mooncake-transfer-engine-non-cuda " + version("mooncake-transfer-engine-non-cuda")}


if __name__ == "__main__":
    app.serve(start)
