"""What a dialling agent can expect of the agent that it dials; a check each, named by its first line."""
import os
import struct

import mrdn
from link import KEEP_LEASE, STANDING, Closed, Engine, Refused, batch, control, data, named, push_item, u32, want

BLOCK = 8192  # block_bytes of the namespaces here
RUN = os.urandom(8)  # keys that no earlier run has used


def manifest(tenant, **more):
    return mrdn.manifest(**{"tenant": tenant, "model": "page", "role": "test", "dtype": "u8", "block_tokens": 16, "block_bytes": BLOCK, **more})


class Session:
    """Lanes 0 and 1 of a new session, and a namespace."""

    def __init__(self, peer, tenant, lanes=1, features=0):
        self.peer = peer
        self.control = peer.dial(features=features)
        self.lanes = [peer.dial(self.control.session, i + 1, features=features) for i in range(lanes)]
        self.data = self.lanes[0]
        self.space = mrdn.namespace(manifest(tenant))
        self.ns = self.open(manifest(tenant))["ns"]

    def open(self, m):
        req = self.peer.next()
        self.control.write(control("OPEN", req, u32(len(m)) + m))
        return self.control.expect("OPENED", req)

    def key(self, name):
        return mrdn.key(self.space, RUN + name.encode())

    def has(self, *wants, kind="HAS"):
        req = self.peer.next()
        self.control.write(control(kind, req, batch(wants, u32(5000))))
        table = self.control.expect("TABLE", req)
        self.control.end(req)
        return table["items"]

    def begin(self, items, deadline=5000):
        """Sends PUSH and gives its id and what GRANT says."""
        req = self.peer.next()
        self.data.write(control("PUSH", req, batch(items, u32(deadline))))
        return req, [named(s) for s in self.data.expect("GRANT", req)["status"]]

    def commit(self, req):
        self.data.write(control("COMMIT", req))
        table = self.data.expect("TABLE", req)["items"]
        end = self.data.end(req)
        assert end["status"] == [i["status"] for i in table]
        return table

    def push(self, bodies, tier=0):
        """Pushes {name: body}; all must be granted. One DATA frame carries all of them."""
        items = [push_item(self.ns, self.key(n), len(b), mrdn.header(b, tier), tier=tier) for n, b in bodies.items()]
        req, granted = self.begin(items)
        assert set(granted) == {"OK"}, granted
        everything, first = b"".join(bodies.values()), next((i for i, b in enumerate(bodies.values()) if b), None)
        if everything:
            self.data.write(data(req, first, 0, everything))
        return self.commit(req)

    def pull(self, *wants, lease_ms=0, code="OK"):
        """Gives TABLE, the bytes of each item, and END's statuses."""
        req = self.peer.next()
        self.data.write(control("PULL", req, batch(wants, u32(5000, lease_ms))))
        table = self.data.expect("TABLE", req)
        asked = [struct.unpack_from("<HHII", w) for w in wants]
        got = [b""] * len(wants)
        left = [i["len"] - off if i["status"] == 0 and not (flags & KEEP_LEASE and most == 0) else 0
                for i, (_, flags, off, most) in zip(table["items"], asked)]
        while any(left):
            name, frame, fields = self.data.read()
            assert (name, int(frame["req"])) == ("DATA", req), f"{name} of {frame['req']}"
            at, body = frame["arg"], bytes.fromhex(fields["body"])
            assert at == next(i for i, n in enumerate(left) if n) and fields["offset"] == asked[at][2] + len(got[at])
            while body:
                part = body[:left[at]]
                got[at], left[at], body, at = got[at] + part, left[at] - len(part), body[len(part):], at + 1
        return table, got, [named(s) for s in self.data.end(req, code)["status"]]

    def simple(self, kind, fields, code="OK"):
        req = self.peer.next()
        self.control.write(control(kind, req, fields))
        self.control.end(req, code)

    def close(self):
        for l in [*self.lanes, self.control]:
            l.close()


def refused(code, f, *args, **more):
    try:
        f(*args, **more)
    except Refused as err:
        assert named(err.code) == code, f"{err}, want {code}"
        return
    raise AssertionError(f"taken, want ERROR {code}")


