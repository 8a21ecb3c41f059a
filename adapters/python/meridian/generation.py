"""Generation requests: the token stream out, advice back."""
from __future__ import annotations

import collections
import os
import struct
from typing import Final, NamedTuple, Sequence

import numpy as np

from . import frames
from .errors import Code, MeridianError
from .frames import fault
from .group import needs_group
from .records import EVICTED_ITEM, I32, U8, U32, Records
from .reserve import Reserves
from .session import TIMEOUT, Pending

ENTER_THINK, EXIT_THINK, FORCE_BUDGET, COMPLETED, REAPED, CANNOT_FORCE = 1, 2, 3, 4, 6, 8
MAX_ADVICE: Final = 65_536  # that waits to be taken, of each kind; the oldest is dropped
NO_POS: Final = -1


class Phase(NamedTuple):
    """The daemon's advice about one request. Kinds and reasons that are not known are to be ignored."""

    req: int
    kind: int  # ENTER_THINK, EXIT_THINK, FORCE_BUDGET, COMPLETED, REAPED, CANNOT_FORCE
    reason: int
    used: int  # think tokens so far
    inject: I32  # FORCE_BUDGET: tokens to append, so that thinking ends
    pos: int  # of the first token that it applies to, the prompt's first is 0; NO_POS without feature GROUP


