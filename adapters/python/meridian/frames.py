"""Frames of the engine's socket: header, trailer, HELLO, END and the texts. No I/O.

docs/spec/link-v1.md, sections 2, 3, 5 and 10.
"""
from __future__ import annotations

import os
import struct
from typing import Final, NamedTuple, NoReturn

from .crc import crc32c
from .errors import Code, ProtocolError

HEADER: Final = struct.Struct("<IBBBBQII")
HEADER_LEN: Final = 24
TRAILER_LEN: Final = 4
MAX_CONTROL: Final = 1 << 20
MAX_ITEMS: Final = 4096
MAX_TEXT: Final = 256
MAX_SEGS: Final = 253  # descriptors of one message: SCM_MAX_FD of Linux
MAX_PROMPT: Final = 260_000
MAX_ROWS: Final = 4096
MAX_TOKENS: Final = 65_536
MAX_INJECT: Final = 256
MAX_REQS: Final = 256
MAX_LEASE_MS: Final = 30_000
MAX_DEADLINE_MS: Final = 600_000
HELLO_TIMEOUT: Final = 3.0  # seconds

LOCAL: Final = 1 << 0
RING: Final = 1 << 2
GROUP: Final = 1 << 3
PLAIN: Final = 1 << 4

CRITICAL: Final = 1

HELLO, OPEN, OPENED, HAS, TABLE, END = 1, 2, 3, 4, 5, 11
RENEW, RELEASE, PING, CANCEL, GOAWAY, ERROR = 12, 13, 15, 16, 18, 19
MAP, ACQUIRE, ACQUIRED, PUT, BEGIN, TOKENS, PHASE, FINISH = 32, 33, 34, 35, 36, 37, 38, 39
LOAD, LOADED, RESERVE, RESERVED, FILL, PUTAT, PHASEAT, RESUME, HANDOFF, EVICTED, PROCESS = range(43, 54)

# Bounds of len of what an agent sends, the trailer included. Every other known type is STATE from it.
FROM_AGENT: Final = {
    HELLO: (120, 16_568), OPENED: (14, 782), TABLE: (24, 196_632), END: (16, 8_464), GOAWAY: (12, 268), ERROR: (16, 272),
    MAP: (8, 4_056), ACQUIRED: (24, 131_096), PHASE: (16, 1_040),
    LOADED: (60, 131_100), RESERVED: (16, 8_208), PHASEAT: (20, 1_044), EVICTED: (8, 163_848),
}
OTHERS: Final = frozenset(range(1, 22)) | frozenset(range(32, 43)) - frozenset(FROM_AGENT)
OTHERS_OF_GROUP: Final = frozenset(range(43, 54)) - frozenset(FROM_AGENT)
ADVICE: Final = frozenset((PHASE, PHASEAT, EVICTED))


def fault(code: Code, text: str) -> NoReturn:
    """Raises what ends the connection: the daemon broke the protocol."""
    raise ProtocolError(code, text)


def frame(kind: int, req: int, parts: tuple[bytes | memoryview, ...], plain: bool, flags: int = 0) -> bytes:
    """A whole control frame of the fields in parts. plain: both HELLOs have feature PLAIN, so checksums are 0."""
    size = TRAILER_LEN
    for p in parts:
        size += len(p) if isinstance(p, bytes) else p.nbytes
    if plain:
        return b"".join((HEADER.pack(size, kind, flags, 0, 0, req, 0, 0), *parts, b"\0\0\0\0"))
    head = HEADER.pack(size, kind, flags, 0, 0, req, 0, 0)[:20]
    fields = b"".join(parts)
    return b"".join((head, crc32c(head).to_bytes(4, "little"), fields, crc32c(fields).to_bytes(4, "little")))


def check_header(h: tuple[int, ...], raw: memoryview, plain: bool, spoken: frozenset[int], first: bool) -> None:
    """The checks of a header, whose bytes are raw, in the order of section 2. spoken: known types that are STATE from an agent."""
    length, kind, flags, cls, reserved, crc = h
    if first and kind not in (HELLO, ERROR):
        fault(Code.LINK_MAGIC, f"the first frame has type {kind}: this is no engine's socket")
    if crc != (0 if plain else crc32c(raw[:20])):
        fault(Code.CRC, "checksum of a frame header")
    if flags > 1 or cls > 3 or reserved:
        fault(Code.INVALID, f"flags {flags}, class {cls}, reserved byte {reserved}")
    least, most = FROM_AGENT.get(kind, (TRAILER_LEN, MAX_CONTROL))
    if not least <= length <= most:
        fault(Code.LENGTH, f"a frame of type {kind} has {length} bytes, least is {least} and most {most}")
    if kind not in FROM_AGENT:
        if kind == 9:
            fault(Code.FLOW_VIOLATION, "DATA has no place on an engine's socket")
        if kind in spoken:
            fault(Code.STATE, f"a frame of type {kind} does not come from an agent")
        if flags & CRITICAL:
            fault(Code.UNSUPPORTED, f"a critical frame of unknown type {kind}")