def check_refusals(peer, *_):
    """HELLO: what is wrong with it is said by its code"""
    refused("AUTH", peer.dial, agent=bytes(16))
    refused("AUTH", peer.dial, inc=0)
    refused("LINK_VERSION", peer.dial, min=2, max=3)
    refused("LINK_VERSION", peer.dial, min=1, max=0)
    refused("AUTH", peer.dial, auth=[(4, peer.name.encode())])
    refused("STATE", peer.dial, lane=1)
    refused("STATE", peer.dial, session=b"\1" * 16, lane=1)
    refused("STATE", peer.dial, third=lambda mine: control("PING", 1))
    for change in ({"features": 4}, {"limits": (1, 1, 4100, 1, 0)}, {"nonce": bytes(32)}, {"max": 2}):
        refused("STATE", peer.dial, third=lambda mine, change=change: mine.__dict__.update(change) or mine.frame())
    if peer.method == 2:
        refused("AUTH", peer.dial, third=lambda mine: mine.auth.__setitem__(0, (2, bytes(32))) or mine.frame())
        refused("AUTH", peer.dial, auth=[(2, b""), (4, b"a name on no list")])


def check_tolerance(peer, *_):
    """HELLO: what is not looked at, and limits out of their range, are taken"""
    lane = peer.dial(features=1 << 40 | 1, limits=(0, 1 << 31, 1, 1 << 31, 1 << 31), max=7,
                    auth=[(peer.method, b""), (9, b"x"), (4, peer.name.encode()), (4, b"another")])
    lane.close()


def check_blocks(peer, tenant, _):
    """PUSH, HAS, STAT and PULL: bodies come back, by key and by reference"""
    s = Session(peer, tenant)
    bodies = {"empty": b"", "a": os.urandom(300), "none": b"", "b": os.urandom(5000), "c": os.urandom(BLOCK)}
    table = s.push(bodies, tier=1)
    assert all(i["status"] == 0 and i["head"] == mrdn.header(b, 1).hex() and i["gen"] for i, b in zip(table, bodies.values())), table
    for kind in ("HAS", "STAT"):
        for i, (name, b) in zip(s.has(*[want(s.ns, s.key(n)) for n in bodies], kind=kind), bodies.items()):
            assert (i["status"], i["len"], i["tier"], i["head"]) == (0, len(b), 1, mrdn.header(b, 1).hex()), (name, i)
    _, got, status = s.pull(*[want(s.ns, s.key(n), most=len(b)) for n, b in bodies.items()])
    assert got == list(bodies.values()) and set(status) == {"OK"}
    at = table[3]
    ref = {"slot": at["slot"], "gen": at["gen"]}
    wants = [want(s.ns, most=BLOCK, **ref), want(s.ns, s.key("b"), most=BLOCK, **ref), want(s.ns, s.key("a"), most=BLOCK, **ref),
             want(s.ns, most=BLOCK, slot=at["slot"], gen=at["gen"] + 2), want(s.ns, most=BLOCK), want(s.ns, s.key("absent"), most=BLOCK),
             want(s.ns, s.key("b"), most=5000, off=4000), want(s.ns, s.key("b"), most=4999), want(s.ns, s.key("a"), most=BLOCK, off=301),
             want(s.ns + 1, s.key("b"), most=BLOCK), want(s.ns, s.key("b"), most=5000, off=5000)]
    _, got, status = s.pull(*wants)
    assert status == ["OK", "OK", "STALE", "STALE", "ABSENT", "ABSENT", "OK", "TOO_LARGE", "INVALID", "NS_UNKNOWN", "OK"], status
    assert got[0] == got[1] == bodies["b"] and got[6] == bodies["b"][4000:] and got[10] == b""
    s.close()


def check_push_statuses(peer, tenant, _):
    """PUSH: what is wrong with an item is its status, and the others go on"""
    s = Session(peer, tenant)
    body = os.urandom(100)
    s.push({"there": body})
    good = mrdn.header(body)
    items = [(s.ns, s.key("there"), 100, good), (s.ns + 1, s.key("x"), 100, good), (s.ns, bytes(32), 100, good), (s.ns, s.key("x"), 99, good),
             (s.ns, s.key("x"), 100, good[:12] + b"\3" + good[13:]), (s.ns, s.key("x"), BLOCK + 1, mrdn.header(bytes(BLOCK + 1))),
             (s.ns, s.key("new"), 100, good), (s.ns, s.key("new"), 100, good), (s.ns, s.key("wrong"), 100, good)]
    req, granted = s.begin([push_item(*i) for i in items])
    assert granted == ["EXISTS", "NS_UNKNOWN", "INVALID", "INVALID", "INVALID", "TOO_LARGE", "OK", "EXISTS", "OK"], granted
    s.data.write(data(req, 6, 0, body) + data(req, 8, 0, b"x" + body[1:]))
    table = s.commit(req)
    assert [named(i["status"]) for i in table] == granted[:8] + ["CHECKSUM"] and table[0]["gen"], table
    assert [named(i["status"]) for i in s.has(*[want(s.ns, s.key(n)) for n in ("new", "wrong", "x")])] == ["OK", "ABSENT", "ABSENT"]
    s.close()


