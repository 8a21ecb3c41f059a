"""Who uses which bytes of the staging ring.

Pieces are handed out front to back; one is used again when all in front of it are free as
well. Only this side decides where bodies lie: the daemon checks that they are inside. A
ring grows at its end, so what is in use stays where it is.
"""
from __future__ import annotations

import collections
import threading
from typing import Final

import numpy as np

from .records import U8

ALIGN: Final = 64  # keeps bodies apart from one another's cache lines


class Piece:
    """Bytes [off, end) of the ring, until release."""

    __slots__ = ("off", "end", "free")

    def __init__(self, off: int, end: int) -> None:
        self.off, self.end, self.free = off, end, False


class Ring:
    def __init__(self) -> None:
        self.data: U8 = np.empty(0, np.uint8)
        self._pieces: collections.deque[Piece] = collections.deque()
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """Bytes; 0 before the daemon gave one."""
        return len(self.data)

    @property
    def used(self) -> int:
        """Pieces that are not free."""
        with self._lock:
            return sum(not p.free for p in self._pieces)

    def grow(self, data: U8) -> None:
        """Takes a map of the whole ring: the first, or a larger one of the same memory."""
        with self._lock:
            if len(data) > len(self.data):
                self.data = data

    def take(self, n: int) -> Piece | None:
        """n bytes, at least one; None where there is no room now."""
        with self._lock:
            need = -(-n // ALIGN) * ALIGN
            off, limit = 0, len(self.data)
            if self._pieces:
                oldest, off = self._pieces[0].off, self._pieces[-1].end
                if off <= oldest:  # came round
                    limit = oldest
                elif off + need > limit:
                    off, limit = 0, oldest
            if off + need > limit:
                return None
            piece = Piece(off, off + need)
            self._pieces.append(piece)
            return piece

    def release(self, piece: Piece) -> None:
        """Gives a piece back. Again: nothing."""
        with self._lock:
            piece.free = True
            while self._pieces and self._pieces[0].free:
                self._pieces.popleft()
