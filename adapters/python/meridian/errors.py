"""Status codes, and the exceptions that carry one.

Every exception of this package is a MeridianError with a ``code`` of docs/errors.md.
A batch never fails as a whole for one item: codes of items are numbers in an array.
"""
from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """The codes of docs/errors.md. 1xx is of an item, 2xx of a request, 3xx of the connection."""

    OK = 0
    ABSENT = 100
    STALE = 101
    EXISTS = 102
    FULL = 103
    CHECKSUM = 104
    TOO_LARGE = 105
    NS_UNKNOWN = 106
    LEASE_LOST = 107
    DENIED = 108
    GEOMETRY = 109
    INVALID = 110
    DEADLINE = 200
    CANCELLED = 201
    BUSY = 202
    DRAINING = 203
    UNSUPPORTED = 204
    LANE_LOST = 205
    NO_PROGRESS = 206
    UNREACHABLE = 207
    INTERNAL = 208
    LINK_MAGIC = 300
    CRC = 301
    LENGTH = 302
    STATE = 303
    FLOW_VIOLATION = 304
    AUTH = 305
    LINK_VERSION = 306
    HELLO_TIMEOUT = 307
    INCARNATION = 308
    TOO_MANY = 309
    TRUNCATED = 400
    MAGIC = 401
    VERSION = 402
    TIER = 403
    PADDING = 404
    TRAILING = 405
    ENVELOPE = 406
    MANIFEST = 407
    CONFIG = 600


def name_of(code: int) -> str:
    """The name of a code, or its number where this release does not know it."""
    try:
        return Code(code).name
    except ValueError:
        return f"code {code}"


class MeridianError(Exception):
    """Any error of this package. ``code`` is a Code, or a number that this release does not know."""

    code: int

    def __init__(self, code: int, text: str = "") -> None:
        name = name_of(code)
        short = text.removesuffix(f": {name}")  # the daemon's texts end with the code
        super().__init__(f"{name}: {short}" if text else name)
        self.code = code
        self.text = text


class RequestError(MeridianError):
    """A request that was refused as a whole, or whose deadline passed. ``retry_ms`` is set with BUSY."""

    def __init__(self, op: str, code: int, text: str = "", retry_ms: int = 0) -> None:
        super().__init__(code, f"{op}: {text}" if text else op)
        self.op = op
        self.text = text
        self.retry_ms = retry_ms


class OpenError(RequestError):
    """A manifest that was refused. With GEOMETRY ``field`` differs: ``ours`` here, ``theirs`` at the daemon."""

    def __init__(self, code: int, text: str, retry_ms: int, field: str, ours: str, theirs: str) -> None:
        if field:
            text = f"{field} is {ours!r} here and {theirs!r} at the daemon"
        super().__init__("open", code, text, retry_ms)
        self.field, self.ours, self.theirs = field, ours, theirs


class ClosedError(MeridianError):
    """The connection is over, or there was none (UNREACHABLE). All leases are void."""


class ProtocolError(ClosedError):
    """The daemon broke the protocol: nothing of the message was used, and the connection is over."""
