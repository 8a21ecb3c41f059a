"""LOAD: leases that come in parts, that may wait for blocks, and that may name who has them."""
from __future__ import annotations

import collections
import math
import struct
import time
from typing import Any, Final, Iterator, Sequence, Union

import numpy as np

from . import frames
from .blocks import FETCH, TRANSIENT, Blocks, Space, deadline_ms, lease_ms, records
from .errors import Code, RequestError
from .frames import End, fault
from .group import needs_group
from .lease import NO_LEASE, Lease
from .records import HOLDER, LOAD_ITEM, PLACE, U16, Keys, Records, keys_array
from .session import TIMEOUT, Pending

WAIT: Final = 8
MAX_HOLDERS: Final = 256

Holders = Union[Records, Sequence["tuple[bytes, int]"]]


class Load(Pending["list[Lease]"]):
    """A LOAD under way. Its parts are leases of their own, ``first`` is the index of a part's first key. One thread has it."""

    __slots__ = ("keys", "lapse", "why", "_parts", "_covered", "_taken", "_all")

    def __init__(self, session: "Loads", keys: Records, lapse: float, timeout: float) -> None:
        super().__init__(session, "load", frames.LOADED, len(keys), lambda p: [], timeout)
        self.keys = keys
        self.lapse = lapse  # seconds that a lease lasts; inf: hold
        self.why = ""  # for people, at the end: of the first item that could not be had
        self._parts: collections.deque[Lease] = collections.deque()
        self._covered = 0
        self._all = False

    def ready(self) -> bool:
        return self._done or bool(self._parts) and not self._all

    def answered(self, kind: int, answer: Any) -> None:
        if kind != self.kind:
            fault(Code.STATE, f"a frame of type {kind} answers {self.op}")
        lease, first, places = answer
        if first != self._covered or first + len(places) > self.n:
            fault(Code.STATE, f"LOADED of {len(places)} items from {first} on, {self._covered} of {self.n} had come")
        self._covered += len(places)
        assert isinstance(self.session, Loads)
        keys = self.keys[first:first + len(places)]
        # the daemon counts from the grant, which is not before the request
        part = Lease(self.session, lease, keys, places, "", self.at + self.lapse, first)
        self._parts.append(part)
        self.wake()

    def ended(self, end: End) -> None:
        if not end.code:
            if self._covered != self.n:
                fault(Code.STATE, f"END OK of a load of {self.n} items, {self._covered} came")
            self.answer = self._covered
        self.why = end.text
        super().ended(end)

    @property
    def ready_part(self) -> bool:
        """Whether a part waits to be taken."""
        return bool(self._parts)

    def take(self) -> Lease:
        """The next part that came; there is one where ready_part says so."""
        return self._parts.popleft()

    def cancel(self) -> None:
        """Takes the load back. Parts that nobody took are given back, whether they came before or after."""
        if self._done:
            self.session.unwanted(self)
        else:
            super().cancel()

    def came(self) -> "list[Lease]":
        """The parts that came since the last look, without waiting."""
        out = []
        while self._parts:
            out.append(self._parts.popleft())
        return out

    def parts(self) -> Iterator[Lease]:
        """The parts as they come. RequestError, ClosedError: how it ended, when all that came was given."""
        while True:
            while self._parts:
                yield self._parts.popleft()
            if self._done:
                break
            self._wait()
        self._outcome()

    def wait(self, timeout: float | None = None) -> "list[Lease]":
        """All parts that were not taken, once the load is over. After RequestError, ``came`` has what came before."""
        self._all = True
        try:
            self._wait(timeout)
        finally:
            self._all = False
        self._outcome()
        return self.came()

    def _wait(self, timeout: float | None = None) -> None:
        until = self.until if timeout is None else time.monotonic() + timeout
        if not self.session.wait_for(self, until):
            if timeout is None:
                self.cancel()
            raise RequestError(self.op, Code.DEADLINE, "no answer in time")


class Loads(Blocks):
    """The part of an Engine that loads."""

    def start_load(self, space: Space, keys: Keys, *, fetch: bool = False, wait: bool = False, transient: bool = False, hold: bool = False,
                   ttl: float = 0.0, timeout: float = TIMEOUT, holders: Holders = (), holder: "int | U16 | Sequence[int]" = 0,
                   refs: Records | None = None) -> Load:
        """Sends LOAD: acquire, whose leases come in parts, what is here at once.

        fetch, transient, hold, ttl, timeout: as acquire. wait: what is nowhere is waited for until
        it is published here, or found, or timeout has passed. holders: peers that may have
        blocks, as (agent id, incarnation) or records of dtype HOLDER, at most 256; holder: for all
        keys or each, which of them to ask first and alone, counted from 1; 0: none. refs: records
        with slot and gen, of that holder, or of this daemon where holder is 0.
        RequestError UNSUPPORTED: the daemon has no feature GROUP.
        """
        if not self.features & frames.GROUP:
            raise needs_group("load")
        array = keys_array(keys)
        if len(array) > self.items:
            raise RequestError("load", Code.TOO_LARGE, f"{len(array)} items, the daemon takes {self.items} in one batch")
        peers = np.array(holders, HOLDER) if isinstance(holders, np.ndarray) else np.array([tuple(h) for h in holders], HOLDER)
        if len(peers) > MAX_HOLDERS:
            raise ValueError(f"{len(peers)} holders, a load names at most {MAX_HOLDERS}")
        items = np.zeros(len(array), LOAD_ITEM)
        items["ns"] = space.number
        items["flags"] = (FETCH if fetch else 0) | (TRANSIENT if transient else 0) | (WAIT if wait else 0)
        items["holder"] = holder
        items["key"] = array
        if len(items) and int(items["holder"].max()) > len(peers):
            raise ValueError(f"holder {items['holder'].max()} of {len(peers)}")
        if refs is not None:
            items["slot"], items["gen"] = refs["slot"], refs["gen"]
        ms = lease_ms(ttl)
        load = Load(self, array, math.inf if hold else (ms or frames.MAX_LEASE_MS) / 1000, timeout)
        head = struct.pack("<IIBxHI", deadline_ms(timeout), ms, hold, len(peers), len(items))
        self.request(load, frames.LOAD, head, peers.tobytes(), items.data)
        return load

    def unwanted(self, pending: Pending[Any]) -> None:
        if isinstance(pending, Load):
            for part in pending.came():
                part.release(later=True)
                self._owing = True
        super().unwanted(pending)

    def _answer(self, pending: Pending[Any], kind: int, fields: memoryview) -> None:
        if kind != frames.LOADED:
            super()._answer(pending, kind, fields)
            return
        n = int.from_bytes(fields[20:24], "little")
        if not 1 <= n <= frames.MAX_ITEMS:
            fault(Code.INVALID if not n else Code.LENGTH, f"LOADED of {n} items")
        places = records(fields, PLACE, 20, n, "LOADED")
        self.maps.check(places)
        lease = bytes(fields[:16])
        if lease == NO_LEASE and not places["status"].all():
            fault(Code.INVALID, "LOADED with blocks and without a lease")
        pending.answered(kind, (lease, int.from_bytes(fields[16:20], "little"), places))
