"""An agent of NIXL's released wheel that does what it is told: a JSON object a line."""
import json
import mmap
import os
import sys
import time

out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the library logs to the standard output

import numpy
from nixl._api import nixl_agent, nixl_agent_config, nixlBind

PROGRESS_DELAY = 1000  # microseconds; the Python API sets 0, with which a thread takes a core
PATIENCE = 60  # seconds for a transfer


class Agent:
    def open(self, name, bytes, listen=False):
        made = nixlBind.nixlAgent

        def patient(name, config):
            config.pthrDelay = PROGRESS_DELAY
            return made(name, config)

        nixlBind.nixlAgent = patient
        self.agent = nixl_agent(name, nixl_agent_config(enable_prog_thread=True, enable_listen_thread=listen, listen_port=0, backends=["UCX"]))
        self.memory = mmap.mmap(-1, bytes)
        self.addr = numpy.frombuffer(self.memory, dtype=numpy.uint8).ctypes.data
        self.agent.register_memory([(self.addr, bytes, 0, "")], "DRAM")
        return {"addr": self.addr, "hex": self.agent.get_agent_metadata().hex()}

    def more(self, bytes):
        self.another = mmap.mmap(-1, bytes)
        addr = numpy.frombuffer(self.another, dtype=numpy.uint8).ctypes.data
        self.agent.register_memory([(addr, bytes, 0, "")], "DRAM")
        return {"addr": addr}

    def load(self, hex):
        name = self.agent.add_remote_agent(bytes.fromhex(hex))
        return {"name": name.decode() if isinstance(name, bytes) else name}

    def forget(self, peer):
        self.agent.remove_remote_agent(peer)
        return {}

    def send(self, ip="", port=0):
        self.agent.send_local_metadata(ip, port)
        return {}

    def fetch(self, peer, ip="", port=0):
        self.agent.fetch_remote_metadata(peer, ip, port)
        return {}

    def withdraw(self, ip="", port=0):
        self.agent.invalidate_local_metadata(ip, port)
        return {}

    def knows(self, peer):
        return {"name": "yes" if self.agent.check_remote_metadata(peer) else ""}

    def put(self, at, hex):
        b = bytes.fromhex(hex)
        self.memory[at:at + len(b)] = b
        return {}

    def get(self, at, n):
        return {"hex": self.memory[at:at + n].hex()}

    def move(self, op, peer, here, there, n, notif=""):
        a = self.agent
        local = a.get_xfer_descs([(self.addr + here, n, 0)], "DRAM")
        remote = a.get_xfer_descs([(there, n, 0)], "DRAM")
        handle = a.initialize_xfer(op, local, remote, peer, notif.encode())
        state, end = a.transfer(handle), time.monotonic() + PATIENCE
        while state == "PROC" and time.monotonic() < end:
            state = a.check_xfer_state(handle)
        a.release_xfer_handle(handle)
        return {"name": state}

    def notify(self, peer, text):
        self.agent.send_notif(peer, text.encode())
        return {}

    def notifs(self):
        return {"notifs": [[peer, text.decode()] for peer, list in self.agent.get_new_notifs().items() for text in list]}


agent = Agent()
for line in sys.stdin:
    m = json.loads(line)
    try:
        answer = getattr(agent, m.pop("do"))(**m)
    except Exception as e:
        answer = {"error": "%s: %s" % (type(e).__name__, e)}
    print(json.dumps(answer), file=out, flush=True)
