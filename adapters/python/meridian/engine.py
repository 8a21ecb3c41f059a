"""The engine's side of the socket as a whole, with generation requests."""
from __future__ import annotations

import collections
import struct
from types import TracebackType
from typing import Final, NamedTuple, Sequence

import numpy as np

from . import frames
from .errors import Code, MeridianError
from .frames import fault
from .records import I32, U8, U32
from .session import TIMEOUT, Pending
from .store import Store

ENTER_THINK, EXIT_THINK, FORCE_BUDGET, COMPLETED, REAPED, CANNOT_FORCE = 1, 2, 3, 4, 6, 8
MAX_ADVICE: Final = 65_536  # that waits for phases(); the oldest is dropped


class Phase(NamedTuple):
    """The daemon's advice about one request. Kinds and reasons that are not known are to be ignored."""

    req: int
    kind: int  # ENTER_THINK, EXIT_THINK, FORCE_BUDGET, COMPLETED, REAPED, CANNOT_FORCE
    reason: int
    used: int  # think tokens so far
    inject: I32  # FORCE_BUDGET: tokens to append, so that thinking ends


class Engine(Store):
    """A connection to the daemon of this node, from an inference engine.

    Engine(path) dials and exchanges HELLO within 3 s. ClosedError: UNREACHABLE where nothing
    listens, or why the daemon refused: AUTH, TOO_MANY, DRAINING, LINK_VERSION. Every wait has a
    bound. Several threads may share an Engine.
    """

    def __init__(self, path: str, *, features: int = frames.RING | frames.PLAIN) -> None:
        self._advices: collections.deque[Phase] = collections.deque()
        self.advice_dropped = 0  # advice that nobody took
        self._begun = 0
        super().__init__(path, features)

    def ping(self, timeout: float = 5.0) -> None:
        """Asks whether the daemon answers."""
        self.simple("ping", frames.PING, timeout=timeout).wait()

    # Generation requests.

    def start_begin(self, prompt: "I32 | Sequence[int]", *, req: int = 0, id: str = "", model: str = "", first_answer: float = 0.0,
                    think_pace: float = 0.0, output_pace: float = 0.0, timeout: float = TIMEOUT) -> Pending[int]:
        """Sends BEGIN; see begin. The number counts at once: TOKENS and PUT may name it before the answer."""
        if not req:
            self._begun = self._begun % 0xFFFFFFFF + 1
            req = self._begun
        tokens = np.asarray(prompt, "<i4")[-frames.MAX_PROMPT:]
        name, served = frames.clip(id), frames.clip(model)
        slo = (min(max(int(s * 1000), 0), 0xFFFFFFFF) for s in (first_answer, think_pace, output_pace))
        pending: Pending[int] = Pending(self, "begin", 0, 0, lambda _: req, timeout)
        self.request(pending, frames.BEGIN, struct.pack("<4IHHI", req, *slo, len(name), len(served), len(tokens)), tokens.tobytes(), name, served)
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

    def tokens(self, req: "U32 | Sequence[int]", n: "U8 | Sequence[int]", tok: "I32 | Sequence[int]") -> bool:
        """Reports one step in columns: tok holds n[i] decoded tokens of req[i], one request after the other.

        It never waits: a step that the socket does not take whole is dropped and counted in
        dropped (False). Advice comes by phases. ValueError: the columns do not fit one another.
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

    def phases(self, timeout: float = 0.0) -> list[Phase]:
        """Reads what is there and gives the advice that came, oldest first; timeout: seconds to wait for the first."""
        if not self._advices:
            self.poll(timeout)
        out = []
        while self._advices:
            out.append(self._advices.popleft())
        return out

    def _advice(self, kind: int, fields: memoryview) -> bool:
        if kind != frames.PHASE:
            return False
        req, what, reason, inject_n, used = struct.unpack_from("<IBBHI", fields)
        if inject_n > frames.MAX_INJECT or len(fields) != 12 + 4 * inject_n:
            fault(Code.LENGTH, f"PHASE with {inject_n} tokens has {len(fields)} bytes")
        self._took(Phase(req, what, reason, used, np.frombuffer(bytes(fields[12:]), "<i4")))
        return True

    def _took(self, phase: Phase) -> None:
        if len(self._advices) >= MAX_ADVICE:
            self._advices.popleft()
            self.advice_dropped += 1
        self._advices.append(phase)

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

