"""One Unix stream socket: whole frames out, whole frames in, descriptors beside them.

A frame whose first byte is out is completed before anything else is sent; what the kernel
did not take is kept here meanwhile. Every wait has a bound.
"""
from __future__ import annotations

import array
import contextlib
import os
import select
import socket
import struct
import threading
import time
from typing import Callable, Final

from . import frames
from .crc import crc32c
from .errors import ClosedError, Code, RequestError
from .frames import HEADER, HEADER_LEN, fault

QUANTUM: Final = 0.05  # seconds that one blocking read may take: how late an end of waiting is noticed at most
SEND_TIMEOUT: Final = 5.0  # seconds that the daemon may take for all bytes of a frame
BUFFER: Final = 256 << 10
KEEP: Final = 256 << 10  # bytes that wait for the kernel, above which advice is dropped
MAX_UNSENT: Final = 4 << 20  # bytes that wait for the kernel, above which who sends a request waits
SPIN: Final = 60_000  # nanoseconds that a read looks for bytes before it sleeps: an idle processor takes as long to wake
MAX_SLEEPS: Final = 64  # reads that sleep at once, after those that looked in vain
MAX_PENDING_FDS: Final = 4 * frames.MAX_SEGS

_NONE: Final = (1, 0)  # bounds that no length keeps
_TRAILER: Final = struct.Struct("<I")
_ANCILLARY: Final = socket.CMSG_SPACE(4 * frames.MAX_SEGS)
_SCM_RIGHTS: Final = (socket.SOL_SOCKET, socket.SCM_RIGHTS)
# Plain numbers: an enum costs a microsecond a call.
_READ: Final = int(socket.MSG_CMSG_CLOEXEC)
_NOW: Final = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
_READ_NOW: Final = int(socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
_LOST: Final = int(socket.MSG_CTRUNC)

# What recvmsg_into returns: length, ancillary data, flags, address.
_Message = tuple[int, list[tuple[int, int, bytes]], int, object]

# What handles a frame: type, req, fields. It may raise a MeridianError, which ends the connection.
Handler = Callable[[int, int, memoryview], None]


def dial(path: str) -> socket.socket:
    """Connects. ClosedError UNREACHABLE: nothing listens there."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(frames.HELLO_TIMEOUT)  # a listener whose queue is full
        sock.connect(path)
        sock.settimeout(None)
        seconds = int(QUANTUM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", seconds, int((QUANTUM - seconds) * 1e6)))
    except OSError as e:
        sock.close()
        raise ClosedError(Code.UNREACHABLE, f"{path}: {e.strerror or e}") from e
    return sock


class Socket:
    """The bytes of a connection. ``receive`` has one caller at a time, the holder of the engine's reading."""

    def __init__(self, sock: socket.socket, handle: Handler) -> None:
        self.sock = sock
        self.plain = False
        self.spoken: frozenset[int] = frames.OTHERS
        self.fds: list[int] = []
        self.nonblocking = False  # nobody may wait to send
        self._handle = handle
        self._buf = bytearray(BUFFER)
        self._view = memoryview(self._buf)
        self._low = self._high = 0
        self._first = True
        self._misses = 0  # reads in a row that looked in vain
        self._sleeps = 0  # reads that are to sleep at once
        self._writing = threading.RLock()
        self._rest = b""

    # Out.

    def send(self, data: bytes, meanwhile: Callable[[], None] | None = None) -> None:
        """Sends a whole frame, or several: now as far as the kernel takes it, and the rest as others call.

        It waits only while more than MAX_UNSENT bytes are kept already; meanwhile reads what comes
        then. ClosedError LANE_LOST: the daemon takes nothing for SEND_TIMEOUT, or has gone.
        RequestError BUSY: so much is kept, and nobody may wait here.
        """
        with self._writing:
            if not self._rest:
                sent = self._some(data)
                if sent == len(data):
                    return
                data = data[sent:]
            elif len(self._rest) > MAX_UNSENT:
                if self.nonblocking:
                    raise RequestError("send", Code.BUSY, f"{len(self._rest)} bytes wait for the daemon", retry_ms=10)
                self._finish(meanwhile)
            self._rest += data

    def offer(self, data: bytes) -> bool:
        """Sends a whole frame, now as far as the kernel takes it, and the rest later; never waits.

        False: nothing of it was sent, since more than KEEP bytes wait already, or another thread
        waits to send.
        """
        if not self._writing.acquire(blocking=False):
            return False
        try:
            if self.flush():
                self._rest = data[self._some(data):]
                return True
            if len(self._rest) + len(data) > KEEP:
                return False
            self._rest += data
            return True
        finally:
            self._writing.release()

    def nudge(self, timeout: float = 0.0) -> bool:
        """Sends of what is kept as much as the kernel takes, waiting at most timeout for that, or for something to read. True: there is."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN | select.POLLOUT)
        events = poll.poll(timeout * 1000)
        if self._writing.acquire(blocking=False):  # else another thread is sending
            try:
                self.flush()
            finally:
                self._writing.release()
        return any(e & ~select.POLLOUT for _, e in events)

    def flush(self) -> bool:
        """Sends of what is kept as much as the kernel takes now. True: nothing is left."""
        with self._writing:
            if self._rest:
                self._rest = self._rest[self._some(self._rest):]
            return not self._rest

    def _some(self, data: bytes) -> int:
        try:
            return self.sock.send(data, _NOW)
        except BlockingIOError:
            return 0
        except OSError as e:
            raise ClosedError(Code.LANE_LOST, f"send: {e.strerror or e}") from e

    def _finish(self, meanwhile: Callable[[], None] | None) -> None:
        end = time.monotonic() + SEND_TIMEOUT
        poll = select.poll()
        poll.register(self.sock, select.POLLOUT | (select.POLLIN if meanwhile else 0))
        while not self.flush():
            left = end - time.monotonic()
            if left <= 0:
                raise ClosedError(Code.LANE_LOST, f"the daemon does not take what is sent, for {SEND_TIMEOUT:g} s")
            for _, events in poll.poll(min(left, QUANTUM) * 1000):
                if events & select.POLLIN and meanwhile:
                    meanwhile()

    @property
    def unsent(self) -> int:
        """Bytes that wait for the kernel."""
        return len(self._rest)

    # In.

    def receive(self, timeout: float) -> bool:
        """Reads once, for at most timeout seconds (0: what is there now), and handles the frames that are whole.

        False: nothing came. ClosedError and ProtocolError end the connection.
        """
        flags = _READ
        got = None
        if self._rest:
            if not self.nudge(min(timeout, QUANTUM)):
                return False
            flags = _READ_NOW
        elif timeout < QUANTUM:
            if timeout > 0:
                poll = select.poll()
                poll.register(self.sock, select.POLLIN)
                if not poll.poll(timeout * 1000):
                    return False
            flags = _READ_NOW
        try:
            if flags == _READ:
                got = self._spin()
            n, notes, came, _ = got or self.sock.recvmsg_into((self._view[self._high:],), _ANCILLARY, flags)
        except BlockingIOError:
            return False
        except OSError as e:
            raise ClosedError(Code.LANE_LOST, f"receive: {e.strerror or e}") from e
        for level, kind, raw in notes:
            if (level, kind) == _SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(raw[:len(raw) - len(raw) % fds.itemsize])
                self.fds += fds
        if came & _LOST or len(self.fds) > MAX_PENDING_FDS:
            fault(Code.LENGTH, "descriptors were lost: too many for one message, or this process has no room for them (RLIMIT_NOFILE)")
        if not n:
            raise ClosedError(Code.LANE_LOST, "the daemon has gone")
        self._high += n
        self._frames()
        if self.fds and self._low == self._high:
            self.drop_fds()  # they came with frames that take none
        return True

    def _spin(self) -> _Message | None:
        """Looks for SPIN for what comes, without sleeping; None: nothing has. Each miss in a row makes more of the next reads sleep at once."""
        if self._sleeps:
            self._sleeps -= 1
            return None
        into, receive, clock = (self._view[self._high:],), self.sock.recvmsg_into, time.monotonic_ns
        end = clock() + SPIN
        while True:
            try:
                got = receive(into, _ANCILLARY, _READ_NOW)
            except BlockingIOError:
                if clock() < end:
                    continue
                self._misses += 1
                self._sleeps = min(1 << self._misses, MAX_SLEEPS)
                return None
            self._misses = 0
            return got

    def _frames(self) -> None:
        """Handles the whole frames of the buffer and makes room for the next."""
        low, high, view, plain = self._low, self._high, self._view, self.plain
        need = HEADER_LEN
        while high - low >= HEADER_LEN:
            size, kind, flags, cls, reserved, req, _, crc = HEADER.unpack_from(view, low)
            least, most = frames.FROM_AGENT.get(kind, _NONE)
            if crc or flags or cls or reserved or not least <= size <= most or not plain:  # not plainly right
                frames.check_header((size, kind, flags, cls, reserved, crc), view[low:low + HEADER_LEN], plain, self.spoken, self._first)
            need = HEADER_LEN + size
            if high - low < need:
                break
            end = low + need - 4
            fields = view[low + HEADER_LEN:end]
            if _TRAILER.unpack_from(view, end)[0] != (0 if plain else crc32c(fields)):
                fault(Code.CRC, f"checksum of a frame of type {kind}")
            low += need
            self._low = low  # what the handler raises is the end anyway
            self._first = False
            if most:
                self._handle(kind, req, fields)
                plain = self.plain  # HELLO decides
            need = HEADER_LEN
        if low == high:
            self._low = self._high = 0
        elif low and len(view) - low < max(need, HEADER_LEN):
            left = high - low
            self._buf[:left] = bytes(view[low:high])
            self._low, self._high = 0, left
        if need > len(view):
            self._grow(need)

    def _grow(self, need: int) -> None:
        """A larger buffer: of a frame of at most MAX_CONTROL bytes, so once or twice in a connection."""
        buf = bytearray(2 * need)
        left = self._high - self._low
        buf[:left] = self._view[self._low:self._high]
        self._buf, self._view, self._low, self._high = buf, memoryview(buf), 0, left

    # Descriptors.

    def take_fds(self, n: int) -> list[int]:
        """The first n descriptors, which are the caller's now. STATE: there are fewer."""
        if len(self.fds) < n:
            fault(Code.STATE, f"MAP of {n} segments with {len(self.fds)} descriptors")
        took, self.fds = self.fds[:n], self.fds[n:]
        return took

    def send_with(self, data: bytes, fd: int, meanwhile: Callable[[], None] | None = None) -> None:
        """Sends a frame with a descriptor on its first byte."""
        with self._writing:
            self._finish(meanwhile)
            end = time.monotonic() + SEND_TIMEOUT
            while True:
                try:
                    sent = self.sock.sendmsg((data,), [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (fd,)))], _NOW)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise ClosedError(Code.LANE_LOST, "the daemon does not take what is sent") from None
                    select.select((), (self.sock,), (), QUANTUM)
                except OSError as e:
                    raise ClosedError(Code.LANE_LOST, f"send: {e.strerror or e}") from e
            self._rest = data[sent:]
            self._finish(meanwhile)

    def drop_fds(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    # The end.

    def shutdown(self, how: int = socket.SHUT_RDWR) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(how)

    def close(self) -> None:
        self.sock.close()


