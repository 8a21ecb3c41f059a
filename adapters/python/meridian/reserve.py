"""RESERVE and FILL: known keys are refused before their bytes are written, and the bytes are moved once less."""
from __future__ import annotations

import struct
from types import TracebackType
from typing import Any, Final, Sequence

import numpy as np

from . import frames
from .blocks import Space, deadline_ms, lease_ms
from .errors import Code, MeridianError
from .frames import fault
from .group import needs_group
from .records import CODE, FILL_ITEM, U8, U16, U32, Buffer, Keys, keys_array
from .session import TIMEOUT, Pending
from .store import OUTPUT_CRITICAL, Staged, Store, Stored, store_items, stored

_NO_RESERVATION: Final = 0


class Reservation:
    """Room in the daemon's arena for blocks, until ttl has passed, ``close``, or the session's end."""

    __slots__ = ("statuses", "why", "number", "_store")

    def __init__(self, store: "Reserves", number: int, statuses: U16, why: str) -> None:
        self._store = store
        self.number = number  # 0: nothing was reserved
        self.statuses = statuses  # codes, shape (n,): OK, there is room; EXISTS, FULL …
        self.why = why  # for people, of the first item that was refused

    @property
    def wanted(self) -> "np.ndarray[Any, np.dtype[np.intp]]":
        """The indices of the items whose bodies are to be filled in."""
        return np.flatnonzero(self.statuses == 0)

    def start_fill(self, items: "U32 | Sequence[int]", staged: Staged, *, lens: "U32 | Sequence[int] | None" = None, last: bool = False,
                   timeout: float = TIMEOUT) -> Pending[Stored]:
        """Sends FILL; see fill."""
        try:
            which = np.asarray(items, "<u4")
            if len(which) != len(staged):
                raise ValueError(f"{len(which)} items for {len(staged)} bodies")
            fill = np.zeros(len(which), FILL_ITEM)
            fill["item"], fill["off"] = which, staged.off
            fill["len"] = staged.data.shape[1] if lens is None else lens
            pending: Pending[Stored] = Pending(self._store, "fill", 0, len(fill), stored, timeout)
            pending.each = True
            pending.pieces = (staged.piece,)
            self._store.request(pending, frames.FILL, struct.pack("<QBxxxI", self.number, last, len(fill)), fill.data)
        except BaseException:
            staged.free()
            raise
        return pending

    def fill(self, items: "U32 | Sequence[int]", bodies: "Staged | U8 | Sequence[Buffer]", *, lens: "U32 | Sequence[int] | None" = None,
             last: bool = False, timeout: float = TIMEOUT) -> Stored:
        """Publishes bodies: items are indices of reserve, one a body. last: the rest is given back.

        bodies, lens: as put; what stage returned is not copied here.
        statuses: OK; EXISTS, another was faster; INVALID; LEASE_LOST, the reservation is no more.
        """
        if isinstance(bodies, Staged):
            return self.start_fill(items, bodies, lens=lens, last=last, timeout=timeout).wait()
        which = np.asarray(items, "<u4")
        if len(which) != len(bodies):
            raise ValueError(f"{len(which)} items for {len(bodies)} bodies")

        def send(at: int, staged: Staged, short: "U32 | Sequence[int] | None", left: float) -> Pending[Stored]:
            return self.start_fill(which[at:at + len(staged)], staged, lens=short, timeout=left)

        done = self._store.in_parts(bodies, lens, timeout, send)
        if last:
            self.close()
        return done

    def close(self) -> None:
        """Gives back what was not filled, without waiting for the answer. Again: nothing."""
        number, self.number = self.number, _NO_RESERVATION
        if number and self._store.error is None:
            try:
                self._store.simple("fill", frames.FILL, struct.pack("<QBxxxI", number, True, 0))
            except MeridianError:
                pass  # the daemon has taken it back

    def __enter__(self) -> "Reservation":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Reserves(Store):
    """The part of an Engine that writes in two steps."""

    def start_reserve(self, space: Space, keys: Keys, size: "int | U32 | Sequence[int]", *, tier: int = OUTPUT_CRITICAL, req: int = 0,
                      pos: "int | U32 | Sequence[int]" = 0, pin: float = 0.0, ttl: float = 0.0, timeout: float = TIMEOUT) -> Pending[Reservation]:
        """Sends RESERVE; see reserve."""
        if not self.features & frames.GROUP:
            raise needs_group("reserve")
        array = keys_array(keys)
        items = store_items(space, array, size, 0, tier, req, pos, pin)

        def made(p: Pending[Reservation]) -> Reservation:
            number, statuses = p.answer
            return Reservation(self, number, statuses, p.end.text)

        pending: Pending[Reservation] = Pending(self, "reserve", frames.RESERVED, len(items), made, timeout)
        self.request(pending, frames.RESERVE, struct.pack("<III", deadline_ms(timeout), lease_ms(ttl), len(items)), items.data)
        return pending

    def reserve(self, space: Space, keys: Keys, size: "int | U32 | Sequence[int]", *, tier: int = OUTPUT_CRITICAL, req: int = 0,
                pos: "int | U32 | Sequence[int]" = 0, pin: float = 0.0, ttl: float = 0.0, timeout: float = TIMEOUT) -> Reservation:
        """Reserves room for blocks of size bytes (for all or each); their bodies come by Reservation.fill.

        tier, req, pos, pin: as put. ttl: seconds that the room is kept; 0 and above 30: 30.
        RequestError: BUSY, DEADLINE, DRAINING, TOO_LARGE; UNSUPPORTED, the daemon has no feature GROUP.
        """
        return self.start_reserve(space, keys, size, tier=tier, req=req, pos=pos, pin=pin, ttl=ttl, timeout=timeout).wait()

    def _answer(self, pending: Pending[Any], kind: int, fields: memoryview) -> None:
        if kind != frames.RESERVED:
            super()._answer(pending, kind, fields)
            return
        number, n = struct.unpack_from("<QI", fields)
        if len(fields) != 12 + 2 * n:
            fault(Code.LENGTH, f"RESERVED of {n} items has {len(fields)} bytes")
        if n != pending.n:
            fault(Code.STATE, f"RESERVED has {n} items, {pending.n} were asked")
        statuses = np.frombuffer(bytes(fields[12:]), CODE)
        if (number != 0) != bool((statuses == 0).any()):
            fault(Code.INVALID, f"reservation {number} with {np.count_nonzero(statuses == 0)} items that are OK")
        pending.answered(kind, (number, statuses))
