"""Manifests, namespaces and keys: docs/spec/mrdn-v1.md."""
from __future__ import annotations

import dataclasses
import functools
import unicodedata
from typing import Sequence

import numpy as np

from .blake3 import blake3, blake3_many
from .errors import Code, MeridianError
from .records import KEY, U8, Records

MAX_MANIFEST = 4096  # bytes, all lines together
_OPTIONAL = frozenset(("kv_group", "kv_group_kind", "kv_window", "scale_bytes", "scale_dtype"))
MAX_VALUE = 512  # bytes of one text


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What the blocks of a namespace are: whose, of which model, in which layout, of which part of the model.

    Numbers are u32; texts are UTF-8 of at most 512 bytes without control characters. Two
    manifests that differ in one field are two namespaces and never share a key.
    """

    tenant: str = ""
    model: str = ""
    revision: str = ""
    role: str = ""
    dtype: str = ""
    layout: str = ""
    hash_scheme: str = ""  # how the engine makes its block hashes
    block_tokens: int = 0  # tokens of a full block
    block_bytes: int = 0  # body of a full block; the last of a chain may be shorter
    kv_heads: int = 0
    head_size: int = 0
    layer_first: int = 0  # both included
    layer_last: int = 0
    tp_rank: int = 0
    tp_size: int = 0
    pp_rank: int = 0
    pp_size: int = 0
    dcp_rank: int = 0
    dcp_size: int = 0
    # Left out of the canonical form while they are zero, so older manifests keep their bytes.
    kv_group: int = 0  # index of the KV cache group of a hybrid model
    kv_group_kind: str = ""  # full, sliding, mamba …
    kv_window: int = 0  # tokens of a sliding window
    scale_bytes: int = 0  # of KV scales inside block_bytes
    scale_dtype: str = ""

    @functools.cached_property
    def canonical(self) -> bytes:
        """The one form of this manifest. MeridianError MANIFEST: a value that cannot be."""
        lines = []
        for field in sorted(dataclasses.fields(self), key=lambda f: f.name):
            value = getattr(self, field.name)
            _check(field.name, value, type(field.default))
            if not value and field.name in _OPTIONAL:
                continue
            lines.append(f"{field.name}={value}\n")
        whole = "".join(lines).encode()
        if len(whole) > MAX_MANIFEST:
            raise MeridianError(Code.MANIFEST, f"{len(whole)} bytes, a manifest has at most {MAX_MANIFEST}")
        return whole

    @functools.cached_property
    def namespace(self) -> bytes:
        """BLAKE3-256 of the canonical form, 32 bytes."""
        return blake3(self.canonical)

    def key(self, engine_hash: bytes) -> bytes:
        """The key of a block: 32 bytes. engine_hash is the engine's own hash of the block and all before it, of any length."""
        return blake3(self.namespace + engine_hash)

    def keys(self, hashes: "U8 | Sequence[bytes]") -> Records:
        """Keys of n blocks: hashes of shape (n, length), or n bytes objects of one length, to an array of shape (n,) and dtype V32.

        ValueError: another dtype than u8, whose values would lose bytes; another shape; lengths that differ.
        """
        if not isinstance(hashes, np.ndarray):
            hashes = _rows(hashes)
        if hashes.dtype != np.uint8 or hashes.ndim != 2:
            raise ValueError(f"hashes are (n, length) of u8, not {hashes.shape} of {hashes.dtype}")
        n, size = hashes.shape
        messages = np.empty((n, 32 + size), np.uint8)
        messages[:, :32] = np.frombuffer(self.namespace, np.uint8)
        messages[:, 32:] = hashes
        return blake3_many(messages).view(KEY).reshape(-1)


def _rows(hashes: Sequence[bytes]) -> U8:
    """Hashes of one length as an array of shape (n, length)."""
    sizes = sorted({len(h) for h in hashes})
    if len(sizes) > 1:
        raise ValueError(f"hashes of one call have one length, these have from {sizes[0]} to {sizes[-1]} bytes")
    rows: U8 = np.frombuffer(b"".join(hashes), np.uint8).reshape(len(hashes), sizes[0] if sizes else 0)
    return rows


def _check(field: str, value: object, kind: type) -> None:
    if type(value) is not kind:
        raise MeridianError(Code.MANIFEST, f"{field}: {value!r} is no {kind.__name__}")
    if isinstance(value, str):
        if len(value.encode(errors="surrogatepass")) > MAX_VALUE:
            raise MeridianError(Code.MANIFEST, f"{field}: a text has at most {MAX_VALUE} bytes")
        if any(unicodedata.category(c) in ("Cc", "Cs") for c in value):
            raise MeridianError(Code.MANIFEST, f"{field}: a control character")
    elif not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise MeridianError(Code.MANIFEST, f"{field}: {value!r} is no u32")
