"""MRDN LINK v1 from docs/spec/link-v1.md: a dialler's half, and the engine's half of LOCAL. Standard library only.

Frames are taken apart by the reader of the vectors, which was written from the same page.
"""
import array
import hashlib
import hmac
import mmap
import os
import socket
import ssl
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vectors", "link-v1"))
import check  # noqa: E402

TYPE = {name: number for number, (name, *_) in check.TYPES.items()}
CODE = {"OK": 0, "ABSENT": 100, "STALE": 101, "EXISTS": 102, "FULL": 103, "CHECKSUM": 104, "TOO_LARGE": 105, "NS_UNKNOWN": 106,
        "LEASE_LOST": 107, "GEOMETRY": 109, "INVALID": 110, "DEADLINE": 200, "CANCELLED": 201, "BUSY": 202, "DRAINING": 203,
        "UNSUPPORTED": 204, "LINK_MAGIC": 300, "CRC": 301, "LENGTH": 302, "STATE": 303, "FLOW_VIOLATION": 304, "AUTH": 305,
        "LINK_VERSION": 306, "HELLO_TIMEOUT": 307, "INCARNATION": 308, "TOO_MANY": 309, "MANIFEST": 407}
NAME = {number: name for name, number in CODE.items()}
CRITICAL, LOCAL, STANDING, RING, GROUP, PLAIN = 1, 1, 2, 4, 8, 16
FETCH, TRANSIENT, KEEP_LEASE, WAIT = 1, 2, 4, 8
AUTO, PIN = 255, 1
DATA = 9
REQUESTS = ("OPEN", "HAS", "PULL", "PUSH", "STAT", "RENEW", "RELEASE", "PING")  # that the acceptor may send; only PING is served here
PATIENCE = 20  # seconds until a silent other side is a failure


def named(code):
    return NAME.get(code, str(code))


TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


check.crc32c = crc32c  # the same sum, by table


def head(kind, length, req, arg=0, flags=0, cls=0, plain=False):
    h = struct.pack("<IBBBBQI", length, kind, flags, cls, 0, req, arg)
    return h + struct.pack("<I", 0 if plain else crc32c(h))


def control(kind, req, fields=b"", plain=False, **more):
    kind = TYPE.get(kind, kind)
    return head(kind, len(fields) + 4, req, plain=plain, **more) + fields + struct.pack("<I", 0 if plain else crc32c(fields))


def data(req, arg, offset, body):
    return head(DATA, len(body) + 4, req, arg) + struct.pack("<I", offset) + body


def want(ns, key=bytes(32), flags=0, off=0, most=0, slot=0, gen=0):
    return struct.pack("<HHIIII", ns, flags, off, most, slot, gen) + key


def push_item(ns, key, body_len, header, tier=0, attest=2):
    return struct.pack("<HH", ns, 0) + key + struct.pack("<HBBI", 0, tier, attest, body_len) + header + bytes(8)


def put_item(ns, key, length, off, tier=0, req=0):
    return struct.pack("<HBBIQ", ns, tier, 0, length, off) + key + struct.pack("<I", req)


def load_item(ns, key=bytes(32), flags=0, holder=0, slot=0, gen=0):
    return struct.pack("<HHHHII", ns, flags, holder, 0, slot, gen) + key


def store_item(ns, key, length, off=0, tier=0, flags=0, req=0, pos=0, pin_ms=0):
    return struct.pack("<HBBIQ", ns, tier, flags, length, off) + key + struct.pack("<III", req, pos, pin_ms)


def seg(number, kind, size):
    return struct.pack("<IBxxxQ", number, kind, size)


def batch(items, *before):
    return b"".join(before) + struct.pack("<I", len(items)) + b"".join(items)


def u32(*values):
    return struct.pack(f"<{len(values)}I", *values)


class Hello:
    """The fields of one HELLO; change what a test needs."""

    def __init__(self, **fields):
        self.min, self.max, self.agent, self.inc, self.session, self.lane = 1, 1, bytes(16), 0, bytes(16), 0
        self.limits, self.features, self.nonce, self.auth = (256, 4096, 262148, 1 << 28, 5000), 0, os.urandom(32), []
        self.__dict__.update(fields)

    def frame(self):
        p = struct.pack("<4sHH16sQ16sB3x5IQ32sH2x", b"MLNK", self.min, self.max, self.agent, self.inc, self.session, self.lane,
                        *self.limits, self.features, self.nonce, len(self.auth))
        for kind, value in self.auth:
            p += struct.pack("<HH", kind, len(value)) + value
        return control("HELLO", 0, p, flags=CRITICAL)


class Refused(Exception):
    """The other side sent ERROR."""

    def __init__(self, code, text):
        super().__init__(f"ERROR {named(code)}: {text}")
        self.code = code


class Closed(Exception):
    """The other side closed the lane without ERROR."""


