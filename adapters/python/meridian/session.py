"""The life of a connection: requests in flight, who reads, and how it ends.

There is no thread. The caller that waits for its answer reads the socket itself, for others
too; a second thread that waits meanwhile is handed its answer, or the reading when the first
has what it wanted. What comes while nobody calls lies in the socket until somebody does:
``poll`` is for programs that only send.
"""
from __future__ import annotations

import collections
import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Any, Callable, Final, Generic, TypeVar

from . import frames
from .connection import QUANTUM, Socket, dial
from .errors import ClosedError, Code, MeridianError, ProtocolError, RequestError
from .frames import End, Hello, fault
from .maps import Maps
from .ring import Piece, Ring

T = TypeVar("T")

TIMEOUT: Final = 30.0  # seconds that a request gets which states none
GRACE: Final = 1.0  # seconds beyond a request's deadline until its caller stops waiting for END
POLL_READS: Final = 64  # of poll at most: a daemon that sends without end holds nobody up
CLOSE_WAIT: Final = 0.25  # seconds that close leaves the daemon to end its side


class Pending(Generic[T]):
    """A request under way. One that is not wanted any more is cancelled; one that is never waited for keeps what it was granted."""

    __slots__ = ("session", "op", "kind", "n", "make", "until", "req", "answer", "at", "end", "error", "pieces", "then", "each", "_done", "_event", "_abandoned")

    def __init__(self, session: "Session", op: str, kind: int, n: int, make: "Callable[[Pending[T]], T]", timeout: float) -> None:
        self.session, self.op = session, op
        self.kind = kind  # of the answer before END; 0: none
        self.n = n  # items asked
        self.make = make
        self.at = time.monotonic()
        self.until = self.at + timeout + GRACE
        self.req = 0
        self.answer: Any = None
        self.end = frames.END_OK
        self.error: MeridianError | None = None
        self.each = False  # END OK has a status an item
        self.pieces: tuple[Piece, ...] = ()
        self.then: Callable[[Pending[T]], None] | None = None  # called when it is done, and of a load at each part, by whoever reads
        self._done = False
        self._abandoned = False
        self._event: threading.Event | None = None

    @property
    def done(self) -> bool:
        """Whether the answer is here. It becomes so only while somebody reads: see Session.poll."""
        return self._done

    def wait(self, timeout: float | None = None) -> T:
        """The result, once it is here; later calls give it again.

        timeout bounds this wait and raises RequestError DEADLINE; the request goes on. Without
        it the request is waited for until its own deadline, and cancelled then.
        RequestError: refused. ClosedError: the connection is over.
        """
        until = self.until if timeout is None else time.monotonic() + timeout
        if not self._done and not self.session.wait_for(self, until):
            if timeout is None:
                self.cancel()
            raise RequestError(self.op, Code.DEADLINE, "no answer in time")
        self._outcome()
        return self.make(self)

    def _outcome(self) -> None:
        """Raises how it ended, unless well."""
        if self.error is not None:
            raise self.error
        if self.end.code:
            raise RequestError(self.op, self.end.code, self.end.text, self.end.retry_ms)

    def ready(self) -> bool:
        """Whether there is something for who waits."""
        return self._done

    def cancel(self) -> None:
        """Takes the request back. What it is granted all the same is given back when END comes."""
        if not self._done and not self._abandoned:
            self._abandoned = True
            self.session.send_cancel(self.req)

    def answered(self, kind: int, answer: Any) -> None:
        """The answer before END, from the reader."""
        if kind != self.kind or self.answer is not None:
            fault(Code.STATE, f"a frame of type {kind} answers {self.op}")
        self.answer = answer

    def ended(self, end: End) -> None:
        """END, from the reader."""
        n = len(end.statuses) // 2
        if n != self.n and (n or self.each and not end.code):
            fault(Code.STATE, f"END of {self.op} has {n} statuses, {self.n} items were asked")
        if not end.code and self.kind and self.answer is None:
            fault(Code.STATE, f"END OK of {self.op} before its answer")
        self.end = end
        if self._abandoned:
            self.session.unwanted(self)
        self.complete()

    def complete(self) -> None:
        """Marks it as done and wakes who waits."""
        for piece in self.pieces:
            self.session.ring.release(piece)
        self.pieces = ()
        self._done = True
        self.wake()

    def wake(self) -> None:
        if self._event is not None:
            self._event.set()
        if self.then is not None:
            self.then(self)

    def wake_event(self) -> threading.Event:
        if self._event is None:
            self._event = threading.Event()
        return self._event