class Generation(Reserves):
    """The part of an Engine that follows generation requests."""

    def _start(self) -> None:
        self._advices: collections.deque[Phase] = collections.deque()
        self._evictions: collections.deque[Records] = collections.deque()
        self.advice_dropped = 0  # messages of advice that nobody took
        self._begun = int.from_bytes(os.urandom(3), "little") << 8  # numbers of a group's sessions should not meet

    def next_number(self) -> int:
        """A number for a generation request that this session has not used."""
        self._begun = self._begun % 0xFFFFFFFF + 1
        return self._begun

    def start_begin(self, prompt: "I32 | Sequence[int]", *, req: int = 0, id: str = "", model: str = "", first_answer: float = 0.0,
                    think_pace: float = 0.0, output_pace: float = 0.0, timeout: float = TIMEOUT) -> Pending[int]:
        """Sends BEGIN; see begin. The number counts at once: TOKENS and PUT may name it before the answer."""
        tokens = np.asarray(prompt, "<i4")
        cut = max(len(tokens) - frames.MAX_PROMPT, 0)
        if cut and self.features & frames.GROUP:  # RESUME says where the rest begins
            return self.start_resume(tokens, (), req=req, id=id, model=model, first_answer=first_answer, think_pace=think_pace,
                                     output_pace=output_pace, timeout=timeout)
        req = req or self.next_number()
        name, served = frames.clip(id), frames.clip(model)
        slo = _slo(first_answer, think_pace, output_pace)
        pending: Pending[int] = Pending(self, "begin", 0, 0, lambda _: req, timeout)
        self.request(pending, frames.BEGIN, struct.pack("<4IHHI", req, *slo, len(name), len(served), len(tokens) - cut), tokens[cut:].tobytes(), name, served)
        return pending

    def begin(self, prompt: "I32 | Sequence[int]", *, req: int = 0, id: str = "", model: str = "", first_answer: float = 0.0,
              think_pace: float = 0.0, output_pace: float = 0.0, timeout: float = TIMEOUT) -> int:
        """Starts a generation request; its number, for tokens, finish and put.

        prompt: token ids; of more than 260,000 the last count. req: the number, 0 to be given
        one. id and model are texts of at most 256 bytes. The paces are what was promised, in
        seconds (first answer token, a think token, an output token); 0: nothing.
        RequestError: BUSY, the daemon follows as many as it will; INVALID, the number is in use.
        """
        return self.start_begin(prompt, req=req, id=id, model=model, first_answer=first_answer, think_pace=think_pace, output_pace=output_pace,
                                timeout=timeout).wait()

    def start_resume(self, prompt: "I32 | Sequence[int]", decoded: "I32 | Sequence[int]", *, req: int = 0, first: int = 0, id: str = "",
                     model: str = "", first_answer: float = 0.0, think_pace: float = 0.0, output_pace: float = 0.0,
                     timeout: float = TIMEOUT) -> Pending[int]:
        """Sends RESUME; see resume."""
        if not self.features & frames.GROUP:
            raise needs_group("resume")
        req = req or self.next_number()
        before, after = np.asarray(prompt, "<i4"), np.asarray(decoded, "<i4")
        cut = max(len(before) + len(after) - frames.MAX_PROMPT, 0)
        first += cut
        after = after[max(cut - len(before), 0):]
        before = before[cut:]
        name, served = frames.clip(id), frames.clip(model)
        slo = _slo(first_answer, think_pace, output_pace)
        head = struct.pack("<4IHHIII", req, *slo, len(name), len(served), first, len(before), len(after))
        pending: Pending[int] = Pending(self, "resume", 0, 0, lambda _: req, timeout)
        self.request(pending, frames.RESUME, head, before.tobytes(), after.tobytes(), name, served)
        return pending

    def resume(self, prompt: "I32 | Sequence[int]", decoded: "I32 | Sequence[int]", *, req: int = 0, first: int = 0, id: str = "", model: str = "",
               first_answer: float = 0.0, think_pace: float = 0.0, output_pace: float = 0.0, timeout: float = TIMEOUT) -> int:
        """begin of a request of which tokens were decoded already, such as after a restart of the daemon.

        first: position of prompt[0], where the prompt was cut to its last tokens. The daemon
        counts as if it had seen all tokens; of the advice only the latest comes.
        RequestError UNSUPPORTED: the daemon has no feature GROUP.
        """
        return self.start_resume(prompt, decoded, req=req, first=first, id=id, model=model, first_answer=first_answer, think_pace=think_pace,
                                 output_pace=output_pace, timeout=timeout).wait()

    def tokens(self, req: "U32 | Sequence[int]", n: "U8 | Sequence[int]", tok: "I32 | Sequence[int]") -> bool:
        """Reports one step in columns: tok holds n[i] decoded tokens of req[i], one request after the other.

        It never waits: what the socket does not take goes out with a later call, 256 KiB at most; a
        step beyond that is dropped whole and counted in dropped (False). Advice comes by phases. ValueError: the columns do not fit one another.
        """
        reqs, counts, toks = np.asarray(req, "<u4"), np.asarray(n, np.uint8), np.asarray(tok, "<i4")
        if len(reqs) != len(counts) or int(counts.sum()) != len(toks) or len(reqs) > frames.MAX_ROWS or len(toks) > frames.MAX_TOKENS:
            raise ValueError("the columns do not fit one another, or are too long")
        if self.error is not None:
            raise self.error
        data = frames.frame(frames.TOKENS, 0, (struct.pack("<II", len(reqs), len(toks)), reqs.tobytes(), counts.tobytes(), toks.tobytes()), self._sock.plain)
        try:
            if self._sock.offer(data):
                return True
        except MeridianError as e:
            self.fail(e)
            raise
        self.dropped += 1
        return False

    def start_finish(self, req: int, abort: bool = False, timeout: float = TIMEOUT) -> Pending[None]:
        """Sends FINISH, without waiting for its answer."""
        return self.simple("finish", frames.FINISH, struct.pack("<IBxxx", req, abort), timeout=timeout)

    def finish(self, req: int, abort: bool = False, timeout: float = TIMEOUT) -> None:
        """Ends a generation request, done or aborted. Idempotent, and for one that never was no error."""
        self.start_finish(req, abort, timeout).wait()

    def start_handoff(self, req: int, keep: float, timeout: float = TIMEOUT) -> Pending[str]:
        """Sends HANDOFF; see handoff."""
        if not self.features & frames.GROUP:
            raise needs_group("handoff")
        pending: Pending[str] = Pending(self, "handoff", 0, 0, lambda p: p.end.text, timeout)
        self.request(pending, frames.HANDOFF, struct.pack("<II", req, min(max(int(keep * 1000), 0), 0xFFFFFFFF)))
        return pending

    def handoff(self, req: int, keep: float, timeout: float = TIMEOUT) -> str:
        """finish of a request whose blocks go to another node: they stay until each was pulled once, or keep seconds have passed.

        The text says how many are kept. finish with abort ends that early, where nobody is going to pull them. RequestError: INVALID, keep is below a millisecond;
        UNSUPPORTED, the daemon has no feature GROUP.
        """
        return self.start_handoff(req, keep, timeout).wait()

    # Advice.

    def phases(self, timeout: float = 0.0) -> list[Phase]:
        """Reads what is there and gives the advice about requests that came, oldest first; timeout: seconds to wait for the first."""
        if not self._advices:
            self.poll(timeout)
        return self.taken_phases()

    def taken_phases(self) -> list[Phase]:
        """Advice about requests that was read already."""
        out = []
        while self._advices:
            out.append(self._advices.popleft())
        return out

    def evicted(self, timeout: float = 0.0) -> Records:
        """Reads what is there and gives the blocks of running requests that the daemon evicted: dtype EVICTED_ITEM, shape (n,)."""
        if not self._evictions:
            self.poll(timeout)
        out: list[Records] = [np.empty(0, EVICTED_ITEM)]
        while self._evictions:
            out.append(self._evictions.popleft())
        return np.concatenate(out)

    def _advice(self, kind: int, fields: memoryview) -> None:
        if kind == frames.EVICTED:
            self._took_evicted(fields)
            return
        req, what, reason, inject_n, used = struct.unpack_from("<IBBHI", fields)
        pos, at = NO_POS, 12
        if kind == frames.PHASEAT:
            pos, at = int.from_bytes(fields[12:16], "little"), 16
        if inject_n > frames.MAX_INJECT or len(fields) != at + 4 * inject_n:
            fault(Code.LENGTH, f"PHASE with {inject_n} tokens has {len(fields)} bytes")
        self._make_room(self._advices)
        self._advices.append(Phase(req, what, reason, used, np.frombuffer(bytes(fields[at:]), "<i4"), pos))

    def _took_evicted(self, fields: memoryview) -> None:
        n = int.from_bytes(fields[:4], "little")
        if n > frames.MAX_ITEMS or len(fields) != 4 + n * EVICTED_ITEM.itemsize:
            fault(Code.LENGTH, f"EVICTED of {n} items has {len(fields)} bytes")
        self._make_room(self._evictions)
        self._evictions.append(np.frombuffer(bytes(fields), EVICTED_ITEM, n, 4))

    def _make_room(self, queue: "collections.deque[Phase] | collections.deque[Records]") -> None:
        if len(queue) >= MAX_ADVICE:
            queue.popleft()
            self.advice_dropped += 1


def _slo(*seconds: float) -> "list[int]":
    return [min(max(int(s * 1000), 0), 0xFFFFFFFF) for s in seconds]
