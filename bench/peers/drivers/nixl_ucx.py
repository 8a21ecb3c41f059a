"""NIXL with its UCX backend; UCX_TLS in the environment says over what.

The target has a progress thread, which software reads over TCP need; the
initiator makes progress when it polls. Descriptor lists are prepared once a
cell, and so is the request of each batch, which is posted again whenever its
turn comes."""
import base64
import time
from importlib.metadata import version

import driver
from nixl._api import nixl_agent, nixl_agent_config, nixlBind

# Microseconds between two looks of an idle progress thread. The Python API sets
# 0, with which the thread takes a core for itself, and says no other way.
PROGRESS_DELAY = 1000

# How long a batch is polled for without a pause, and the pause after that: a
# poll without end takes a core from the target's thread and makes large reads
# over TCP slower.
SPIN_NS = 200_000
PAUSE = 20e-6


def agent(role, region):
    made = nixlBind.nixlAgent

    def patient(name, config):
        config.pthrDelay = PROGRESS_DELAY
        return made(name, config)

    nixlBind.nixlAgent = patient
    a = nixl_agent(role, nixl_agent_config(enable_prog_thread=role == "target", backends=["UCX"]))
    a.register_memory([(region.addr, region.size, 0, "")], "DRAM")
    return a


class Target(driver.Target):
    def __init__(self, size):
        super().__init__(size)
        self.agent = agent("target", self.region)
        self.metadata = base64.b64encode(self.agent.get_agent_metadata()).decode()

    def info(self):
        return {"metadata": self.metadata}


class Initiator(driver.Initiator):
    def __init__(self, size):
        super().__init__(size)
        self.agent = agent("initiator", self.region)
        self.requests = []
        self.lists = []

    def connect(self, peer):
        self.remote = peer["addr"]
        name = self.agent.add_remote_agent(base64.b64decode(peer["metadata"]))
        self.name = name.decode() if isinstance(name, bytes) else name

    def begin(self):
        c, a = self.cell, self.agent
        for stream in self.requests:
            for r in stream:
                a.release_xfer_handle(r)
        for prepared in self.lists:
            a.release_dlist_handle(prepared)
        here = [(self.region.addr + c.local(w, j), c.size, 0) for w in range(c.streams) for j in range(c.batch)]
        there = [(self.remote + b * c.size, c.size, 0) for b in range(c.blocks)]
        self.lists = [a.prep_xfer_dlist("", here, "DRAM"), a.prep_xfer_dlist(self.name, there, "DRAM")]
        op = c.op.upper()
        self.requests = []
        for w in range(c.streams):
            mine = list(range(w * c.batch, (w + 1) * c.batch))
            self.requests.append([a.make_prepped_xfer(op, self.lists[0], mine, self.lists[1], c.items(k)) for k in c.share(w)])
        self.next = [0] * c.streams

    def once(self, w):
        r = self.requests[w][0]
        state = self.agent.transfer(r)
        while state == "PROC":
            state = self.agent.check_xfer_state(r)
        if state != "DONE":
            raise RuntimeError("a batch ended as " + state)

    def measure(self, seconds):
        """One request a stream is under way; one thread polls them all."""
        post, state_of, clock, pause = self.agent.transfer, self.agent.check_xfer_state, time.perf_counter_ns, time.sleep
        took = []
        began = clock()
        end = began + int(seconds * 1e9)
        flying = [None] * self.cell.streams
        left = self.cell.streams
        while left:
            waited = 0  # nanoseconds of the youngest request that is under way
            for w in range(len(flying)):
                if flying[w] is None:
                    mine = self.requests[w]
                    r, t = mine[self.next[w] % len(mine)], clock()
                    self.next[w] += 1
                    flying[w] = (r, t)
                    state = post(r)
                elif flying[w] is False:
                    continue
                else:
                    r, t = flying[w]
                    state = state_of(r)
                if state == "DONE":
                    now = clock()
                    took.append(now - t)
                    flying[w] = None
                    waited = -1
                    if now >= end:
                        flying[w] = False
                        left -= 1
                elif state != "PROC":
                    raise RuntimeError("a batch ended as " + state)
                elif waited >= 0:
                    age = clock() - t
                    waited = age if waited == 0 else min(waited, age)
            if waited > SPIN_NS:
                pause(PAUSE)
        return took, clock() - began


def start(role, size):
    made = Target(size) if role == "target" else Initiator(size)
    return made, "nixl %s, nixl-cu12 %s" % (version("nixl"), version("nixl-cu12"))


if __name__ == "__main__":
    driver.serve(start)
