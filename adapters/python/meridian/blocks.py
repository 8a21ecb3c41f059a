"""Namespaces, look-ups and leases."""
from __future__ import annotations

import dataclasses
import math
import struct
import time
from typing import Any, Final, Iterable

import numpy as np

from . import frames
from .errors import ClosedError, Code, OpenError, RequestError
from .frames import fault
from .lease import NO_LEASE, Lease
from .manifest import Manifest
from .records import HAVE, PLACE, WANT, Keys, Records, keys_array
from .session import TIMEOUT, Pending, Session

FETCH: Final = 1
TRANSIENT: Final = 2
RELEASE_AT_ONCE: Final = 64  # released leases that wait for a request to travel with


@dataclasses.dataclass(frozen=True)
class Space:
    """An open namespace: its number on this connection, and its manifest."""

    number: int
    manifest: Manifest


class Opening(Pending[Space]):
    """An OPEN, whose refusal is an OpenError."""

    __slots__ = ()

    def _outcome(self) -> None:
        opened = self.answer
        if self.error is None and opened is not None and opened.status:
            raise OpenError(opened.status, self.end.text, self.end.retry_ms, opened.field, opened.theirs, opened.ours)
        super()._outcome()


class Blocks(Session):
    """The part of an Engine that reads."""

    def start_open(self, manifest: Manifest, timeout: float = TIMEOUT) -> Pending[Space]:
        """Sends OPEN; see open."""
        raw = manifest.canonical
        pending = Opening(self, "open", frames.OPENED, 0, lambda p: Space(p.answer.ns, manifest), timeout)
        self.request(pending, frames.OPEN, len(raw).to_bytes(4, "little"), raw)
        return pending

    def open(self, manifest: Manifest, timeout: float = TIMEOUT) -> Space:
        """Opens the namespace of a manifest.

        OpenError: NS_UNKNOWN, also where the tenant is not allowed; GEOMETRY with the field that
        differs; MANIFEST; TOO_MANY; BUSY.
        """
        return self.start_open(manifest, timeout).wait()

    # Look-up.

    def start_has(self, space: Space, keys: Keys, remote: bool = False, timeout: float = TIMEOUT) -> Pending[Records]:
        """Sends HAS; see has."""
        wants = self.wants("has", space, keys, FETCH if remote else 0)
        pending: Pending[Records] = Pending(self, "has", frames.TABLE, len(wants), _table, timeout)
        self.request(pending, frames.HAS, struct.pack("<II", deadline_ms(timeout), len(wants)), wants.data)
        return pending

    def has(self, space: Space, keys: Keys, remote: bool = False, timeout: float = TIMEOUT) -> Records:
        """Asks which blocks exist: records of dtype HAVE, shape (n,). Nothing is granted.

        status: OK or ABSENT, NS_UNKNOWN. remote: what is not here is looked for at other
        holders; gen 0 with status OK is held elsewhere.
        """
        return self.start_has(space, keys, remote, timeout).wait()

    # Leases.

    def start_acquire(self, space: Space, keys: Keys, *, fetch: bool = False, transient: bool = False, hold: bool = False, ttl: float = 0.0,
                      timeout: float = TIMEOUT, refs: Records | None = None) -> Pending[Lease]:
        """Sends ACQUIRE; see acquire. A result that nobody takes keeps its lease until that lapses."""
        wants = self.wants("acquire", space, keys, (FETCH if fetch else 0) | (TRANSIENT if transient else 0))
        if refs is not None:
            wants["slot"], wants["gen"] = refs["slot"], refs["gen"]
        ms = lease_ms(ttl)
        begun = time.monotonic()
        lapses = math.inf if hold else begun + (ms or frames.MAX_LEASE_MS) / 1000

        def granted(p: Pending[Lease]) -> Lease:
            lease, places = p.answer
            # the daemon counts from the grant, which is not before the request
            return Lease(self, lease, wants["key"], places, p.end.text, lapses)

        pending: Pending[Lease] = Pending(self, "acquire", frames.ACQUIRED, len(wants), granted, timeout)
        self.request(pending, frames.ACQUIRE, struct.pack("<IIBxxxI", deadline_ms(timeout), ms, hold, len(wants)), wants.data)
        return pending

    def acquire(self, space: Space, keys: Keys, *, fetch: bool = False, transient: bool = False, hold: bool = False, ttl: float = 0.0,
                timeout: float = TIMEOUT, refs: Records | None = None) -> Lease:
        """Leases blocks; each item has a status of its own.

        fetch: what is missing is pulled from other holders, within timeout seconds. transient:
        what was fetched is freed at release. hold: the lease never lapses while this process
        lives; otherwise after ttl seconds (0 and above 30: 30). refs: records with slot and gen,
        such as places of an earlier lease, looked at in place of the keys alone.
        RequestError: BUSY, TOO_LARGE, DEADLINE, DRAINING, UNSUPPORTED (hold of a process that the daemon cannot see).
        """
        return self.start_acquire(space, keys, fetch=fetch, transient=transient, hold=hold, ttl=ttl, timeout=timeout, refs=refs).wait()

    def renew(self, leases: Iterable[Lease], ttl: float = 0.0, timeout: float = 5.0) -> None:
        """Renews leases, all RENEWs sent before the first answer. RequestError LEASE_LOST: of the first that has lapsed."""
        ms = lease_ms(ttl)
        sent = []
        for lease in leases:
            sent.append((lease, self.simple("renew", frames.RENEW, lease.id, ms.to_bytes(4, "little"), timeout=timeout)))
        lost: RequestError | None = None
        for lease, pending in sent:
            try:
                pending.wait()
                if lease.until != math.inf:
                    lease.until = pending.at + (ms or frames.MAX_LEASE_MS) / 1000
            except RequestError as e:
                lost = lost or e
        if lost is not None:
            raise lost

    def release(self, leases: Iterable[Lease]) -> None:
        """Gives several leases back in one message, without waiting for the answer."""
        for lease in leases:
            lease.release(later=True)
        self.flush()

    def give_back(self, lease: bytes, later: bool) -> None:
        """Queues a lease for RELEASE, and sends what is queued unless later."""
        if self.error is not None:
            return  # the daemon has taken all leases back
        self._releases.append(lease)
        if not later or len(self._releases) >= RELEASE_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Sends what was released later."""
        if self._releases and self.error is None:
            try:
                self._send(b"")
            except ClosedError:
                pass  # the daemon has taken all leases back

    def unwanted(self, pending: Pending[Any]) -> None:
        if pending.kind == frames.ACQUIRED and pending.answer is not None and pending.answer[0] != NO_LEASE:
            self._releases.append(pending.answer[0])
            self._owing = True

    # Records.

    def wants(self, op: str, space: Space, keys: Keys, flags: int) -> Records:
        """A record of dtype WANT a key. RequestError TOO_LARGE: more than the daemon takes in one batch."""
        array = keys_array(keys)
        if len(array) > self.items:
            raise RequestError(op, Code.TOO_LARGE, f"{len(array)} items, the daemon takes {self.items} in one batch")
        wants = np.zeros(len(array), WANT)
        wants["ns"] = space.number
        if flags:
            wants["flags"] = flags
        wants["key"] = array
        return wants

    def _answer(self, pending: Pending[Any], kind: int, fields: memoryview) -> None:
        if kind == frames.ACQUIRED:
            places = records(fields, PLACE, 16, pending.n, "ACQUIRED")
            self.maps.check(places)
            pending.answered(kind, (bytes(fields[:16]), places))
        elif kind == frames.TABLE:
            table = records(fields, HAVE, 16, pending.n, "TABLE")
            if len(table) and (table["tier"].max() > 2 or table["attest"].max() > 2):
                fault(Code.INVALID, "TABLE: a tier or attest above 2")
            pending.answered(kind, table)
        elif kind == frames.OPENED:
            pending.answered(kind, frames.parse_opened(fields))
        else:
            super()._answer(pending, kind, fields)


def records(fields: memoryview, dtype: "np.dtype[np.void]", at: int, asked: int, name: str) -> Records:
    """A copy of the records behind a count at byte at, which must be as many as were asked."""
    n = int.from_bytes(fields[at:at + 4], "little")
    if len(fields) != at + 4 + n * dtype.itemsize:
        fault(Code.LENGTH, f"{name} of {n} items has {len(fields)} bytes")
    if n != asked:
        fault(Code.STATE, f"{name} has {n} items, {asked} were asked")
    return np.frombuffer(bytes(fields), dtype, n, at + 4)


def _table(p: Pending[Records]) -> Records:
    table: Records = p.answer
    return table


def deadline_ms(timeout: float) -> int:
    """Seconds as the milliseconds of a deadline, 1 to 600,000."""
    return min(max(int(timeout * 1000), 1), frames.MAX_DEADLINE_MS)


def lease_ms(ttl: float) -> int:
    return min(max(int(ttl * 1000), 0), frames.MAX_LEASE_MS)
