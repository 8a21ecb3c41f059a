"""CRC-32C (Castagnoli), for agents without feature PLAIN.

The raw register is linear in the message: the register of a row of bytes is the XOR of one
table entry a position, and rows combine by the same rule, since zeros in front change
nothing. So all rows of a message are one gather and one reduction.
"""
from __future__ import annotations

import functools

import numpy as np

from .records import U8, U32

ROW = 64  # bytes of a row, then rows of 64 registers
SMALL = 96  # below this many bytes a loop is faster


def _bytewise() -> list[int]:
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_TABLE = _bytewise()


def _over_zeros(registers: U32, count: int) -> U32:
    """The registers after count zero bytes more."""
    table = np.array(_TABLE, np.uint32)
    for _ in range(count):
        registers = table[registers & 255] ^ (registers >> np.uint32(8))
    return registers


@functools.cache
def _tables() -> tuple[tuple[U32, U32], ...]:
    """For rows of bytes, of registers 64 bytes apart, and of registers 4,096 bytes apart: a flat table and the offsets in it."""
    stages = []
    table = np.empty((ROW, 256), np.uint32)
    entry = np.array(_TABLE, np.uint32)
    for position in reversed(range(ROW)):
        table[position] = entry
        entry = _over_zeros(entry, 1)
    stages.append(table)
    for apart in (ROW, ROW * ROW):
        wide = np.empty((ROW, 4, 256), np.uint32)
        entry4 = np.arange(256, dtype=np.uint32)[None, :] << np.array([0, 8, 16, 24], np.uint32)[:, None]
        step = _powers(apart)
        for position in reversed(range(ROW)):
            wide[position] = entry4
            entry4 = step[0][entry4 & 255] ^ step[1][entry4 >> 8 & 255] ^ step[2][entry4 >> 16 & 255] ^ step[3][entry4 >> 24]
        stages.append(wide.reshape(ROW * 4, 256))
    return tuple((np.ascontiguousarray(t.reshape(-1)), np.arange(0, t.size, 256, dtype=np.uint32)) for t in stages)


@functools.cache
def _powers(count: int) -> U32:
    """Four tables that move a register over count zero bytes, a byte of it each."""
    start = np.arange(256, dtype=np.uint32)[None, :] << np.array([0, 8, 16, 24], np.uint32)[:, None]
    return _over_zeros(start, count)


def _registers(data: U8, stage: tuple[U32, U32]) -> U32:
    table, offsets = stage
    width = len(offsets)
    short = -len(data) % width
    if short:
        data = np.concatenate((np.zeros(short, np.uint8), data))
    at = data.reshape(-1, width) + offsets
    out: U32 = np.bitwise_xor.reduce(table.take(at), axis=1)
    return out


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The checksum of data: 0xE3069283 of b"123456789"."""
    crc, begin, size = 0xFFFFFFFF, 0, len(data)
    while size - begin >= SMALL:
        part = np.frombuffer(data, np.uint8, min(size - begin, ROW ** 3), begin).copy()
        begin += len(part)
        part[:4] ^= np.frombuffer(crc.to_bytes(4, "little"), np.uint8)
        for stage in _tables():
            registers = _registers(part, stage)
            part = registers.view(np.uint8)
        crc = int(registers[0])
    for byte in data[begin:]:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF
