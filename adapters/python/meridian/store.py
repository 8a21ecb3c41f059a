"""Putting blocks: the staging ring, and PUT from it."""
from __future__ import annotations

import struct
import time
from typing import Callable, Final, NamedTuple, Sequence

import numpy as np

from . import frames
from .blocks import Space, deadline_ms
from .connection import QUANTUM
from .errors import Code, RequestError
from .group import needs_group
from .load import Loads
from .records import CODE, PUT_ITEM, SEG, STORE_ITEM, U8, U16, U32, U64, Buffer, Keys, Records, flat, keys_array
from .ring import ALIGN, Piece
from .session import TIMEOUT, Pending

THINK_COMPLETE: Final = 0
THINK_ACTIVE: Final = 1
OUTPUT_CRITICAL: Final = 2
PIN: Final = 1
AUTO: Final = 255  # the daemon decides by position and phase
RING_PARTS: Final = 4  # into how many requests at least a put is cut that would fill the ring


class Stored(NamedTuple):
    """How a put went. statuses: codes, shape (n,): OK, EXISTS, FULL … why: for people, of the first item that was refused."""

    statuses: U16
    why: str

    @property
    def kept(self) -> bool:
        """Whether every block is at the daemon now: OK or EXISTS."""
        return bool(((self.statuses == Code.OK) | (self.statuses == Code.EXISTS)).all())


