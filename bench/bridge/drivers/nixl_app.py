"""An application with an agent of NIXL, over UCX; UCX_TLS in the environment says over
what. docs/nixl.md has the notifications. Each block is a write of its own, with the
notification that names it; lists of descriptors are prepared once, and many writes are
under way at a time."""
import ctypes
from importlib.metadata import version

import app
from nixl._api import nixl_agent, nixl_agent_config, nixlBind

# Microseconds between two looks of an idle progress thread. The Python API sets 0, with
# which the thread takes a core for itself, and says no other way.
PROGRESS_DELAY = 1000

MOST = 60  # writes under way: a daemon lets 64 notifications of a peer wait


class Application(app.Application):
    def __init__(self, name, port, size):
        made = nixlBind.nixlAgent

        def patient(name, config):
            config.pthrDelay = PROGRESS_DELAY
            return made(name, config)

        nixlBind.nixlAgent = patient
        self.agent = nixl_agent(name, nixl_agent_config(enable_prog_thread=True, enable_listen_thread=True, listen_port=port, backends=["UCX"]))
        self.region = app.Region(size)
        self.agent.register_memory([(self.region.addr, size, 0, "")], "DRAM")
        self.windows = {}  # by daemon: its agent, address and length
        self.lent = set()
        self.done = []
        self.expected, self.stored = {}, {}
        self.prepared = []

    def hear(self):
        """Takes what has come."""
        for sender, texts in self.agent.get_new_notifs().items():
            for text in texts:
                for line in text.decode().split("\n"):
                    words = line.split(" ")
                    verb = words[1]
                    if verb == "window":
                        daemon = sender[len("meridian-") :].rsplit("-", 1)[0]
                        self.windows[daemon] = (sender, int(words[2]), int(words[3]))
                    elif verb == "lend-done":
                        self.lent.add(sender)
                    elif verb == "put-done":
                        self.done.append(words[3])
                    elif verb == "stored":
                        self.hear_stored(words)
                    else:
                        raise RuntimeError("a daemon says " + line)

    def meet(self, daemon):
        patience = app.Patience("the window of " + daemon)
        while daemon not in self.windows:
            self.hear()
            patience.wait(1)
        return self.windows[daemon]

    def lend(self, m):
        sender, _, _ = self.meet(m["daemon"])
        addr, n = self.region.addr + m["at"], m["bytes"]
        ctypes.memset(addr, 0, n)
        self.lent.discard(sender)
        self.agent.send_notif(sender, b"mrdn lend %d %d" % (addr, n))
        patience = app.Patience("the answer of " + m["daemon"])
        while sender not in self.lent:
            self.hear()
            patience.wait(1)
        return {}

    def collect(self, _):
        patience = app.Patience("blocks that are to come")
        while True:
            self.hear()
            left = len(self.expected) - len(self.stored)
            if not left:
                return {}
            patience.wait(left, app.REST)

    def prepare(self, m):
        a = self.agent
        for prepared in self.prepared:
            a.release_dlist_handle(prepared)
        sender, window, n = self.meet(m["daemon"])
        self.slots = min(MOST, n // self.stride)
        if self.slots < 1:
            raise ValueError("the window has %d bytes, a payload needs %d" % (n, self.stride))
        here = [(self.region.addr + i * self.stride, self.n, 0) for i in range(self.count)]
        there = [(window + s * self.stride, self.n, 0) for s in range(self.slots)]
        self.prepared = [a.prep_xfer_dlist("", here, "DRAM"), a.prep_xfer_dlist(sender, there, "DRAM")]
        self.keys = m["keys"]
        self.begins = ["mrdn put %s %s " % (m["ns"], key) for key in m["keys"]]
        self.ends = ["%d %d" % (window + s * self.stride, self.n) for s in range(self.slots)]
        return {}

    def bring(self, _):
        """The library sends the notification of a write when it is asked for the write's
        state and the write has ended."""
        a, here, there, total = self.agent, self.prepared[0], self.prepared[1], len(self.keys)
        free, flying, named = list(range(self.slots)), [], {}
        patience = app.Patience("blocks that the daemon has not taken")
        begun, left = 0, total
        while left:
            while free and begun < total:
                s = free.pop()
                r = a.make_prepped_xfer("WRITE", here, [begun], there, [s], (self.begins[begun] + self.ends[s]).encode())
                flying.append((a.transfer(r), r))
                named[self.keys[begun]] = s
                begun += 1
            still = []
            for state, r in flying:
                if state == "PROC":
                    state = a.check_xfer_state(r)
                if state == "PROC":
                    still.append((state, r))
                elif state == "DONE":
                    a.release_xfer_handle(r)
                else:
                    raise RuntimeError("a write ended as " + state)
            did = len(still) < len(flying)
            flying = still
            self.hear()
            for key in self.done:
                free.append(named.pop(key))
                left -= 1
            if not self.done and not did:
                patience.wait(left)
            self.done = []
        return {}


def start(name, port, size):
    made = Application(name, int(port), int(size))
    return made, {"name": name, "version": "nixl %s, nixl-cu12 %s" % (version("nixl"), version("nixl-cu12"))}


if __name__ == "__main__":
    app.serve(start)
