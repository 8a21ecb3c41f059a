"""A stand-in for an engine of three processes: a scheduler and two ranks, a session each, one group.

    python3 -m tests.standin scheduler SOCKET      commands on stdin, JSON a line; answers on stdout
    python3 -m tests.standin worker SOCKET RANK    started by the scheduler, likewise

A command runs in stages. At each the scheduler says {"stage": NAME} and goes on when it is told
"go", so that a test kills whom it likes just there. Every wait here has a bound.
"""
import hashlib
import json
import subprocess
import sys
import time

import numpy as np

from meridian import AUTO, EXIT_THINK, ClosedError, Engine, Group, Manifest, MeridianError

RANKS = 2
BLOCKS = 6  # of a prompt, each rank
BLOCK = 64 << 10
TOKENS = 16  # of a block
PROMPT = np.arange(100, 100 + BLOCKS * TOKENS, dtype=np.int32)
STEP = [1, 7, 2, 8]  # thinking begins, a thought, thinking ends, an answer: the test's model has these ids
PATIENCE = 20.0  # seconds for a daemon to come back, and for advice
KEEP = 2.0  # seconds that blocks of a hand-off stay which nobody pulls


def manifest(rank):
    return Manifest(tenant="acme", model="standin", role="kv", dtype="bf16", block_tokens=TOKENS, block_bytes=BLOCK, tp_rank=rank, tp_size=RANKS,
                    pp_size=1, dcp_size=1)


def bodies(prompt, rank):
    """What the blocks of a prompt are at a rank: everybody can tell."""
    return np.random.default_rng([prompt, rank]).integers(0, 256, (BLOCKS, BLOCK), np.uint8)


def keys(prompt, rank):
    digests = b"".join(hashlib.sha256(b"%d %d" % (prompt, i)).digest() for i in range(BLOCKS))
    return manifest(rank).keys(np.frombuffer(digests, np.uint8).reshape(BLOCKS, 32))


class Process:
    """One process's session. It is dialled again after its daemon has gone."""

    def __init__(self, path, group):
        self.path, self.group, self.session, self.spaces = path, group, None, {}

    def engine(self):
        end = time.monotonic() + PATIENCE
        while self.session is None or self.session.error is not None:
            try:
                self.session, self.spaces = Engine(self.path, group=self.group), {}
                self.group = self.session.group
            except ClosedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
        return self.session

    def space(self, rank):
        e = self.engine()
        if rank not in self.spaces:
            self.spaces[rank] = e.open(manifest(rank))
        return self.spaces[rank]

    def phase(self, req, kind):
        """Waits for advice about a request; its position."""
        end = time.monotonic() + PATIENCE
        while (left := end - time.monotonic()) > 0:
            for phase in self.engine().phases(left):
                if (phase.req, phase.kind) == (req, kind):
                    return phase.pos
        raise RuntimeError(f"no phase {kind} of request {req}")


class Worker(Process):
    def __init__(self, path, group, rank):
        super().__init__(path, group)
        self.rank, self.held = rank, []

    def fill(self, prompt, req):
        """Stores the rank's blocks: reserved, written in place, with positions."""
        space, kv = self.space(self.rank), bodies(prompt, self.rank)
        e = self.engine()
        with e.reserve(space, keys(prompt, self.rank), BLOCK, tier=AUTO, req=req, pos=np.arange(BLOCKS) * TOKENS) as r:
            staged = e.stage(len(r.wanted), BLOCK)
            staged.data[:] = kv[r.wanted]
            stored = r.fill(r.wanted, staged, last=True)
        return {"stored": int((stored.statuses == 0).sum()), "why": stored.why}

    def load(self, prompt):
        """Reads the rank's blocks, which the scheduler has pinned, and holds them as a copy by a device would."""
        e, want = self.engine(), bodies(prompt, self.rank)
        out, status = np.zeros_like(want), np.full(BLOCKS, 1, np.uint16)
        for part in e.start_load(self.space(self.rank), keys(prompt, self.rank), hold=True).parts():
            self.held.append(part)
            at = slice(part.first, part.first + len(part))
            status[at] = part.copy_into(out[at])
        wrong = sum(bool((a != b).any()) for a, b, s in zip(out, want, status) if s == 0)
        return {"loaded": int((status == 0).sum()), "wrong": wrong}

    def drop(self):
        for lease in self.held:
            lease.release()
        self.held = []
        return {}

    def seen(self, req, kind):
        return {"pos": self.phase(req, kind)}


class Gone(Exception):
    """A worker's process has ended."""