class Certificate:
    """What a dialler shows on TLS, and whom it expects: names of PEM files, and the acceptor's name."""

    def __init__(self, authority, cert, key, server):
        self.server, self.log = server, tempfile.NamedTemporaryFile()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.context.load_verify_locations(authority)
        self.context.keylog_filename = self.log.name
        if cert:
            self.context.load_cert_chain(cert, key)

    def wrap(self, sock):
        sock = self.context.wrap_socket(sock, server_hostname=self.server)
        with open(self.log.name, encoding="ascii") as lines:  # the last connection's is the last
            secrets = [line.split()[2] for line in lines if line.startswith("EXPORTER_SECRET ")]
        sock.hash, sock.secret = sock.cipher()[0].rsplit("_", 1)[1].lower(), bytes.fromhex(secrets[-1])
        return sock


def expand(name, secret, label, context, size):
    """HKDF-Expand-Label of RFC 8446 section 7.1, for at most one block of the hash."""
    label = b"tls13 " + label
    info = struct.pack(">HB", size, len(label)) + label + bytes([len(context)]) + context
    return hmac.new(secret, info + b"\1", name).digest()[:size]


def exported(sock, label, context, size=32):
    """Keying material of RFC 8446 section 7.5, which the module ssl does not give."""
    def digest(b):
        return hashlib.new(sock.hash, b).digest()
    derived = expand(sock.hash, sock.secret, label, digest(b""), len(digest(b"")))
    return expand(sock.hash, derived, b"exporter", digest(context), size)