class Hello(NamedTuple):
    """What counts of the agent's HELLO."""

    agent: bytes  # 16 bytes
    inc: int
    reqs: int  # requests at once, 1 to 256
    items: int  # items a batch, 1 to 4,096
    features: int
    auth: dict[int, bytes]


_HELLO = struct.Struct("<4sHH16sQ16sB3x5IQ32sHH")


def hello(features: int, agent: bytes, inc: int, auth: list[tuple[int, bytes]]) -> bytes:
    """The engine's HELLO, a whole frame."""
    fields = _HELLO.pack(b"MLNK", 1, 1, agent, inc, bytes(16), 0, MAX_REQS, MAX_ITEMS, MAX_CONTROL, 0, 0, features, os.urandom(32), len(auth), 0)
    for kind, value in auth:
        fields += struct.pack("<HH", kind, len(value)) + value
    return frame(HELLO, 0, (fields,), plain=False, flags=CRITICAL)


def parse_hello(p: bytes) -> Hello:
    """The agent's HELLO. ProtocolError: it is none, speaks another version, or has no feature LOCAL."""
    magic, least, most, agent, inc, _, lane, reqs, items, _, _, _, features, _, auth_n, reserved = _HELLO.unpack_from(p)
    if magic != b"MLNK":
        fault(Code.LINK_MAGIC, f"magic {magic!r}")
    if not least <= 1 <= most:
        fault(Code.LINK_VERSION, f"version 1 here, {least} to {most} at the daemon")
    if lane or auth_n > 16 or reserved or p[49:52] != bytes(3):
        fault(Code.INVALID, "HELLO")
    if not features & LOCAL:
        fault(Code.UNSUPPORTED, "this is no engine's socket: HELLO has no feature LOCAL")
    auth: dict[int, bytes] = {}
    at = _HELLO.size
    for _ in range(auth_n):
        if len(p) - at < 4:
            fault(Code.LENGTH, "an auth element is cut short")
        kind, size = struct.unpack_from("<HH", p, at)
        if size > 1024 or size > len(p) - at - 4:
            fault(Code.LENGTH, f"an auth element of {size} bytes")
        auth.setdefault(kind, p[at + 4:at + 4 + size])
        at += 4 + size
    if at != len(p):
        fault(Code.LENGTH, "bytes behind HELLO")
    return Hello(agent, inc, min(max(reqs, 1), MAX_REQS), min(max(items, 1), MAX_ITEMS), features, auth)


class End(NamedTuple):
    """END: how a request went. statuses: u16 little-endian, one an item, or none."""

    code: int
    retry_ms: int
    statuses: bytes
    text: str


_END = struct.Struct("<HHII")
END_OK: Final = End(0, 0, b"", "")
_OK: Final = bytes(12)  # END_OK as it travels


def parse_end(p: memoryview) -> End:
    if p == _OK:
        return END_OK
    code, text_len, retry_ms, n = _END.unpack_from(p)
    if text_len > MAX_TEXT or n > MAX_ITEMS:
        fault(Code.LENGTH, f"END with a text of {text_len} bytes and {n} statuses")
    at = 12 + 2 * n
    if len(p) != at + text_len:
        fault(Code.LENGTH, f"END of {len(p)} bytes, its counts say {at + text_len}")
    return End(code, retry_ms, bytes(p[12:at]), text(p[at:]))


def text(p: memoryview) -> str:
    """A text for people. INVALID: it is no UTF-8."""
    try:
        return str(p, "utf-8")
    except UnicodeDecodeError:
        fault(Code.INVALID, "a text that is no UTF-8")


def parse_error(p: memoryview) -> tuple[int, str]:
    """ERROR: code, and a text for people."""
    offset, code, text_len = struct.unpack_from("<QHH", p)
    if text_len > MAX_TEXT or len(p) != 12 + text_len:
        fault(Code.LENGTH, "ERROR")
    said = text(p[12:])
    return code, f"{said} (at byte {offset} of what was sent)" if offset else said


def parse_goaway(p: memoryview) -> tuple[int, int, str]:
    """GOAWAY: milliseconds until the connection ends at the latest, code, text."""
    ms, code, text_len = struct.unpack_from("<IHH", p)
    if text_len > MAX_TEXT or len(p) != 8 + text_len:
        fault(Code.LENGTH, "GOAWAY")
    return ms, code, text(p[8:])


class Opened(NamedTuple):
    ns: int
    status: int
    field: str
    ours: str
    theirs: str


def parse_opened(p: memoryview) -> Opened:
    ns, status, f, o, t = struct.unpack_from("<5H", p)
    if max(f, o, t) > MAX_TEXT or len(p) != 10 + f + o + t:
        fault(Code.LENGTH, "OPENED")
    return Opened(ns, status, text(p[10:10 + f]), text(p[10 + f:10 + f + o]), text(p[10 + f + o:]))


def clip(value: str, most: int = MAX_TEXT) -> bytes:
    """At most that many bytes of a text, cut between two characters."""
    return value.encode()[:most].decode(errors="ignore").encode()