def nothing(_: Pending[None]) -> None:
    """The result of a request that is answered by END alone."""


class Session:
    """A connection to the daemon. Safe for several threads; not for use across fork."""

    def __init__(self, path: str, features: int = frames.RING | frames.PLAIN, agent: bytes = bytes(16), inc: int = 0,
                 auth: tuple[tuple[int, bytes], ...] = ()) -> None:
        self.maps = Maps()
        self.ring = Ring()
        self.draining = False  # the daemon has said that it leaves
        self.error: ClosedError | None = None  # why the connection is over
        self.dropped = 0  # TOKENS that were dropped whole, because too many wait for the socket
        self._calls: dict[int, Pending[Any]] = {}
        self._last = -1  # number of the request that was sent last
        self._numbering = threading.Lock()
        self._releases: collections.deque[bytes] = collections.deque()  # leases that are to be given back
        self._owing = False  # some of them came with answers that nobody wants: they wait for no request
        self._reading = threading.Lock()
        self._waiting: collections.deque[Pending[Any]] = collections.deque()
        self._hello: Hello | None = None
        self.features = frames.LOCAL | features  # that both sides have
        self._sock = Socket(dial(path), self._handle)
        try:
            hello = self._greet(self.features, agent, inc, [(3, b""), *auth])
        except BaseException:
            self._sock.drop_fds()
            self._sock.close()
            raise
        self.agent, self.inc, self.items = hello.agent, hello.inc, hello.items  # the daemon's id, its incarnation, items a batch at most
        self._auth = hello.auth

    def _greet(self, features: int, agent: bytes, inc: int, auth: list[tuple[int, bytes]]) -> Hello:
        sent: ClosedError | None = None
        try:
            self._sock.send(frames.hello(features, agent, inc, auth))
        except ClosedError as e:  # the daemon's ERROR, which is still to be read, says more
            sent = e
        end = time.monotonic() + frames.HELLO_TIMEOUT
        while self._hello is None:
            left = end - time.monotonic()
            if left <= 0:
                raise ClosedError(Code.HELLO_TIMEOUT, "no HELLO from the daemon")
            try:
                self._sock.receive(min(left, QUANTUM))
            except ProtocolError:
                raise
            except ClosedError as e:
                raise e if e.code != Code.LANE_LOST or sent is None else sent from None
        return self._hello

    def _greeted(self, hello: Hello) -> None:
        """What follows from the agent's HELLO holds for the next byte already."""
        self._hello = hello
        self.features &= hello.features
        self._sock.plain = bool(self.features & frames.PLAIN)
        if self.features & frames.GROUP:
            self._sock.spoken = frames.OTHERS | frames.OTHERS_OF_GROUP

    # Requests.

    def request(self, pending: Pending[Any], kind: int, *parts: bytes | memoryview, fd: int = -1) -> None:
        """Sends a request, with a descriptor where fd is one. After an exception nothing is under way."""
        req = pending.req = self._number()
        self._calls[req] = pending
        try:
            if self.error is not None:
                raise self.error
            self._send(frames.frame(kind, req, parts, self._sock.plain), fd)
        except BaseException:
            self._calls.pop(req, None)
            raise

    def simple(self, op: str, kind: int, *parts: bytes | memoryview, timeout: float = TIMEOUT) -> Pending[None]:
        """Sends a request that is answered by END alone."""
        pending: Pending[None] = Pending(self, op, 0, 0, nothing, timeout)
        self.request(pending, kind, *parts)
        return pending

    def _send(self, data: bytes, fd: int = -1) -> None:
        if self._releases and fd < 0:
            data = self._release_frames() + data
        try:
            if fd < 0:
                self._sock.send(data, self._read_meanwhile)
            else:
                self._sock.send_with(data, fd, self._read_meanwhile)
        except ClosedError as e:
            self.fail(e)
            raise

    def _number(self) -> int:
        """The next request's: odd, and greater than all before."""
        with self._numbering:
            self._last += 2
            return self._last

    def _release_frames(self) -> bytes:
        """RELEASE of what waits to be given back; its END belongs to no call."""
        out, waiting = b"", self._releases
        while waiting:
            some: list[bytes] = []
            try:
                while len(some) < frames.MAX_ITEMS:  # of one message; others may queue more meanwhile, or take
                    some.append(waiting.popleft())
            except IndexError:
                pass
            if some:
                out += frames.frame(frames.RELEASE, self._number(), (len(some).to_bytes(4, "little"), *some), self._sock.plain)
        return out

    def send_cancel(self, req: int) -> None:
        if self.error is None:
            try:
                self._send(frames.frame(frames.CANCEL, req, (), self._sock.plain))
            except ClosedError:
                pass  # then it is over for the daemon as well

    def unwanted(self, pending: Pending[Any]) -> None:
        """The answer of a request that was cancelled: what it grants is given back as soon as whoever reads has read."""

    def _give_unwanted(self) -> None:
        """Sends RELEASE of what came with answers that nobody wants. The caller does not read."""
        if self._owing and self.error is None:
            self._owing = False
            try:
                self._send(b"")
            except ClosedError:
                pass  # the daemon has taken all leases back
            except RequestError:
                self._owing = True  # too much waits for the socket now

    # Reading.

    def wait_for(self, pending: Pending[Any], until: float) -> bool:
        """Reads until the request is done or the time has come."""
        while not pending.ready():
            left = until - time.monotonic()
            if left <= 0:
                return False
            if self._reading.acquire(blocking=False):
                self._lead(pending, until)
                continue
            event = pending.wake_event()
            event.clear()
            if pending.ready():
                break
            self._waiting.append(pending)
            if self._reading.acquire(blocking=False):  # it came free before we were on the list
                self._unlist(pending)
                self._lead(pending, until)
                continue
            left = min(left, QUANTUM)  # who was to hand the reading over may have been too late for that
            if self._sock.unsent:
                self._push(left)
            else:
                event.wait(left)
            self._unlist(pending)
        return True

    def _push(self, timeout: float) -> None:
        """Sends what is kept, while another thread reads."""
        try:
            self._sock.nudge(timeout)
        except MeridianError as e:
            self.fail(e)

    def _unlist(self, pending: Pending[Any]) -> None:
        with contextlib.suppress(ValueError):
            self._waiting.remove(pending)

    def _lead(self, pending: Pending[Any], until: float) -> None:
        """Reads for everybody, as the holder of _reading, which it gives up."""
        try:
            while not pending.ready() and (left := until - time.monotonic()) > 0:
                self._receive(left if left < QUANTUM else QUANTUM)
        finally:
            self._hand_over()
        self._give_unwanted()

    def _hand_over(self) -> None:
        """Ends reading, and wakes one who waits for it."""
        self._reading.release()
        while self._waiting:
            try:
                pending = self._waiting.popleft()
            except IndexError:
                break
            if not pending.ready():
                pending.wake_event().set()
                break

    def _receive(self, timeout: float) -> bool:
        if self.error is not None:
            raise self.error
        try:
            return self._sock.receive(timeout)
        except MeridianError as e:
            self.fail(e)
            raise self.error or e from None
        except Exception as e:  # a defect here: the place in the stream is lost
            self.fail(ClosedError(Code.INTERNAL, f"what the daemon sent was not understood: {e!r}"))
            raise

    def _read_meanwhile(self) -> None:
        """Reads what is there, unless somebody does: the daemon may take nothing before we take its answers."""
        if self._reading.acquire(blocking=False):
            try:
                self._receive(0)
            finally:
                self._hand_over()

    def poll(self, timeout: float = 0.0) -> None:
        """Reads what is there, waiting at most timeout seconds for the first of it: answers, advice, GOAWAY.

        It returns at once while another thread reads. ClosedError: the connection is over.
        """
        end = time.monotonic() + timeout
        if not self._reading.acquire(blocking=False):
            return
        try:
            got = self._receive(0)
            while not got and (left := end - time.monotonic()) > 0:
                got = self._receive(min(left, QUANTUM))
            for _ in range(POLL_READS):
                if not got:
                    break
                got = self._receive(0)
        finally:
            self._hand_over()
        self._give_unwanted()

    def fileno(self) -> int:
        """The descriptor, for select: readable when poll would read something."""
        return self._sock.sock.fileno()

    # What came.

    def _handle(self, kind: int, req: int, fields: memoryview) -> None:
        if kind == frames.END:
            end = frames.parse_end(fields)
            pending = self._calls.get(req)
            if pending is not None:
                pending.ended(end)
                self._calls.pop(req, None)
            elif not req & 1 or req > self._last:
                fault(Code.STATE, f"END of request {req}, which never was")
        elif kind == frames.MAP:
            self._map(fields)
        elif kind == frames.HELLO:
            if self._hello is not None:
                fault(Code.STATE, "a second HELLO")
            self._greeted(frames.parse_hello(bytes(fields)))
        elif kind == frames.GOAWAY:
            frames.parse_goaway(fields)
            self.draining = True
        elif kind == frames.ERROR:
            code, text = frames.parse_error(fields)
            raise ClosedError(code, text)
        elif kind in frames.ADVICE:
            self._advice(kind, fields)
        else:
            pending = self._calls.get(req)
            if pending is None:
                fault(Code.STATE, f"a frame of type {kind} answers request {req}, which does not run")
            self._answer(pending, kind, fields)

    def _map(self, fields: memoryview) -> None:
        n = int.from_bytes(fields[:4], "little")
        if n > frames.MAX_SEGS or len(fields) != 4 + 16 * n:
            fault(Code.LENGTH, f"MAP of {n} segments has {len(fields)} bytes")
        ring = self.maps.add(fields, self._sock.take_fds(n))
        if ring is not None:
            self.ring.grow(ring)

    def _advice(self, kind: int, fields: memoryview) -> None:
        """Takes advice."""

    def _answer(self, pending: Pending[Any], kind: int, fields: memoryview) -> None:
        """Takes what a request is answered with before END."""
        fault(Code.STATE, f"a frame of type {kind} answers {pending.op}")

    # The end.

    def fail(self, error: MeridianError) -> None:
        """Ends the connection, for the reason of the first call."""
        if self.error is not None:
            return
        if not isinstance(error, ClosedError):
            error = ProtocolError(error.code, error.text)
        if error.code == Code.LANE_LOST and self.draining:
            error = ClosedError(Code.DRAINING, "the daemon is draining and has closed the connection")
        self.error = error
        self._sock.shutdown()
        while self._calls:
            try:
                _, pending = self._calls.popitem()
            except KeyError:
                break
            pending.error = error
            pending.complete()

    def close(self) -> None:
        """Ends the connection: the daemon takes every lease of it back. Arrays that were read from it stay mapped.

        It waits at most CLOSE_WAIT for the daemon to end its side: an answer that meets a
        closed socket looks to it like an engine that died.
        """
        if self.error is None:
            try:
                if self._releases:
                    self._send(b"")
                if self._sock.unsent:
                    self._sock.nudge(CLOSE_WAIT)
            except MeridianError:
                pass
            self._sock.shutdown(socket.SHUT_WR)
            self._drain(CLOSE_WAIT)
            self.fail(ClosedError(Code.LANE_LOST, "closed by this side"))
        with self._reading:
            self._sock.drop_fds()
            self._sock.close()
        self.maps.clear()
        self.ring = Ring()

    def _drain(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        if not self._reading.acquire(timeout=seconds):
            return
        try:
            while (left := end - time.monotonic()) > 0:
                self._sock.receive(min(left, QUANTUM))
        except MeridianError:
            pass  # the daemon's last word
        finally:
            self._hand_over()

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