def connect(address, certificate=None):
    kind, where = address.split("://", 1)
    sock = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET, socket.SOCK_STREAM)
    sock.settimeout(PATIENCE)
    if kind == "unix":
        sock.connect(where)
        return sock
    host, port = where.rsplit(":", 1)
    sock.connect((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return certificate.wrap(sock) if kind == "tls" else sock


class Lane:
    """One connection. read gives (type name, header, fields); a dialler's answers the other side's requests on the way."""

    def __init__(self, sock, serves=False):
        self.sock, self.serves, self.fds, self.plain = sock, serves, [], False

    def write(self, frames):
        try:
            self.sock.sendall(frames)
        except (BrokenPipeError, ConnectionResetError):
            pass  # what the other side said before it closed is still to be read

    def take(self, n):
        got = b""
        while len(got) < n:
            if isinstance(self.sock, ssl.SSLSocket):
                try:
                    part = self.sock.recv(n - len(got))
                except ConnectionResetError:
                    raise Closed from None
                if not part:
                    raise Closed
                got += part
                continue
            try:
                part, notes, _, _ = self.sock.recvmsg(n - len(got), socket.CMSG_SPACE(4 * 253), socket.MSG_CMSG_CLOEXEC)
            except ConnectionResetError:
                raise Closed from None
            for level, kind, raw in notes:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds = array.array("i")
                    fds.frombytes(raw[:len(raw) - len(raw) % 4])
                    self.fds += fds
            if not part:
                raise Closed
            got += part
        return got

    def read(self):
        first = self.take(24)
        name, frame, fields = check.read(first + self.take(int.from_bytes(first[:4], "little")), self.plain)
        if name == "ERROR":
            raise Refused(fields["code"], fields["text"])
        if name in REQUESTS and not self.serves and int(frame["req"]) % 2 == 0:
            self.write(control("END", int(frame["req"]), struct.pack("<HHII", CODE["OK" if name == "PING" else "UNSUPPORTED"], 0, 0, 0)))
            return self.read()
        return name, frame, fields

    def expect(self, name, req=None):
        got, frame, fields = self.read()
        assert got == name and (req is None or int(frame["req"]) == req), f"{got} of {frame['req']}, want {name} of {req}: {fields}"
        return fields

    def end(self, req, code="OK"):
        fields = self.expect("END", req)
        assert named(fields["code"]) == code, f"END {named(fields['code'])} {fields['text']!r}, want {code}"
        return fields

    def close(self):
        """Closes, and waits until the other side has."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
            while self.sock.recv(65536):
                pass
        except OSError:
            pass
        self.sock.close()
        for fd in self.fds:
            os.close(fd)
        self.fds = []


DIALLER, ACCEPTOR = b"meridian link v1 dialler", b"meridian link v1 acceptor"
LABEL = b"EXPORTER-meridian-link-v1"


def element(hello, kind):
    return bytes.fromhex(next(e["value"] for e in hello["auth"] if e["type"] == kind))


class Agent:
    """An agent: who it says it is, and how it proves it."""

    def __init__(self, address, name, method, psk=b"", certificate=None):  # address: where it dials
        self.address, self.name, self.method, self.psk, self.certificate = address, name, method, psk, certificate
        self.agent, self.inc, self.req = os.urandom(16), int.from_bytes(os.urandom(7), "little") + 1, 1_000_001
        self.features = 0

    def next(self):
        self.req += 2
        return self.req

    def first(self, session=bytes(16), lane=0, **fields):
        names = [(4, self.name.encode())] if self.name else []
        return Hello(**{"agent": self.agent, "inc": self.inc, "session": session, "lane": lane, "features": self.features,
                       "auth": [(self.method, b"")] + names, **fields})

    def dial(self, session=bytes(16), lane=0, third=None, **fields):
        """One lane through the four HELLOs. third may replace this side's second."""
        l = Lane(connect(self.address, self.certificate))
        mine = self.first(session, lane, **fields)
        l.write(mine.frame())
        theirs = l.expect("HELLO")
        assert theirs["lane"] == lane and theirs["min"] <= 1 <= theirs["max"] and element(theirs, self.method) == b""
        ends = mine.nonce + bytes.fromhex(theirs["nonce"]) + mine.agent + bytes.fromhex(theirs["agent"])
        if self.method == 1:  # each proof is of its sender alone
            material = exported(l.sock, LABEL, DIALLER + mine.agent + mine.nonce)
            due = exported(l.sock, LABEL, ACCEPTOR + bytes.fromhex(theirs["agent"]) + bytes.fromhex(theirs["nonce"]))
        else:
            material, due = self.proof(DIALLER, ends), self.proof(ACCEPTOR, ends)
        mine.auth = [(kind, material if kind == self.method else value) for kind, value in mine.auth]
        l.write(third(mine) if third else mine.frame())
        again = l.expect("HELLO")
        assert hmac.compare_digest(element(again, self.method), due), "the acceptor's proof is wrong"
        assert {**again, "auth": 0} == {**theirs, "auth": 0}, "the acceptor's HELLOs differ"
        l.session = bytes.fromhex(theirs["session"])
        return l

    def proof(self, role, ends):
        return hmac.new(self.psk, role + ends, hashlib.sha256).digest() if self.method == 2 else b""

    def accept(self, sock):
        """The acceptor's half of the HELLOs. Gives the lane with its number."""
        l = Lane(sock, serves=True)
        theirs = l.expect("HELLO")
        l.number, l.session = theirs["lane"], bytes.fromhex(theirs["session"])
        if l.session == bytes(16):
            l.session = os.urandom(16)
        mine = self.first(l.session, l.number)
        l.write(mine.frame())
        ends = bytes.fromhex(theirs["nonce"]) + mine.nonce + bytes.fromhex(theirs["agent"]) + mine.agent
        again = l.expect("HELLO")
        assert hmac.compare_digest(element(again, self.method), self.proof(DIALLER, ends)), "the dialler's proof is wrong"
        mine.auth[0] = (self.method, self.proof(ACCEPTOR, ends))
        l.write(mine.frame())
        return l


ADVICE = ("PHASE", "PHASEAT", "EVICTED")


class Engine(Lane):
    """The engine's half of LOCAL."""

    def __init__(self, address, **fields):
        super().__init__(connect(address))
        self.req, self.segs, self.ring, self.advice = 1_000_001, {}, None, []
        mine = Hello(**{"features": LOCAL, **fields})
        self.write(mine.frame())
        self.hello = self.expect("HELLO")
        self.plain = bool(mine.features & int(self.hello["features"]) & PLAIN)

    def next(self):
        self.req += 2
        return self.req

    def map(self, fields):
        """Maps what MAP brought."""
        for seg in fields["segs"]:
            fd, writable = self.fds.pop(0), seg["kind"] == 3
            m = mmap.mmap(fd, int(seg["size"]), flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
            os.close(fd)
            if writable:
                assert seg["id"] == 0
                self.ring = m
            else:
                self.segs[seg["id"], seg["kind"]] = m

    def ask(self, kind, fields=b"", until="END"):
        """Sends a request; gives all that came for it, MAP aside."""
        req, got = self.next(), []
        self.write(control(kind, req, fields, self.plain))
        while not got or got[-1][0] != until:
            name, frame, answer = self.read()
            if name == "MAP":
                self.map(answer)
                continue
            assert name in ADVICE or int(frame["req"]) == req, f"{name} of {frame['req']} while {req} runs"
            got.append((name, answer))
            if name in ADVICE:
                self.advice.append((name, answer))
        return got

    def body(self, place):
        """Reads a leased block as the page says, and checks its header."""
        gens, segment = self.segs[place["seg"], 2], self.segs[place["seg"], 1]
        def word():
            return struct.unpack_from("<Q", gens, place["gen_off"])[0]
        before, off = word(), int(place["off"])
        assert before % 2 == 0 and before & 0xFFFFFFFF == place["gen"]
        header, body = segment[off - 32:off], segment[off:off + place["len"]]
        assert word() == before
        return header, body
