"""A Mooncake transfer engine that takes orders: a JSON object a line in, one a line
out. argv: its name, the metadata server, the bytes that it registers."""
import ctypes
import hashlib
import json
import mmap
import os
import random
import sys

from mooncake.engine import TransferEngine

say = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the engine's own words go to the log

name, meta, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
engine = TransferEngine()
memory = mmap.mmap(-1, size)
addr = ctypes.addressof(ctypes.c_char.from_buffer(memory))
random.seed(name)
memory[:] = random.randbytes(size)


def answer(**what):
    print(json.dumps(what), file=say, flush=True)


if engine.initialize(name, meta, "tcp", "") != 0:
    answer(error="the engine did not initialize")
    sys.exit(1)
if engine.register_memory(addr, size) != 0:
    answer(error="the memory could not be registered")
    sys.exit(1)
answer(addr=addr, port=engine.get_rpc_port())
for line in sys.stdin:
    o = json.loads(line)
    do, at, n = o["do"], o.get("offset", 0), o.get("length", size)
    if do == "read":
        answer(rc=engine.transfer_sync_read(o["peer"], addr + at, o["addr"], n))
    elif do == "write":
        answer(rc=engine.transfer_sync_write(o["peer"], addr + at, o["addr"], n))
    elif do == "sum":
        answer(sum=hashlib.sha256(memory[at:at + n]).hexdigest())
    else:
        answer(rc=engine.unregister_memory(addr))
        break
