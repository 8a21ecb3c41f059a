"""An Engine for asyncio: the loop watches the socket, and nothing waits but coroutines.

    async with await aio.dial(path) as e:
        space = await e.open(manifest)
        lease = await e.acquire(space, keys, fetch=True)
        async for part in e.load(space, keys, wait=True): ...
        async for phase in e.phases(): ...

What it returns is what an Engine returns; ``engine`` is that Engine, for everything that does
not wait: tokens, stage where there is room, start_*.
"""
from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any, AsyncIterator, Sequence, TypeVar

from .blocks import Space
from .engine import FEATURES, Engine
from .errors import ClosedError, Code, MeridianError, RequestError
from .generation import Phase
from .group import Group
from .lease import Lease
from .load import Holders
from .manifest import Manifest
from .records import I32, U8, U16, U32, Keys, Records
from .session import TIMEOUT, Pending
from .store import OUTPUT_CRITICAL, Staged, Stored

T = TypeVar("T")


async def dial(path: str, *, group: Group | None = None, features: int = FEATURES) -> "AsyncEngine":
    """Connects; HELLO is exchanged on a thread of the loop's pool. ClosedError as from Engine."""
    loop = asyncio.get_running_loop()
    return AsyncEngine(await loop.run_in_executor(None, lambda: Engine(path, group=group, features=features)), loop)


