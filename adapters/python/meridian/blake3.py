"""BLAKE3-256 (https://github.com/BLAKE3-team/BLAKE3-specs), many messages of one length at a time.

A batch of block keys is one message of 64 bytes a block, so all of them go through the
rounds together as columns. It is for keys and manifests, not for bodies.
"""
from __future__ import annotations

from typing import Sequence

import numpy as np

from .records import U8, U32

_IV = np.array([0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19], np.uint32)
_PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
_CHUNK_START, _CHUNK_END, _PARENT, _ROOT = 1, 2, 4, 8
_CHUNK = 1024


def _rotate(x: U32, by: int) -> U32:
    return x >> np.uint32(by) | x << np.uint32(32 - by)


def _quarter(v: list[U32], a: int, b: int, c: int, d: int, x: U32, y: U32) -> None:
    """A quarter round for four columns or diagonals at once: each entry has shape (4, n)."""
    v[a] = v[a] + v[b] + x
    v[d] = _rotate(v[d] ^ v[a], 16)
    v[c] = v[c] + v[d]
    v[b] = _rotate(v[b] ^ v[c], 12)
    v[a] = v[a] + v[b] + y
    v[d] = _rotate(v[d] ^ v[a], 8)
    v[c] = v[c] + v[d]
    v[b] = _rotate(v[b] ^ v[c], 7)


def _compress(cv: U32, words: U32, counter: int, size: int, flags: int) -> U32:
    """cv has shape (8, n), words (16, n); the new cv."""
    n = words.shape[1]
    tail = np.array([counter & 0xFFFFFFFF, counter >> 32, size, flags], np.uint32)
    v = [cv[:4], cv[4:], np.broadcast_to(_IV[:4, None], (4, n)), np.broadcast_to(tail[:, None], (4, n))]
    order: Sequence[int] = range(16)
    for _ in range(7):
        m = words[list(order)]
        _quarter(v, 0, 1, 2, 3, m[0:8:2], m[1:8:2])
        v[1], v[2], v[3] = np.roll(v[1], -1, 0), np.roll(v[2], -2, 0), np.roll(v[3], -3, 0)
        _quarter(v, 0, 1, 2, 3, m[8::2], m[9::2])
        v[1], v[2], v[3] = np.roll(v[1], 1, 0), np.roll(v[2], 2, 0), np.roll(v[3], 3, 0)
        order = [order[i] for i in _PERMUTATION]
    return np.concatenate((v[0] ^ v[2], v[1] ^ v[3]))


def _chunk(data: U8, counter: int, root: int) -> U32:
    n, size = data.shape
    cv: U32 = np.broadcast_to(_IV[:, None], (8, n))
    last = max(size - 1, 0) // 64
    for i in range(last + 1):
        part = data[:, 64 * i:64 * i + 64]
        block = np.zeros((n, 64), np.uint8)
        block[:, :part.shape[1]] = part
        words = np.ascontiguousarray(block.view("<u4").astype(np.uint32).T)
        flags = (_CHUNK_START if i == 0 else 0) | (_CHUNK_END | root if i == last else 0)
        cv = _compress(cv, words, counter, part.shape[1], flags)
    return cv


def _tree(data: U8, counter: int, root: int) -> U32:
    size = data.shape[1]
    if size <= _CHUNK:
        return _chunk(data, counter, root)
    left = _CHUNK << (((size - 1) // _CHUNK).bit_length() - 1)
    words = np.concatenate((_tree(data[:, :left], counter, 0), _tree(data[:, left:], counter + left // _CHUNK, 0)))
    return _compress(np.broadcast_to(_IV[:, None], (8, len(data))), words, 0, 64, _PARENT | root)


def blake3_many(messages: U8) -> U8:
    """Digests of n messages, shape (n, length) to (n, 32)."""
    if not len(messages):
        return np.empty((0, 32), np.uint8)
    return np.ascontiguousarray(_tree(messages, 0, _ROOT).T).astype("<u4").view(np.uint8)


def blake3(message: bytes) -> bytes:
    """The digest of one message, 32 bytes."""
    return blake3_many(np.frombuffer(message, np.uint8).reshape(1, -1)).tobytes()
