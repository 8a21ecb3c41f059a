"""An application with an agent of NIXL, over UCX; UCX_TLS in the environment says over
what. docs/nixl.md has the notifications. Lists of descriptors are prepared once, and
several writes are under way at a time."""
import ctypes
from importlib.metadata import version

import app
from nixl._api import nixl_agent, nixl_agent_config, nixlBind

# Microseconds between two looks of an idle progress thread. The Python API sets 0, with
# which the thread takes a core for itself, and says no other way.
PROGRESS_DELAY = 1000

LINES = 64  # of a notification: docs/nixl.md has the limit
BATCH_BYTES = 4 << 20  # of a write
MOST = 8  # writes under way


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
        """A batch of blocks is one write into one part of the window, with one
        notification that names all of them."""
        a = self.agent
        for prepared in self.prepared:
            a.release_dlist_handle(prepared)
        sender, window, n = self.meet(m["daemon"])
        batch = max(1, min(LINES, BATCH_BYTES // self.stride))
        self.parts = min(MOST, n // (batch * self.stride))
        if self.parts < 1:
            raise ValueError("the window has %d bytes, a batch needs %d" % (n, batch * self.stride))
        here = [(self.region.addr + i * self.stride, self.n, 0) for i in range(self.count)]
        there = [(window + s * self.stride, self.n, 0) for s in range(self.parts * batch)]
        self.prepared = [a.prep_xfer_dlist("", here, "DRAM"), a.prep_xfer_dlist(sender, there, "DRAM")]
        self.keys = m["keys"]
        # What is told of a block but its address, so that bring has little to do.
        self.begins = ["mrdn put %s %s " % (m["ns"], key) for key in self.keys]
        self.ends = ["%d %d" % (addr, n) for addr, n, _ in there]
        self.batches = [range(at, min(at + batch, len(self.keys))) for at in range(0, len(self.keys), batch)]
        self.batch = batch
        return {}

    def bring(self, _):
        """The library sends the notification of a write when it is asked for the write's
        state and the write has ended."""
        a, here, there, begins, ends = self.agent, self.prepared[0], self.prepared[1], self.begins, self.ends
        free, flying = list(range(self.parts)), []
        part_of, missing = {}, {}
        patience = app.Patience("blocks that the daemon has not taken")
        begun, left = 0, len(self.keys)
        while left:
            while free and begun < len(self.batches):
                blocks, part = self.batches[begun], free.pop()
                slots = range(part * self.batch, part * self.batch + len(blocks))
                text = "\n".join([begins[i] + ends[s] for i, s in zip(blocks, slots)])
                r = a.make_prepped_xfer("WRITE", here, list(blocks), there, list(slots), text.encode())
                for i in blocks:
                    part_of[self.keys[i]] = part
                missing[part] = len(blocks)
                flying.append((a.transfer(r), r))
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
                part = part_of.pop(key)
                missing[part] -= 1
                left -= 1
                if not missing[part]:
                    free.append(part)
            if not self.done and not did:
                patience.wait(left)
            self.done = []
        return {}


def start(name, port, size):
    made = Application(name, int(port), int(size))
    return made, {"name": name, "version": "nixl %s, nixl-cu12 %s" % (version("nixl"), version("nixl-cu12"))}


if __name__ == "__main__":
    app.serve(start)
