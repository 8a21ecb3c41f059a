"""Leases: the right to read some blocks where they lie."""
from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Sequence

import numpy as np

from .errors import Code, RequestError
from .maps import fence
from .records import CODE, U8, U16, Bools, Buffer, Records, flat

if TYPE_CHECKING:
    from .blocks import Blocks


NO_LEASE: Final = bytes(16)  # where nothing was granted


class Lease:
    """Blocks that may be read until ``release``, a timed one until it lapses.

    ``places`` has a record of dtype PLACE a key, in the order asked; ``status`` first: a batch
    never fails as a whole for one item. ``why`` says for people what the codes do not.

    A body lies in memory that the daemon will use again. Who copies checks before and after:
    ``copy_into`` does. Who reads in place reads first and asks ``check`` afterwards, before the
    result is used. A hold lease does not lapse while the process lives.
    """

    __slots__ = ("places", "keys", "id", "why", "until", "first", "_blocks", "_ok")

    def __init__(self, blocks: "Blocks", lease: bytes, keys: Records, places: Records, why: str, until: float, first: int = 0) -> None:
        self._blocks: Blocks | None = blocks
        self.id = lease  # 16 bytes; zero where nothing was granted
        self.keys, self.places, self.why = keys, places, why
        self.until = until  # time.monotonic() at which it lapses at the earliest; inf: hold
        self.first = first  # of a part of a load: the index of its first key
        self._ok: Bools | None = None

    def __len__(self) -> int:
        return len(self.places)

    @property
    def status(self) -> U16:
        """Codes, shape (n,): OK, ABSENT, STALE, NS_UNKNOWN, CHECKSUM, or what the holders said."""
        status: U16 = self.places["status"]
        return status

    @property
    def ok(self) -> Bools:
        """Which items were granted, shape (n,)."""
        if self._ok is None:
            self._ok = self.places["status"] == 0
        return self._ok

    @property
    def granted(self) -> bool:
        """Whether every item was."""
        return bool(self.ok.all())

    @property
    def left(self) -> float:
        """Seconds until it lapses, at least; below 0: it may have."""
        return self.until - time.monotonic()

    def _alive(self, op: str) -> "Blocks":
        if self._blocks is None:
            raise RequestError(op, Code.LEASE_LOST, "released")
        return self._blocks

    def body(self, i: int) -> U8:
        """The body of item i where it lies: read-only, not to be used after release. RequestError: it was not granted."""
        place = self.places[i]
        if place["status"]:
            raise RequestError("body", int(place["status"]), f"item {i}")
        return self._alive("body").maps.body(place)

    def bodies(self) -> list[U8 | None]:
        """All bodies, None where an item was not granted."""
        maps = self._alive("bodies").maps
        return [None if place["status"] else maps.body(place) for place in self.places]

    def heads(self) -> Records:
        """The MRDN headers, dtype HEAD, shape (n,); zero where an item was not granted."""
        return self._alive("heads").maps.heads(self.places)

    def check(self) -> Bools:
        """Which items are granted and still the block that they name, shape (n,). The rest counts as a miss (STALE)."""
        maps = self._alive("check").maps
        fence()
        return maps.current(self.places)

    def copy_into(self, out: "Sequence[Buffer | None] | U8", items: Sequence[int] | None = None) -> U16:
        """Copies bodies and says of each whether what was copied is the block: codes, shape (len(items),).

        out: a buffer an item, None to skip it, or an array of shape (n, size). items: which,
        all by default. TOO_LARGE: the buffer is shorter than the body. What is not OK in the
        result may have been written in part and counts as a miss.
        """
        chosen = range(len(self.places)) if items is None else items
        if len(out) < len(chosen):
            raise ValueError(f"{len(out)} buffers for {len(chosen)} items")
        places = self.places if items is None else self.places[np.asarray(items, np.intp)]
        before = self._alive("copy").maps.current(places)
        status = places["status"].astype(CODE)
        status[(status == 0) & ~before] = Code.STALE
        body = self._alive("copy").maps.body
        for i in np.flatnonzero(before):
            buffer = out[i]
            if buffer is None:
                continue
            source, to = body(places[i]), flat(buffer)
            if len(to) < len(source):
                status[i] = Code.TOO_LARGE
                continue
            np.copyto(to[:len(source)], source)
        fence()
        after = self._alive("copy").maps.current(places)
        status[before & ~after] = Code.STALE
        return status

    def renew(self, ttl: float = 0.0, timeout: float = 5.0) -> None:
        """Makes a timed lease last ttl seconds from now on; 0 and above 30: 30. RequestError LEASE_LOST: it has lapsed."""
        self._alive("renew").renew((self,), ttl, timeout)

    def release(self, later: bool = False) -> None:
        """Gives the blocks back, without waiting for the answer; later: with the session's next request. Again: nothing."""
        blocks, self._blocks = self._blocks, None
        if blocks is not None and self.id != NO_LEASE:
            blocks.give_back(self.id, later)

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