class Scheduler(Process):
    def __init__(self, path):
        super().__init__(path, Group.new(secret=True))
        self.engine()  # the secret is made by the first session, which is this one
        self.workers = []
        for rank in range(RANKS):
            self.start(rank)

    def start(self, rank):
        worker = subprocess.Popen([sys.executable, "-m", "tests.standin", "worker", self.path, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.workers[rank:rank + 1] = [worker]
        g = self.group
        worker.stdin.write(json.dumps([g.agent.hex(), g.inc, g.secret.hex()]) + "\n")
        if len(self.workers) == RANKS:
            say({"workers": [w.pid for w in self.workers]})

    def ask(self, method, **arguments):
        """Calls a method of every worker at the same time; their answers by rank."""
        broken = []
        for rank, worker in enumerate(self.workers):
            try:
                worker.stdin.write(json.dumps({"do": method, **arguments}) + "\n")
                worker.stdin.flush()
            except BrokenPipeError:
                broken.append(rank)
        answers = []
        for rank, worker in enumerate(self.workers):
            line = worker.stdout.readline()
            if not line:
                broken.append(rank)
            answers.append(json.loads(line or "{}"))
        for rank in set(broken):
            self.workers[rank].wait()
            self.workers[rank].stdout.close()
            self.start(rank)
        if broken:
            raise Gone(f"workers {sorted(set(broken))}")
        for answer in answers:
            if "error" in answer:
                raise RuntimeError(answer["error"])
        return answers

    def prefill(self, prompt):
        e = self.engine()
        req = e.begin(PROMPT, model="thinker", id=f"prompt {prompt}")
        try:
            stage("begun")
            stored = [a["stored"] for a in self.ask("fill", prompt=prompt, req=req)]
            stage("filled")
            e.tokens([req], [len(STEP)], STEP)
            at = self.phase(req, EXIT_THINK)
            seen = [a["pos"] for a in self.ask("seen", req=req, kind=EXIT_THINK)]
            stage("stepped")
            why = e.handoff(req, KEEP)
            stage("handed off")
        finally:
            if e.error is None:
                e.start_finish(req, abort=True)
        return {"stored": stored, "pos": [at, *seen], "agent": e.agent.hex(), "inc": e.inc, "why": why}

    def decode(self, prompt, agent, inc):
        e = self.engine()
        pins = []
        try:
            loads = [e.start_load(self.space(rank), keys(prompt, rank), fetch=True, wait=True, timeout=PATIENCE, holders=[(bytes.fromhex(agent), inc)], holder=1)
                     for rank in range(RANKS)]
            pinned = []
            for load in loads:
                parts = load.wait()
                pins += parts
                pinned.append(sum(int(p.ok.sum()) for p in parts))
            stage("pinned")
            loaded = self.ask("load", prompt=prompt)
            stage("loaded")
            req = e.resume(PROMPT, STEP[:3], model="thinker")
            e.tokens([req], [1], STEP[3:])
            at = self.phase(req, EXIT_THINK)
            seen = [a["pos"] for a in self.ask("seen", req=req, kind=EXIT_THINK)]
            stage("stepped")
            e.finish(req)
        finally:
            for pin in pins:
                pin.release()
        self.ask("drop")
        stage("finished")
        return {"pinned": pinned, "loaded": [a["loaded"] for a in loaded], "wrong": sum(a["wrong"] for a in loaded), "pos": [at, *seen]}

    def step(self, steps):
        """Steps of 256 requests, with a new one now and then, whatever the daemon does. It asks for nothing that it would wait for."""
        e = self.engine()
        req, one, tok = np.arange(1, 257), np.ones(256, np.uint8), np.zeros(256, np.int32)
        begun = []
        for i in range(steps):
            e.tokens(req, one, tok)
            e.phases()
            if i % 500 == 0:
                begun.append(e.next_number())
                e.start_begin(PROMPT, req=begun[-1], model="thinker")
        for req in begun:
            e.start_finish(req)
        return {"dropped": e.dropped}

    def drop(self):
        """What a command that failed left at the workers."""
        self.ask("drop")
        return {}


def say(answer):
    print(json.dumps(answer), flush=True)


def stage(name):
    say({"stage": name})
    if sys.stdin.readline() != "go\n":
        sys.exit(0)


def serve(process):
    """Answers commands until stdin ends."""
    while line := sys.stdin.readline():
        command = json.loads(line)
        try:
            answer = getattr(process, command.pop("do"))(**command)
        except (MeridianError, RuntimeError, Gone) as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        say({"done": True, **answer})
    if process.session is not None:
        process.session.close()


def main(role, path, *rest):
    if role == "scheduler":
        scheduler = Scheduler(path)
        serve(scheduler)
        for worker in scheduler.workers:
            worker.stdin.close()
        for worker in scheduler.workers:
            worker.wait()
        return
    agent, inc, secret = json.loads(sys.stdin.readline())
    serve(Worker(path, Group(bytes.fromhex(agent), inc, bytes.fromhex(secret)), int(rest[0])))


if __name__ == "__main__":
    main(*sys.argv[1:])
