"""The daemon's segments, mapped read-only, and every check of what it says about them.

A number from the socket is held against the size of a map before memory is touched, and the
size of a map against the file, so that no access is a SIGBUS.
"""
from __future__ import annotations

import fcntl
import mmap
import os
import sys
import threading
from typing import Final

import numpy as np

from .errors import ClosedError, Code
from .frames import fault
from .records import HEAD, SEG, U8, U32, U64, Bools, Records

HEADER_LEN: Final = 32  # of an MRDN header, in front of each body
SEGMENT, GENERATIONS, STAGING = 1, 2, 3
_F_GET_SEALS: Final = 1034
_F_SEAL_SHRINK: Final = 2
_WORD: Final = np.dtype("<u4")
_ONES: Final = 0xFFFFFFFF
# First words of a place that is OK, with a tier and attest of at most 2.
_GOOD: Final = frozenset(tier << 16 | attest << 24 for tier in range(3) for attest in range(3))
_NO_FD = {"trackfd": False} if sys.version_info >= (3, 13) else {}


def map_file(fd: int, size: int, writable: bool) -> U8:
    """Maps a descriptor from the daemon; the array keeps it mapped. The descriptor stays open.

    LENGTH: the file is shorter. INVALID: it may shrink, or cannot be mapped.
    """
    there = os.fstat(fd).st_size
    if not 0 < size <= there:
        fault(Code.LENGTH, f"a map of {size} bytes of a file of {there}")
    try:
        seals = fcntl.fcntl(fd, _F_GET_SEALS)
    except OSError:
        seals = 0
    if not seals & _F_SEAL_SHRINK:
        fault(Code.INVALID, "a map of a file that can shrink")
    try:
        m = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0), **_NO_FD)
    except (OSError, ValueError, OverflowError) as e:
        fault(Code.INVALID, f"a map of {size} bytes: {e}")
    return np.frombuffer(m, np.uint8)