class Staged:
    """Room for n bodies of at most size bytes in the staging ring: data has shape (n, size), to be filled and put.

    A Staged that is not put is given back by free.
    """

    __slots__ = ("data", "off", "piece", "_blocks")

    def __init__(self, blocks: "Store", piece: Piece, n: int, size: int) -> None:
        self._blocks, self.piece = blocks, piece
        stride = -(-size // ALIGN) * ALIGN
        ring = blocks.ring.data[piece.off:piece.off + n * stride]
        self.data: U8 = ring.reshape(n, stride)[:, :size]
        self.off = piece.off + stride * np.arange(n, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self.data)

    def free(self) -> None:
        """Gives the room back without a put. Again, and after a put was sent: nothing."""
        self._blocks.ring.release(self.piece)


# Starts the request of bodies that are staged: index of the first, its room, lengths, seconds left.
Send = Callable[[int, Staged, "U32 | Sequence[int] | None", float], Pending[Stored]]


class Store(Loads):
    """The part of an Engine that writes."""

    def need_ring(self, size: int, timeout: float = TIMEOUT) -> None:
        """Asks for a staging ring of at least size bytes, unless there is one.

        RequestError: BUSY with retry_ms for as long as others have too much; TOO_LARGE above the
        daemon's limit; STATE without an open namespace.
        """
        pending = self.start_ring(size, timeout)
        if pending is None:
            return
        pending.wait()
        if self.ring.size < size:
            raise RequestError("stage", Code.STATE, f"a ring of {size} bytes was granted, and there is one of {self.ring.size}")

    def start_ring(self, size: int, timeout: float = TIMEOUT) -> Pending[None] | None:
        """Asks for a staging ring of size bytes; None: there is one. See need_ring."""
        if size <= self.ring.size:
            return None
        if not self.features & frames.RING:
            raise RequestError("stage", Code.TOO_LARGE if self.ring.size else Code.STATE, f"{size} bytes, the staging ring has {self.ring.size}")
        seg = np.zeros(1, SEG)
        seg["kind"], seg["size"] = 3, size
        return self.simple("stage", frames.MAP, (1).to_bytes(4, "little"), seg.tobytes(), timeout=timeout)

    @staticmethod
    def staged_bytes(n: int, size: int) -> int:
        """Bytes of the ring that n bodies of at most size bytes take. ValueError: n or size below 1."""
        if n < 1 or size < 1:
            raise ValueError(f"room for {n} bodies of {size} bytes")
        return n * (-(-size // ALIGN) * ALIGN)

    def try_stage(self, n: int, size: int) -> Staged | None:
        """stage without waiting; None: there is no room now, or no such ring."""
        piece = self.ring.take(self.staged_bytes(n, size))
        return None if piece is None else Staged(self, piece, n, size)

    def stage(self, n: int, size: int, timeout: float = TIMEOUT) -> Staged:
        """Room in the staging ring for n bodies of at most size bytes (at least one each), to be written in place and put.

        It waits for a ring and for room in it. RequestError: as need_ring, and DEADLINE.
        """
        end = time.monotonic() + timeout
        self.need_ring(self.staged_bytes(n, size), timeout)
        while (staged := self.try_stage(n, size)) is None:
            left = end - time.monotonic()
            if left <= 0:
                raise RequestError("stage", Code.DEADLINE, f"no room for {n} bodies of {size} bytes in a staging ring of {self.ring.size}")
            if self._reading.locked():
                time.sleep(0.0005)  # who reads frees room
            self.poll(min(left, QUANTUM))
        return staged

    def start_put(self, space: Space, keys: Keys, staged: Staged, *, lens: "U32 | Sequence[int] | None" = None, tier: int = OUTPUT_CRITICAL,
                  req: int = 0, pos: "int | U32 | Sequence[int] | None" = None, pin: float = 0.0, timeout: float = TIMEOUT) -> Pending[Stored]:
        """Sends PUT of what was staged; see put. The room is free again at the answer, whatever it is."""
        try:
            array = keys_array(keys)
            if len(array) != len(staged):
                raise ValueError(f"{len(array)} keys for {len(staged)} bodies")
            size = _lengths(staged, lens)
            kind = frames.PUT if pos is None and not pin and tier != AUTO else frames.PUTAT
            if kind == frames.PUT:
                items = put_items(space, array, size, staged.off, tier, req)
            elif self.features & frames.GROUP:
                items = store_items(space, array, size, staged.off, tier, req, 0 if pos is None else pos, pin)
            else:
                raise needs_group("put")
            pending: Pending[Stored] = Pending(self, "put", 0, len(items), stored, timeout)
            pending.each = True
            pending.pieces = (staged.piece,)
            self.request(pending, kind, struct.pack("<II", deadline_ms(timeout), len(items)), items.data)
        except BaseException:
            staged.free()
            raise
        return pending

    def put(self, space: Space, keys: Keys, bodies: "Staged | U8 | Sequence[Buffer]", *, lens: "U32 | Sequence[int] | None" = None,
            tier: int = OUTPUT_CRITICAL, req: int = 0, pos: "int | U32 | Sequence[int] | None" = None, pin: float = 0.0,
            timeout: float = TIMEOUT) -> Stored:
        """Stores blocks; each has a status of its own. EXISTS: the key is stored already, which is no loss.

        bodies: what stage returned (nothing is copied here), an array of shape (n, size), or a
        buffer each. lens: bytes of each body where they are shorter. req: the generation request
        that they belong to, of begin. pos: the position of each block's first token in that
        request, the prompt's first is 0; tier AUTO lets the daemon decide by it. pin: seconds for
        which the blocks are not evicted, unless a peer has pulled them or the request is finished.
        Bodies may be used again when put returns.
        RequestError: BUSY, DEADLINE, DRAINING, TOO_LARGE: nothing, or not all, was tried;
        UNSUPPORTED: pos, pin or AUTO, and the daemon has no feature GROUP.
        """
        if isinstance(bodies, Staged):
            return self.start_put(space, keys, bodies, lens=lens, tier=tier, req=req, pos=pos, pin=pin, timeout=timeout).wait()
        array = keys_array(keys)
        if len(array) != len(bodies):
            raise ValueError(f"{len(array)} keys for {len(bodies)} bodies")

        def send(at: int, staged: Staged, short: "U32 | Sequence[int] | None", left: float) -> Pending[Stored]:
            to = at + len(staged)
            where = pos if pos is None or np.ndim(pos) == 0 else np.asarray(pos)[at:to]
            return self.start_put(space, array[at:to], staged, lens=short, tier=tier, req=req, pos=where, pin=pin, timeout=left)

        return self.in_parts(bodies, lens, timeout, send)

    def in_parts(self, bodies: "U8 | Sequence[Buffer]", lens: "U32 | Sequence[int] | None", timeout: float, send: Send) -> Stored:
        """Copies bodies into the staging ring, as many at a time as fit; send starts the request of those from an index on."""
        end = time.monotonic() + timeout
        statuses = np.zeros(len(bodies), CODE)
        why = ""
        sent: list[tuple[int, Pending[Stored]]] = []
        at = 0
        while at < len(bodies):
            n, size = self._part(bodies, at)
            staged = self.stage(n, max(size, 1), max(end - time.monotonic(), 0.0))
            short = _fill(staged, bodies, at, lens)
            sent.append((at, send(at, staged, short, max(end - time.monotonic(), 0.001))))
            at += n
        for begin, pending in sent:
            part = pending.wait()
            statuses[begin:begin + len(part.statuses)] = part.statuses
            why = why or part.why
        return Stored(statuses, why)

    def _part(self, bodies: "U8 | Sequence[Buffer]", at: int) -> tuple[int, int]:
        """How many bodies from at go into one request, and the longest of them."""
        most = min(self.items, len(bodies) - at)
        if isinstance(bodies, np.ndarray) and bodies.ndim == 2:
            longest = bodies.shape[1] * bodies.itemsize
            sizes = [longest] * min(most, 1)
        else:
            sizes = [_size(b) for b in bodies[at:at + most]]
            longest = max(sizes)
        stride = max(-(-longest // ALIGN) * ALIGN, ALIGN)
        self.need_ring(stride)
        fit = max(self.ring.size // RING_PARTS // stride, 1)
        return min(most, fit), longest


def _size(b: Buffer) -> int:
    return b.nbytes if isinstance(b, (memoryview, np.ndarray)) else len(b)


def _fill(staged: Staged, bodies: "U8 | Sequence[Buffer]", at: int, lens: "U32 | Sequence[int] | None") -> "U32 | Sequence[int] | None":
    """Copies bodies from at on into the ring; their lengths."""
    n = len(staged)
    if isinstance(bodies, np.ndarray) and bodies.ndim == 2:
        part = bodies[at:at + n]
        np.copyto(staged.data, part if part.dtype == np.uint8 else np.ascontiguousarray(part).view(np.uint8))
        return None if lens is None else lens[at:at + n]
    sizes = []
    for row, body in zip(staged.data, bodies[at:at + n]):
        source = flat(body)
        np.copyto(row[:len(source)], source)
        sizes.append(len(source))
    return sizes if lens is None else lens[at:at + n]


def _lengths(staged: Staged, lens: "U32 | Sequence[int] | None") -> "int | U32":
    """Bytes of each body, which must lie in what was staged for it."""
    size = staged.data.shape[1]
    if lens is None:
        return size
    lengths = np.asarray(lens, np.uint32)
    if len(lengths) and lengths.max() > size:
        raise ValueError(f"a body of {lengths.max()} bytes in room for {size}")
    return lengths


def put_items(space: Space, keys: Records, size: "int | U32", off: U64, tier: int, req: int) -> Records:
    """A record of dtype PUT_ITEM a body."""
    items = np.zeros(len(keys), PUT_ITEM)
    items["ns"], items["tier"], items["req"] = space.number, tier, req
    items["len"], items["off"], items["key"] = size, off, keys
    return items


def store_items(space: Space, keys: Records, size: "int | U32 | Sequence[int]", off: "int | U64", tier: int, req: int,
                pos: "int | U32 | Sequence[int]", pin: float) -> Records:
    """A record of dtype STORE_ITEM a body."""
    items = np.zeros(len(keys), STORE_ITEM)
    items["ns"], items["tier"], items["req"], items["pos"] = space.number, tier, req, pos
    items["len"], items["off"], items["key"] = size, off, keys
    if pin > 0:
        items["flags"], items["pin_ms"] = PIN, min(max(int(pin * 1000), 1), 0xFFFFFFFF)
    return items


def stored(p: Pending[Stored]) -> Stored:
    """The result of a PUT that was tried."""
    return Stored(np.frombuffer(p.end.statuses, CODE), p.end.text)
