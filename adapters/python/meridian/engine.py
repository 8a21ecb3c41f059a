"""The engine's side of the socket as a whole."""
from __future__ import annotations

import contextlib
import os
from typing import Final

from . import frames
from .errors import ClosedError
from .generation import Generation
from .group import Group, needs_group
from .session import Pending, nothing

FEATURES: Final = frames.RING | frames.GROUP | frames.PLAIN


class Engine(Generation):
    """A connection to the daemon of this node, from an inference engine or one of its processes.

    Engine(path) dials and exchanges HELLO within 3 s. group: which engine this process is of; a
    group of its own without. ClosedError: UNREACHABLE where nothing listens, or why the daemon
    refused: AUTH (the user, or the group's secret), TOO_MANY, DRAINING, LINK_VERSION. Every wait
    has a bound. Several threads may share an Engine.
    """

    def __init__(self, path: str, *, group: Group | None = None, features: int = FEATURES) -> None:
        group = group or Group.new()
        self._start()
        super().__init__(path, features, group.agent, group.inc, group.auth())
        self.group: Group | None = None  # as others join it; None: the daemon has no groups
        if self.features & frames.GROUP:
            try:
                self.group = group.joined(self._auth)
            except ClosedError as e:
                self.fail(e)
                self.close()
                raise

    def ping(self, timeout: float = 5.0) -> None:
        """Asks whether the daemon answers."""
        self.simple("ping", frames.PING, timeout=timeout).wait()

    def process(self, pidfd: int = -1, timeout: float = 5.0) -> None:
        """Shows the daemon this process by a pidfd (made here without), so that it grants hold leases across PID namespaces.

        RequestError: INVALID, it is no pidfd; UNSUPPORTED, the daemon has no feature GROUP.
        """
        if not self.features & frames.GROUP:
            raise needs_group("process")
        with contextlib.ExitStack() as closing:
            if pidfd < 0:
                pidfd = os.pidfd_open(os.getpid())
                closing.callback(os.close, pidfd)
            pending: Pending[None] = Pending(self, "process", 0, 0, nothing, timeout)
            self.request(pending, frames.PROCESS, fd=pidfd)
        pending.wait()

    def __enter__(self) -> "Engine":
        return self