class Maps:
    """Segments and their generation tables by id. Arrays that were handed out outlive the connection."""

    def __init__(self) -> None:
        self.bytes: dict[int, U8] = {}
        self.gens: dict[int, U64] = {}
        self._words: U32 = np.empty((16, 1), np.uint32)  # of the reader: see _plainly_right
        self._parts = self._split()

    def _split(self) -> tuple[U32, U32, U32, U32]:
        w = self._words
        return w[:8], w[8:], w[5], w[15]

    def clear(self) -> None:
        """Forgets all maps: what nobody has an array of is unmapped."""
        self.bytes, self.gens = {}, {}

    def _of(self, number: int) -> tuple[U8, U64]:
        """A segment that was checked. ClosedError: the engine was closed meanwhile."""
        try:
            return self.bytes[number], self.gens[number]
        except KeyError:
            raise ClosedError(Code.LANE_LOST, "the engine was closed") from None

    def add(self, fields: memoryview, fds: list[int]) -> U8 | None:
        """Maps what MAP brought, and closes the descriptors. The staging ring, where it is among them."""
        try:
            return self._add(fields, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _add(self, fields: memoryview, fds: list[int]) -> U8 | None:
        segs = np.frombuffer(fields, SEG, offset=4)
        if any(seg["reserved"].tobytes() != bytes(3) for seg in segs):
            fault(Code.INVALID, "MAP: reserved bytes are not zero")
        ring = None
        for seg, fd in zip(segs, fds, strict=True):
            number, kind, size = int(seg["id"]), int(seg["kind"]), int(seg["size"])
            if kind == SEGMENT and number not in self.bytes:
                self.bytes[number] = map_file(fd, size, writable=False)
            elif kind == GENERATIONS and number not in self.gens:
                self.gens[number] = map_file(fd, size - size % 8, writable=False).view(np.uint64)
            elif kind == STAGING:
                if number:
                    fault(Code.INVALID, f"a staging ring with id {number}")
                ring = map_file(fd, size, writable=True)
            elif not 1 <= kind <= 3:
                fault(Code.INVALID, f"a segment of kind {kind}")
        return ring

    def check(self, places: Records) -> None:
        """Holds the places that are OK against the maps.

        STATE: a segment that was never announced. LENGTH: bytes outside of it, a generation
        outside of its table. INVALID: a tier or attest that is none.
        """
        if not len(places) or self._plainly_right(places):
            return
        status = places["status"]
        if status.any():
            places = places[status == 0]
        for number in np.unique(places["seg"]):
            self._check_one(int(number), places[places["seg"] == number])

    def _plainly_right(self, places: Records) -> bool:
        """Whether all are OK, of one tier, in one segment of less than 4 GiB and not close to its end: one reduction tells.

        False says nothing: each is then looked at for itself.
        """
        if self._words.shape[1] != len(places):
            self._words = np.empty((16, len(places)), np.uint32)
            self._parts = self._split()
        words, inverse, gen_offs, odds = self._parts
        words[:] = places.view(_WORD).reshape(-1, 8).T  # status, tier, attest | slot | gen | seg | len | gen_off | off, low and high
        np.invert(words, inverse)  # the most of these is what the least of those is
        np.left_shift(gen_offs, 29, odds)  # 0: a multiple of 8
        head, _, _, seg, size, gen_off, off, high, not_head, _, _, not_seg, _, _, not_off, odd = np.maximum.reduce(self._words, 1).tolist()
        data, gens = self.bytes.get(seg), self.gens.get(seg)
        return (data is not None and gens is not None and head == not_head ^ _ONES and head in _GOOD and seg == not_seg ^ _ONES and not high and not odd
                and not_off ^ _ONES >= HEADER_LEN and off + size <= len(data) and gen_off + 8 <= gens.nbytes)

    def _check_one(self, number: int, places: Records) -> None:
        data, gens = self.bytes.get(number), self.gens.get(number)
        if data is None or gens is None:
            fault(Code.STATE, f"segment {number} was never announced")
        words = places.view("<u4").reshape(-1, 8)  # status.. | slot | gen | seg | len | gen_off | off
        most = words.max(0)
        off = places["off"]
        begin, end = int(off.min()), int(off.max())
        if begin < HEADER_LEN or end > len(data) or int((off + words[:, 4]).max()) > len(data):
            fault(Code.LENGTH, f"a body outside of segment {number}, which has {len(data)} bytes")
        if int(most[5]) + 8 > gens.nbytes or int(np.bitwise_or.reduce(words[:, 5])) & 7:
            fault(Code.LENGTH, f"a generation outside of the table of segment {number}, which has {gens.nbytes} bytes")
        if int(places["tier"].max()) > 2 or int(places["attest"].max()) > 2:
            fault(Code.INVALID, "a tier or attest above 2")

    def current(self, places: Records) -> Bools:
        """Which of checked places still hold the block that they name, by their generation words."""
        ok: Bools = places["status"] == 0
        segs, gen_off, gen = places["seg"], places["gen_off"], places["gen"]
        number = int(segs[0]) if len(segs) else 0
        if ok.all() and (segs == number).all():
            if not len(segs):
                return ok
            table = self._of(number)[1]
            same: Bools = table[gen_off >> 3] == gen
            return same
        for number in np.unique(segs[ok]):
            of = ok & (segs == number)
            ok[of] = self._of(int(number))[1][gen_off[of] >> 3] == gen[of]
        return ok

    def body(self, place: np.void) -> U8:
        """The bytes of one checked place, read-only."""
        at = int(place["off"])
        return self._of(int(place["seg"]))[0][at:at + int(place["len"])]

    def heads(self, places: Records) -> Records:
        """A copy of the MRDN headers of checked places, shape (n,); zero where the status is not OK."""
        out = np.zeros(len(places), HEAD)
        for i in np.flatnonzero(places["status"] == 0):
            at = int(places["off"][i])
            out[i] = self._of(int(places["seg"][i]))[0][at - HEADER_LEN:at].view(HEAD)[0]
        return out


_fences = threading.Lock()


def fence() -> None:
    """Orders the loads before it in front of those behind it, on processors that would not (arm64): a release, then an acquire."""
    with _fences:
        pass
    with _fences:
        pass