class AsyncEngine:
    """An Engine whose socket one event loop reads. It belongs to that loop's thread."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self._loop = loop
        self._came = asyncio.Event()  # advice, or the end
        self._writing = False
        self._fd = engine.fileno()
        engine._sock.nonblocking = True  # what the kernel does not take waits for the loop
        loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        try:
            self.engine.poll()
        except MeridianError:
            self._detach()  # the calls have it already
        self._came.set()

    def _writable(self) -> None:
        try:
            if not self.engine._sock.flush():
                return
        except MeridianError as e:
            self.engine.fail(e)
            self._detach()
            return
        self._loop.remove_writer(self._fd)
        self._writing = False

    def _detach(self) -> None:
        """Takes the socket from the loop, once: the number is another file's after close."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._loop.remove_reader(fd)
            self._loop.remove_writer(fd)
        self._came.set()

    def _watch(self) -> None:
        """Has the loop send what the kernel did not take."""
        if self.engine._sock.unsent and not self._writing and self._fd >= 0:
            self._writing = True
            self._loop.add_writer(self._fd, self._writable)

    async def wait(self, pending: Pending[T]) -> T:
        """The result of a request of ``engine.start_*``. Cancelling the coroutine cancels the request."""
        self._watch()
        await self._until(pending)
        return pending.wait(0)

    async def _until(self, pending: Pending[Any]) -> None:
        """Returns when there is something to take from the request."""
        if pending.ready():
            return
        news = self._loop.create_future()

        def tell(_: Pending[Any]) -> None:
            if not news.done():
                news.set_result(None)

        pending.then = tell
        try:
            await asyncio.wait_for(news, max(pending.until - self._loop.time(), 0.0))
        except asyncio.TimeoutError:
            if pending.ready():
                return  # it came at the last moment
            pending.cancel()
            self._watch()
            raise RequestError(pending.op, Code.DEADLINE, "no answer in time") from None
        except asyncio.CancelledError:
            if pending.done:  # in the same turn of the loop: nobody takes what it was granted
                self.engine.unwanted(pending)
                self.engine.flush()
            else:
                pending.cancel()
            self._watch()
            raise
        finally:
            pending.then = None

    # Requests, as an Engine has them.

    async def open(self, manifest: Manifest, timeout: float = TIMEOUT) -> Space:
        return await self.wait(self.engine.start_open(manifest, timeout))

    async def has(self, space: Space, keys: Keys, remote: bool = False, timeout: float = TIMEOUT) -> Records:
        return await self.wait(self.engine.start_has(space, keys, remote, timeout))

    async def acquire(self, space: Space, keys: Keys, *, fetch: bool = False, transient: bool = False, hold: bool = False, ttl: float = 0.0,
                      timeout: float = TIMEOUT, refs: Records | None = None) -> Lease:
        return await self.wait(self.engine.start_acquire(space, keys, fetch=fetch, transient=transient, hold=hold, ttl=ttl, timeout=timeout, refs=refs))

    async def load(self, space: Space, keys: Keys, *, fetch: bool = False, wait: bool = False, transient: bool = False, hold: bool = False,
                   ttl: float = 0.0, timeout: float = TIMEOUT, holders: Holders = (), holder: "int | U16 | Sequence[int]" = 0,
                   refs: Records | None = None) -> AsyncIterator[Lease]:
        """The parts of a load as they come. A generator that is closed before its end cancels the load."""
        load = self.engine.start_load(space, keys, fetch=fetch, wait=wait, transient=transient, hold=hold, ttl=ttl, timeout=timeout,
                                      holders=holders, holder=holder, refs=refs)
        try:
            self._watch()
            while not load.done or load.ready_part:
                await self._until(load)
                while load.ready_part:  # one at a time: what is not taken is given back
                    yield load.take()
            load.wait(0)
        finally:
            load.cancel()
            self.engine.flush()
            self._watch()

    async def stage(self, n: int, size: int, timeout: float = TIMEOUT) -> Staged:
        """Engine.stage. Room comes free by answers to puts, so it is looked for again as the loop reads."""
        end = self._loop.time() + timeout
        ring = self.engine.start_ring(self.engine.staged_bytes(n, size), timeout)
        if ring is not None:
            await self.wait(ring)
        while (staged := self.engine.try_stage(n, size)) is None:
            await self._news(end - self._loop.time(), "stage")
        return staged

    async def _news(self, seconds: float, op: str) -> None:
        """Returns when the loop has read something."""
        if self.engine.error is not None:
            raise self.engine.error
        self._came.clear()
        try:
            await asyncio.wait_for(self._came.wait(), max(seconds, 0.0))
        except asyncio.TimeoutError:
            raise RequestError(op, Code.DEADLINE, "nothing came in time") from None

    async def put(self, space: Space, keys: Keys, staged: Staged, *, lens: "U32 | Sequence[int] | None" = None, tier: int = OUTPUT_CRITICAL,
                  req: int = 0, pos: "int | U32 | Sequence[int] | None" = None, pin: float = 0.0, timeout: float = TIMEOUT) -> Stored:
        """Engine.put of what stage returned."""
        return await self.wait(self.engine.start_put(space, keys, staged, lens=lens, tier=tier, req=req, pos=pos, pin=pin, timeout=timeout))

    async def begin(self, prompt: "I32 | Sequence[int]", *, req: int = 0, id: str = "", model: str = "", timeout: float = TIMEOUT) -> int:
        return await self.wait(self.engine.start_begin(prompt, req=req, id=id, model=model, timeout=timeout))

    async def finish(self, req: int, abort: bool = False, timeout: float = TIMEOUT) -> None:
        await self.wait(self.engine.start_finish(req, abort, timeout))

    def tokens(self, req: "U32 | Sequence[int]", n: "U8 | Sequence[int]", tok: "I32 | Sequence[int]") -> bool:
        sent = self.engine.tokens(req, n, tok)
        self._watch()
        return sent

    async def phases(self) -> AsyncIterator[Phase]:
        """Advice as it comes, until the connection is over. One coroutine has it."""
        while True:
            for phase in self.engine.taken_phases():
                yield phase
            if self.engine.error is not None:
                return
            self._came.clear()
            await self._came.wait()

    async def close(self) -> None:
        """Engine.close, on a thread of the loop's pool."""
        self._detach()
        with contextlib.suppress(ClosedError):
            await self._loop.run_in_executor(None, self.engine.close)
        self._came.set()

    async def __aenter__(self) -> "AsyncEngine":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

