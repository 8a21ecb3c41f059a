"""Groups: the sessions of one engine, such as a scheduler and a worker a rank."""
from __future__ import annotations

import dataclasses
import os
import secrets
from typing import Final

from .errors import Code, ProtocolError, RequestError

AUTH_GROUP: Final = 5
SECRET_LEN: Final = 32


@dataclasses.dataclass(frozen=True)
class Group:
    """Which engine a session belongs to. Sessions of one user with the same agent and inc are one engine.

    Leases, generation requests, namespaces, pins and the share of the daemon's memory are the
    group's; the staging ring, hold leases and reservations are a session's. The first process
    dials with Group.new(secret=True) and hands Engine.group to the others.
    """

    agent: bytes  # 16 bytes, not all zero
    inc: int  # u64, not zero: another one after each start of the engine
    secret: bytes | None = None  # 32 bytes; b"": the daemon is to make one; None: there is none

    def __post_init__(self) -> None:
        if len(self.agent) != 16 or not any(self.agent) or not 0 < self.inc < 1 << 64:
            raise ValueError("a group has 16 bytes of agent and a u64 inc, neither zero")
        if self.secret is not None and len(self.secret) not in (0, SECRET_LEN):
            raise ValueError(f"a group's secret has {SECRET_LEN} bytes")

    @staticmethod
    def new(secret: bool = False) -> "Group":
        """A group that nobody else has. secret: strangers of the same user are kept out by a secret that the daemon makes."""
        return Group(os.urandom(16), secrets.randbits(63) + 1, b"" if secret else None)

    def auth(self) -> tuple[tuple[int, bytes], ...]:
        """The elements for HELLO."""
        return () if self.secret is None else ((AUTH_GROUP, self.secret),)

    def joined(self, auth: dict[int, bytes]) -> "Group":
        """The group as others join it, with the secret that the daemon's HELLO brought."""
        if self.secret != b"":
            return self
        made = auth.get(AUTH_GROUP, b"")
        if len(made) != SECRET_LEN:
            raise ProtocolError(Code.AUTH, f"the daemon made a secret of {len(made)} bytes")
        return dataclasses.replace(self, secret=made)


def needs_group(op: str) -> RequestError:
    return RequestError(op, Code.UNSUPPORTED, "the daemon is of an older release and has no feature GROUP")
