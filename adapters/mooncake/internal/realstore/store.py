"""Mooncake's own Store client, told what to do by JSON lines. Bodies go by files, or
are made on both sides from a key: its bytes and a colon, repeated."""
import json
import os
import sys

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the library prints is no answer

from mooncake.store import MooncakeDistributedStore  # noqa: E402


def body(key, size):
    unit = (key + ":").encode()
    return (unit * (size // len(unit) + 1))[:size]


class Client:
    def setup(self, master, segment=0):
        self.store = MooncakeDistributedStore()
        return self.store.setup("127.0.0.1", "P2PHANDSHAKE", segment, 64 << 20, "tcp", "", master)

    def put(self, key, file):
        with open(file, "rb") as f:
            return self.store.put(key, f.read())

    def get(self, key, file):
        b = self.store.get(key)
        with open(file, "wb") as f:
            f.write(b)
        return len(b)

    def exist(self, key):
        return self.store.is_exist(key)

    def size(self, key):
        return self.store.get_size(key)

    def remove(self, key):
        return self.store.remove(key)

    def put_many(self, prefix, first, last, size):
        """The count of puts that succeeded."""
        return sum(self.store.put("%s%d" % (prefix, i), body("%s%d" % (prefix, i), size)) == 0 for i in range(first, last))

    def get_many(self, prefix, first, last, size):
        """Counts: right, missing, wrong."""
        counts = [0, 0, 0]
        for i in range(first, last):
            key = "%s%d" % (prefix, i)
            b = self.store.get(key)
            counts[1 if b == b"" else 0 if b == body(key, size) else 2] += 1
        return counts

    def mrdn(self, key):
        """What a reader made from docs/spec/mrdn-v1.md sees in an object."""
        import mrdn
        try:
            tier, body = mrdn.payload(self.store.get(key))
        except ValueError as e:
            return {"right": False, "why": str(e), "tier": 0, "body": ""}
        return {"right": True, "tier": tier, "body": body.hex()}


client = Client()
for line in sys.stdin:
    order = json.loads(line)
    do = order.pop("do")
    try:
        answer = {"result": getattr(client, do)(**order)}
    except Exception as e:
        answer = {"error": repr(e)}
    print(json.dumps(answer), file=answers, flush=True)