def check_push_violations(peer, tenant, _):
    """PUSH: DATA and COMMIT that are not due end the lane, and nothing is published"""
    body = os.urandom(100)
    for code, frames in (
            ("STATE", lambda q: data(q, 0, 1, body[1:])), ("STATE", lambda q: data(q, 1, 0, body)), ("STATE", lambda q: control("COMMIT", q)),
            ("FLOW_VIOLATION", lambda q: data(q, 0, 0, body + body + b"x")), ("FLOW_VIOLATION", lambda q: data(q + 2, 0, 0, body)),
            ("STATE", lambda q: data(q, 0, 0, body[:50]) + control("COMMIT", q)), ("STATE", lambda q: control("PUSH", q, batch([], u32(5000)))),
            ("STATE", lambda q: control("PULL", q, batch([], u32(5000, 0)))), ("STATE", lambda q: control("GRANT", q, batch([]))),
            ("INVALID", lambda q: control("PUSH", q + 2, batch([push_item(s.ns, s.key("v"), 1, mrdn.header(b"x"), tier=3)], u32(5000))))):
        s = Session(peer, tenant)
        req, granted = s.begin([push_item(s.ns, s.key(n), 100, mrdn.header(body)) for n in ("v", "w")])
        assert granted == ["OK", "OK"], granted
        s.data.write(frames(req))
        refused(code, s.data.read)
        assert [named(i["status"]) for i in s.has(want(s.ns, s.key("v")), want(s.ns, s.key("w")))] == ["ABSENT", "ABSENT"]
        s.close()
    s = Session(peer, tenant)
    req, _ = s.begin([])
    s.commit(req)
    s.data.write(control("COMMIT", req))
    refused("STATE", s.data.read)
    s.close()


def standing(peer, tenant, name):
    """A session with homes for its pushes, after a first one."""
    s = Session(peer, tenant, features=STANDING)
    s.push({name: os.urandom(BLOCK)})
    homes = s.data.expect("STANDING")
    assert (homes["ns"], homes["tier"], homes["len"]) == (s.ns, 0, BLOCK) and homes["n"] > 1, homes
    return s, homes["n"]


def deliver(s, bodies):
    """DELIVER of {name: body} and its DATA, without COMMIT."""
    req = s.peer.next()
    items = [push_item(s.ns, s.key(n), len(b), mrdn.header(b)) for n, b in bodies.items()]
    return req, control("DELIVER", req, batch(items, u32(5000))) + b"".join(data(req, i, 0, b) for i, b in enumerate(bodies.values()))


