"""An application with a transfer engine of Mooncake, over TCP and without a metadata
server. docs/mooncake.md has the notifies. A notify follows a transfer and names one
block, so each block is a transfer of its own, by several threads."""
import threading
from importlib.metadata import version

import app
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

HOST = "127.0.0.1"
THREADS = 4


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
        self.there = [window + w * self.stride for w in range(THREADS)]
        self.notifies = [
            TransferNotify(self.name, "mrdn put %s %s %d %d" % (m["ns"], key, self.there[i % THREADS], self.n)) for i, key in enumerate(self.keys)
        ]
        return {}

    def bring(self, _):
        failed = []

        def thread(w):
            for i in range(w, len(self.keys), THREADS):
                if self.engine.transfer_sync(self.peer, self.region.addr + i * self.stride, self.there[w], self.n, TransferOpcode.Write, self.notifies[i]) != 0:
                    failed.append(i)
                    return

        threads = [threading.Thread(target=thread, args=(w,)) for w in range(THREADS)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if failed:
            raise RuntimeError("the transfer of block %d failed" % failed[0])
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
