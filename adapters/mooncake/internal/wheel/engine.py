"""A real transfer engine that does what a test says: one JSON object a line on
standard input, one answer a line on standard output."""
import ctypes
import hashlib
import json
import mmap
import os
import sys

from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the library prints must not look like an answer

engine = TransferEngine()
memory = None
addr = 0


def open_(m):
    global memory, addr
    if engine.initialize(m["host"], m.get("meta", "P2PHANDSHAKE"), "tcp", "") != 0:
        raise RuntimeError("the engine did not initialize")
    memory = mmap.mmap(-1, m["bytes"], flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    addr = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if engine.register_memory(addr, m["bytes"]) != 0:
        raise RuntimeError("the memory could not be registered")
    return {"addr": addr, "port": engine.get_rpc_port()}


def put(m):
    b = bytes.fromhex(m["hex"])
    memory[m["at"] : m["at"] + len(b)] = b
    return {}


def make(m):
    """Makes a payload by the writer in a folder; the answer is its header."""
    if m["writer"] not in sys.path:
        sys.path.insert(0, m["writer"])
    import mrdn

    body = bytes.fromhex(m["hex"])
    head = mrdn.header(body, m["tier"])
    memory[m["at"] : m["at"] + len(head) + len(body)] = head + body
    return {"hex": head.hex()}


def get(m):
    return {"hex": memory[m["at"] : m["at"] + m["n"]].hex()}


def fill(m):
    """Bytes that Go's Content makes too."""
    at, n, seed = m["at"], m["n"], m["seed"]
    block = b"".join(hashlib.sha256(b"%d-%d" % (seed, i)).digest() for i in range(min(n, 65536) // 32 + 1))
    for i in range(0, n, 65536):
        k = min(65536, n - i)
        memory[at + i : at + i + k] = block[:k]
    return {}


def shuffle(m):
    """Bytes that no other place has, and that only their digest tells."""
    at, n = m["at"], m["n"]
    for i in range(0, n, 1 << 20):
        k = min(1 << 20, n - i)
        memory[at + i : at + i + k] = os.urandom(k)
    return {}


def digest(m):
    return {"hex": hashlib.sha256(memory[m["at"] : m["at"] + m["n"]]).hexdigest()}


def move(m):
    here = [addr + at for at in m["here"]]
    op = TransferOpcode.Write if m["write"] else TransferOpcode.Read
    if "notify" in m:
        n = TransferNotify(m["sender"], m["notify"])
        return {"rc": engine.batch_transfer_sync(m["peer"], here, m["there"], m["sizes"], op, n)}
    if len(here) == 1:
        one = engine.transfer_sync_write if m["write"] else engine.transfer_sync_read
        return {"rc": one(m["peer"], here[0], m["there"][0], m["sizes"][0])}
    many = engine.batch_transfer_sync_write if m["write"] else engine.batch_transfer_sync_read
    return {"rc": many(m["peer"], here, m["there"], m["sizes"])}


def first(m):
    return {"addr": engine.get_first_buffer_address(m["peer"])}


def probe(m):
    return {"rc": engine.send_probe(m["peer"])}


def notifies(_):
    return {"notifies": [[n.name, n.msg] for n in engine.get_notifies()]}


def end(_):
    """The engine's destructor takes back what it published."""
    engine.unregister_memory(addr)
    sys.exit(0)


does = {"end": end, "open": open_, "put": put, "make": make, "get": get, "fill": fill, "shuffle": shuffle, "digest": digest, "move": move, "first": first, "probe": probe, "notifies": notifies}
for line in sys.stdin:
    m = json.loads(line)
    try:
        answer = does[m["do"]](m)
    except Exception as e:  # the test tells it
        answer = {"error": "%s: %s" % (type(e).__name__, e)}
    out.write(json.dumps(answer) + "\n")
    out.flush()
os._exit(0)  # its destructor may wait for its peers
