"""The records of the engine's socket as numpy dtypes: docs/spec/link-v1.md, sections 5 and 10.

All integers are little-endian, without padding. Arrays of these dtypes are what travels:
a batch is filled and read by column, never item by item.
"""
from __future__ import annotations

from typing import Any, Sequence, TypeAlias, Union

import numpy as np
import numpy.typing as npt

Records: TypeAlias = npt.NDArray[np.void]
U8: TypeAlias = npt.NDArray[np.uint8]
U16: TypeAlias = npt.NDArray[np.uint16]
U32: TypeAlias = npt.NDArray[np.uint32]
U64: TypeAlias = npt.NDArray[np.uint64]
I32: TypeAlias = npt.NDArray[np.int32]
Bools: TypeAlias = npt.NDArray[np.bool_]
Buffer: TypeAlias = Union[bytes, bytearray, memoryview, "npt.NDArray[Any]"]
Keys: TypeAlias = Union[Records, U8, bytes, Sequence[bytes]]

KEY = np.dtype("V32")
ID = np.dtype("V16")
CODE = np.dtype("<u2")

WANT = np.dtype([("ns", "<u2"), ("flags", "<u2"), ("off", "<u4"), ("max", "<u4"), ("slot", "<u4"), ("gen", "<u4"), ("key", KEY)])
HAVE = np.dtype([("status", "<u2"), ("tier", "u1"), ("attest", "u1"), ("len", "<u4"), ("head", "V32"), ("slot", "<u4"), ("gen", "<u4")])
PLACE = np.dtype([("status", "<u2"), ("tier", "u1"), ("attest", "u1"), ("slot", "<u4"), ("gen", "<u4"), ("seg", "<u4"), ("len", "<u4"),
                  ("gen_off", "<u4"), ("off", "<u8")])
PUT_ITEM = np.dtype([("ns", "<u2"), ("tier", "u1"), ("reserved", "u1"), ("len", "<u4"), ("off", "<u8"), ("key", KEY), ("req", "<u4")])
SEG = np.dtype([("id", "<u4"), ("kind", "u1"), ("reserved", "V3"), ("size", "<u8")])
HEAD = np.dtype([("magic", "S4"), ("version", "<u4"), ("body_len", "<u4"), ("tier", "u1"), ("padding", "V3"), ("checksum", "V16")])

HOLDER = np.dtype([("agent", ID), ("inc", "<u8")])
LOAD_ITEM = np.dtype([("ns", "<u2"), ("flags", "<u2"), ("holder", "<u2"), ("reserved", "<u2"), ("slot", "<u4"), ("gen", "<u4"), ("key", KEY)])
STORE_ITEM = np.dtype([("ns", "<u2"), ("tier", "u1"), ("flags", "u1"), ("len", "<u4"), ("off", "<u8"), ("key", KEY), ("req", "<u4"),
                       ("pos", "<u4"), ("pin_ms", "<u4")])
FILL_ITEM = np.dtype([("item", "<u4"), ("len", "<u4"), ("off", "<u8")])
EVICTED_ITEM = np.dtype([("req", "<u4"), ("ns", "<u2"), ("reserved", "<u2"), ("key", KEY)])


def keys_array(keys: Keys) -> Records:
    """Keys as an array of shape (n,) and dtype V32; no copy of what is such an array, or (n, 32) of u8 in one piece.

    ValueError: not a whole number of keys of 32 bytes.
    """
    if isinstance(keys, np.ndarray):
        if keys.dtype == KEY:
            return keys.reshape(-1)  # type: ignore[return-value]
        if keys.dtype == np.uint8 and keys.ndim == 2 and keys.shape[1] == 32:
            raw_keys: Records = np.ascontiguousarray(keys).view(KEY).reshape(-1)
            return raw_keys
        raise ValueError(f"keys are (n,) of V32 or (n, 32) of u8, not {keys.shape} of {keys.dtype}")
    raw = keys if isinstance(keys, (bytes, bytearray, memoryview)) else b"".join(keys)
    if not isinstance(keys, (bytes, bytearray, memoryview)) and any(len(k) != 32 for k in keys):
        raise ValueError("a key has 32 bytes")
    return np.frombuffer(raw, KEY)


def flat(buffer: Buffer) -> U8:
    """The bytes of a buffer in one piece, without a copy. ValueError: it is not in one piece."""
    if isinstance(buffer, np.ndarray):
        if not buffer.flags.c_contiguous:
            raise ValueError("an array that is not in one piece")
        return buffer.reshape(-1).view(np.uint8)
    return np.frombuffer(buffer, np.uint8)