def check_standing(peer, tenant, _):
    """STANDING and DELIVER: a small push goes in one flight, and what finds no home is FULL"""
    s, n = standing(peer, tenant, "one")
    bodies = {"in one flight": os.urandom(BLOCK), "another": os.urandom(BLOCK - 1)}
    req, frames = deliver(s, bodies)
    s.data.write(frames + control("COMMIT", req))
    table = s.data.expect("TABLE", req)["items"]
    assert s.data.end(req)["status"] == [i["status"] for i in table] == [0, 0], table
    assert s.pull(*[want(s.ns, s.key(k), most=BLOCK) for k in bodies])[1] == list(bodies.values())
    body = os.urandom(BLOCK)
    wrong, half = bytes([body[0] ^ 1]) + body[1:], os.urandom(BLOCK // 2)
    req = s.peer.next()
    items = [("one", body), ("wrong", body), ("half", half), ("good", body), ("good", body)]
    s.data.write(control("DELIVER", req, batch([push_item(s.ns, s.key(k), len(b), mrdn.header(b)) for k, b in items], u32(5000)))
                 + b"".join(data(req, i, 0, wrong if k == "wrong" else b) for i, (k, b) in enumerate(items)) + control("COMMIT", req))
    got = [named(i["status"]) for i in s.data.expect("TABLE", req)["items"]]
    assert got == ["EXISTS", "CHECKSUM", "FULL", "OK", "EXISTS"] == [named(i) for i in s.data.end(req)["status"]], got
    req = s.peer.next()
    item = mrdn.header(body)
    s.data.write(control("DELIVER", req, batch([push_item(s.ns, s.key(f"more {i}"), BLOCK, item) for i in range(2 * n)], u32(5000)))
                 + b"".join(data(req, i, 0, body) for i in range(2 * n)) + control("COMMIT", req))
    while (first := s.data.read())[0] == "STANDING":
        pass
    got = [named(i["status"]) for i in first[2]["items"]]
    assert 0 < got.count("OK") <= n and set(got[:got.count("OK")]) == {"OK"} and set(got[got.count("OK"):]) == {"FULL"}, got
    s.data.end(req)
    s.simple("PING", b"")
    s.close()


def check_standing_violations(peer, tenant, _):
    """DELIVER: what is not due ends the lane, nothing is published, and what is turned away is dropped until COMMIT"""
    for i, (code, frames) in enumerate((
            ("STATE", lambda q, all_: all_[:-BLOCK - 28] + control("COMMIT", q)), ("FLOW_VIOLATION", lambda q, all_: all_ + data(q, 0, 0, b"x")),
            ("STATE", lambda q, all_: all_ + control("DELIVER", q, batch([], u32(5000)))), ("STATE", lambda q, all_: all_ + control("GRANT", q, batch([]))),
            ("INVALID", lambda q, all_: control("STANDING", 0, struct.pack("<HHII", 0, 0, 1, BLOCK))))):
        s, _ = standing(peer, tenant, f"before {i}")
        req, all_ = deliver(s, {f"bad {i}": os.urandom(BLOCK)})
        s.data.write(frames(req, all_))
        refused(code, s.data.read)
        assert named(s.has(want(s.ns, s.key(f"bad {i}")))[0]["status"]) == "ABSENT"
        s.close()
    s, _ = standing(peer, tenant, "before all")
    req = s.peer.next()
    late = push_item(s.ns, s.key("late"), 4, mrdn.header(b"late"))
    s.data.write(control("DELIVER", req, batch([late], u32(0))) + data(req, 0, 0, b"late") + control("COMMIT", req))
    s.data.end(req, "DEADLINE")
    s.data.write(control("COMMIT", req))
    refused("STATE", s.data.read)
    s.close()


def check_abort(peer, tenant, _):
    """ABORT and CANCEL end what they name, once, and another END follows each time"""
    s = Session(peer, tenant)
    for kind in ("ABORT", "CANCEL"):
        req, _ = s.begin([push_item(s.ns, s.key("gone"), 100, mrdn.header(bytes(100)))])
        s.data.write(data(req, 0, 0, bytes(60)) + control(kind, req) * 2)
        s.data.end(req, "CANCELLED")
        s.data.end(req, "CANCELLED")
        assert named(s.has(want(s.ns, s.key("gone")))[0]["status"]) == "ABSENT"
    s.close()


def check_leases(peer, tenant, _):
    """PULL with KEEP_LEASE, RENEW and RELEASE: a lease is the session's own"""
    s, thief = Session(peer, tenant), Session(peer, tenant)
    s.push({"leased": b"x" * 10})
    w = want(s.ns, s.key("leased"), flags=KEEP_LEASE)
    zero = bytes(16)
    assert s.pull(w, lease_ms=0)[0]["lease"] == zero.hex() == s.pull(want(s.ns, s.key("leased"), most=10), lease_ms=5000)[0]["lease"]
    assert s.pull(want(s.ns, s.key("absent"), flags=KEEP_LEASE), lease_ms=5000)[0]["lease"] == zero.hex()
    table, got, status = s.pull(w, want(s.ns, s.key("leased"), most=10), lease_ms=5000)
    lease = bytes.fromhex(table["lease"])
    assert lease != zero and got == [b"", b"x" * 10] and status == ["OK", "OK"]
    for ms in (5000, 0, 0xFFFFFFFF):
        s.simple("RENEW", lease + u32(ms))
    thief.simple("RENEW", lease + u32(5000), "LEASE_LOST")
    thief.simple("RELEASE", batch([lease]))
    s.simple("RENEW", lease + u32(5000))
    s.simple("RELEASE", batch([lease, lease]))
    s.simple("RENEW", lease + u32(5000), "LEASE_LOST")
    s.simple("RENEW", zero + u32(5000), "LEASE_LOST")
    s.close()
    thief.close()


def check_credit(peer, tenant, _):
    """A request above the limits is BUSY, one above twice is FLOW_VIOLATION"""
    s = Session(peer, tenant)
    for code, most in (("BUSY", (1 << 28) + 1), ("BUSY", 1 << 29), ("DEADLINE", 1)):
        req = s.peer.next()
        s.data.write(control("PULL", req, batch([want(s.ns, s.key("absent"), most=most)], u32(0 if most == 1 else 5000, 0))))
        s.data.end(req, code)
    s.data.write(control("PULL", s.peer.next(), batch([want(s.ns, s.key("absent"), most=(1 << 29) + 1)], u32(5000, 0))))
    refused("FLOW_VIOLATION", s.data.read)
    s.close()


def check_namespaces(peer, tenant, engine):
    """OPEN: one number for one manifest, the field that differs, no word about others' tenants"""
    held = None
    if engine:  # geometry is compared with what an engine of that node has
        held = Engine(engine)
        m = manifest(tenant)
        assert held.ask("OPEN", u32(len(m)) + m)[-1][1]["code"] == 0
    s = Session(peer, tenant)
    assert s.ns > 0 and s.open(manifest(tenant))["ns"] == s.ns
    unknown = [s.open(manifest("nobody", model=m)) for m in ("page", "other")]
    assert unknown[0] == unknown[1] and named(unknown[0]["status"]) == "NS_UNKNOWN" and unknown[0]["ns"] == 0, unknown
    if held:
        got = s.open(manifest(tenant, dtype="bf16"))
        assert (named(got["status"]), got["field"], got["ours"], got["theirs"], got["ns"]) == ("GEOMETRY", "dtype", "u8", "bf16", 0), got
        held.close()
    for broken in (b"", manifest(tenant)[:-1], manifest(tenant).replace(b"=16", b"=016"), manifest(tenant) + b"x=1\n"):
        assert named(s.open(broken)["status"]) == "MANIFEST"
    s.close()


def check_lanes(peer, tenant, _):
    """Lanes: taken down by a newer one, gone on with after a loss, dropped by a new incarnation"""
    s = Session(peer, tenant)
    s.push({"lane": b"abc"})
    table, _, _ = s.pull(want(s.ns, s.key("lane"), flags=KEEP_LEASE), lease_ms=30000)
    again = peer.dial(s.control.session, 1)
    closed(s.data)
    s.data = s.lanes[0] = again
    s.control.close()
    assert s.pull(want(s.ns, s.key("lane"), most=3))[1] == [b"abc"], "a data lane while lane 0 is away"
    session = s.control.session
    s.control = peer.dial(session)
    assert s.control.session == session
    s.simple("RENEW", bytes.fromhex(table["lease"]) + u32(1000))
    assert s.pull(want(s.ns, s.key("lane"), most=3))[1] == [b"abc"]
    fresh = peer.dial(b"\7" * 16)
    assert fresh.session not in (b"\7" * 16, bytes(16), session)
    old, peer.inc = peer.inc, peer.inc + 1
    refused("AUTH", peer.dial, session)  # of the earlier instance, which goes on
    assert s.pull(want(s.ns, s.key("lane"), most=3))[1] == [b"abc"]
    newer = peer.dial()
    for lane in (s.control, s.data, fresh):
        closed(lane)
    refused("INCARNATION", peer.dial, inc=old)
    newer.close()
    s.close()


def closed(lane):
    try:
        raise AssertionError(f"{lane.read()[0]} came, want the lane closed without ERROR")
    except Closed:
        pass


def check_goaway(peer, tenant, _):
    """GOAWAY of the peer: it is served as before"""
    s = Session(peer, tenant)
    s.control.write(control("GOAWAY", 0, struct.pack("<IHH", 60000, 203, 0)) * 2)
    s.push({"late": b"x"})
    assert s.pull(want(s.ns, s.key("late"), most=1))[1] == [b"x"]
    s.close()
