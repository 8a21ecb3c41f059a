"""A small daemon that does what a test says: one connection, a script, no checks of its own."""
import array
import fcntl
import os
import socket
import struct
import tempfile
import threading
import unittest

from meridian import Engine, frames
from meridian.crc import crc32c

PATIENCE = 20  # seconds until a silent client is a failure of the test


def memory(size, sealed=True):
    """A descriptor of a file in memory that cannot shrink."""
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if sealed:
        fcntl.fcntl(fd, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
    return fd


def hello(features=frames.LOCAL | frames.RING | frames.PLAIN, magic=b"MLNK", least=1, most=1, lane=0, auth=b"", auth_n=0):
    fields = struct.pack("<4sHH16sQ16sB3x5IQ32sHH", magic, least, most, b"\7" * 16, 9, bytes(16), lane, 256, 4096, 1 << 20, 1 << 20, 0,
                         features, bytes(32), auth_n, 0) + auth
    return frames.frame(frames.HELLO, 0, (fields,), plain=False, flags=frames.CRITICAL)


def raw(kind, req=0, fields=b"", flags=0, size=None, crc=0, trailer=0, cls=0, reserved=0):
    """A frame as PLAIN has it, any field of it wrong."""
    return struct.pack("<IBBBBQII", len(fields) + 4 if size is None else size, kind, flags, cls, reserved, req, 0, crc) + fields + struct.pack("<I", trailer)


def end(req, code=0, statuses=(), text=b"", n=None):
    return raw(frames.END, req, struct.pack("<HHII", code, len(text), 0, len(statuses) if n is None else n) + struct.pack(f"<{len(statuses)}H", *statuses) + text)


def map_of(*segs):
    """MAP of (id, kind, size)."""
    return raw(frames.MAP, 0, struct.pack("<I", len(segs)) + b"".join(struct.pack("<IBxxxQ", *s) for s in segs))


def place(status=0, tier=2, attest=2, slot=1, gen=2, seg=1, size=100, gen_off=8, off=64):
    return struct.pack("<HBBIIIIIQ", status, tier, attest, slot, gen, seg, size, gen_off, off)


def acquired(req, *places, n=None, lease=b"\1" * 16):
    return raw(frames.ACQUIRED, req, lease + struct.pack("<I", len(places) if n is None else n) + b"".join(places))


class Closed(Exception):
    """The client has gone."""


class Peer:
    """The daemon's end of the connection."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(PATIENCE)

    def take(self, n):
        got = b""
        while len(got) < n:
            part = self.sock.recv(n - len(got))
            if not part:
                raise Closed
            got += part
        return got

    def read(self):
        """The next frame: type, req, fields. Its checksums must be right, or 0 throughout."""
        head = self.take(24)
        size, kind, _, _, _, req, _, crc = struct.unpack("<IBBBBQII", head)
        body = self.take(size)
        trailer, = struct.unpack("<I", body[-4:])
        assert (crc, trailer) in ((0, 0), (crc32c(head[:20]), crc32c(body[:-4]))), "checksums of what the client sends"
        return kind, req, body[:-4]

    def write(self, data, *fds):
        try:
            if fds:
                self.sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            else:
                self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def greet(self, **fields):
        assert self.read()[0] == frames.HELLO
        self.write(hello(**fields))

    def segments(self):
        """Announces segment 1 of 4 KiB with generations of 64 bytes, slot 1 in generation 2."""
        data, gens = memory(4096), memory(64)
        os.pwrite(gens, struct.pack("<Q", 2), 8)
        self.write(map_of((1, 1, 4096), (1, 2, 64)), data, gens)
        os.close(data)
        os.close(gens)


class Case(unittest.TestCase):
    """A test with a daemon that plays a script. At its end no descriptor is left."""

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.before = os.listdir("/proc/self/fd")

    def tearDown(self):
        self.assertEqual(len(os.listdir("/proc/self/fd")), len(self.before), "descriptors are left")

    def dial(self, script, **more):
        """An engine whose daemon plays script(peer), in a thread that ends before the test does."""
        path = os.path.join(self.dir.name, f"s{len(os.listdir(self.dir.name))}")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(1)
        listener.settimeout(PATIENCE)
        self.wrong = []

        def serve():
            sock, _ = listener.accept()
            try:
                script(Peer(sock))
            except Closed:
                pass
            except BaseException as e:
                self.wrong.append(e)
            sock.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return Engine(path, **more), thread
        except BaseException:
            thread.join()
            raise
        finally:
            listener.close()

    def playing(self, script, client, **more):
        """Runs client(engine) against script(peer) behind the two HELLOs."""
        def whole(peer):
            peer.greet()
            script(peer)
        engine, thread = self.dial(whole, **more)
        try:
            return client(engine)
        finally:
            engine.close()
            thread.join()
            self.assertEqual(self.wrong, [])
