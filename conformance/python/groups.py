"""What the sessions of one engine (GROUP) can expect of their agent, and one without checksums (PLAIN); a check each."""
import os
import struct

from agents import refused
from engines import Opened
from link import GROUP, LOCAL, PLAIN, RING, Engine, batch, control, named, put_item, u32, want

FEATURES = LOCAL | RING | GROUP


def new():
    """What HELLO of the first session of a new group says."""
    return {"features": FEATURES, "agent": os.urandom(16), "inc": int.from_bytes(os.urandom(7), "little") + 1}


class Group:
    """An engine: sessions that say the same agent and incarnation."""

    def __init__(self, path, tenant, *auth, **fields):
        self.path, self.tenant = path, tenant
        self.same = {**new(), **fields}
        self.sessions = []
        self.secret = None
        first = self.session(*auth)
        given = [bytes.fromhex(e["value"]) for e in first.hello["auth"] if e["type"] == 5]
        if given:
            self.secret, = given

    def session(self, *auth, opened=True):
        kind = Opened if opened else Engine
        auth = [(3, b"")] + list(auth)
        e = kind(self.path, self.tenant, auth=auth, **self.same) if opened else kind(self.path, auth=auth, **self.same)
        self.sessions.append(e)
        return e

    def close(self):
        for e in self.sessions:
            e.close()


def tokens(plain, *rows):
    """TOKENS of rows (number, ids)."""
    ids = [i for _, row in rows for i in row]
    return control("TOKENS", 0, u32(len(rows), len(ids), *[n for n, _ in rows]) + bytes(len(row) for _, row in rows) + struct.pack(f"<{len(ids)}i", *ids), plain)


def begin(e, number, prompt=(1, 2), model=b"m"):
    fields = u32(number, 0, 0, 0) + struct.pack("<HHI", 2, len(model), len(prompt)) + struct.pack(f"<{len(prompt)}i", *prompt) + b"id" + model
    return named(e.ask("BEGIN", fields)[-1][1]["code"])


def check_group_hello(path, tenant):
    """GROUP: HELLO needs an agent, an incarnation, and a secret of 0 or 32 bytes, once"""
    good = new()
    for wrong in ({"agent": bytes(16)}, {"inc": 0}, {"auth": [(5, bytes(31))]}, {"auth": [(5, bytes(33))]}, {"auth": [(5, b""), (5, bytes(32))]}):
        refused("AUTH", Engine, path, **{**good, **wrong})
    e = Engine(path, **good)
    assert int(e.hello["features"]) & GROUP and not e.hello["auth"], e.hello
    e.close()


def check_group_secret(path, tenant):
    """A group's secret: made when the first session asks, brought by the others, and told to nobody else"""
    g = Group(path, tenant, (5, b""))
    assert len(g.secret) == 32 and g.secret != bytes(32)
    later = g.session((5, g.secret))
    assert not [e for e in later.hello["auth"] if e["type"] == 5], "the secret is told to a session that has it"
    refused("AUTH", g.session)
    refused("AUTH", g.session, (5, b""))
    refused("AUTH", g.session, (5, bytes(32)))
    other = Group(path, tenant, (5, b""))
    assert other.secret != g.secret
    other.close()
    g.close()
    again = Group(path, tenant, (5, g.secret), **{k: g.same[k] for k in ("agent", "inc")})
    assert again.secret is None, "a secret is sent back to the engine that has it"
    again.session((5, g.secret))
    again.close()
    bare = Group(path, tenant)
    bare.session()
    refused("AUTH", bare.session, (5, b""))
    refused("AUTH", bare.session, (5, g.secret))
    bare.close()


def check_group_shares(path, tenant):
    """Sessions of a group have numbers and leases together, and a ring each; another engine has none of it"""
    g = Group(path, tenant)
    scheduler, worker, stranger = g.sessions[0], g.session(opened=False), Opened(path, tenant)
    scheduler.stage(b"scheduler")
    assert scheduler.put(put_item(scheduler.ns, scheduler.key("g-a"), 9, 0))[:2] == (0, ["OK"])
    worker.ns = scheduler.ns
    got = worker.ask("ACQUIRE", batch([want(worker.ns, scheduler.key("g-a"))], u32(5000, 5000, 0)))
    assert got[0][0] == "ACQUIRED" and got[0][1]["items"][0]["status"] == 0, got
    assert worker.body(got[0][1]["items"][0])[1] == b"scheduler"
    held = scheduler.acquire(want(scheduler.ns, scheduler.key("g-a")), hold=1)["lease"]
    for lease in (got[0][1]["lease"], held):
        token = bytes.fromhex(lease)
        assert scheduler.ask("RENEW", token + u32(1000))[0][1]["code"] == 0 == worker.ask("RENEW", token + u32(1000))[0][1]["code"]
        assert named(stranger.ask("RENEW", token + u32(1000))[0][1]["code"]) == "LEASE_LOST"
        stranger.release(lease)
        other = worker if lease == held else scheduler
        assert other.ask("RELEASE", batch([token]))[0][1]["code"] == 0
        assert named(scheduler.ask("RENEW", token + u32(1000))[0][1]["code"]) == named(worker.ask("RENEW", token + u32(1000))[0][1]["code"]) == "LEASE_LOST"
    assert worker.ring is None, "a session has another's ring"
    second = g.session()
    assert second.ns == scheduler.ns
    second.stage(b"second")
    assert second.put(put_item(second.ns, second.key("g-b"), 6, 0))[:2] == (0, ["OK"]) and scheduler.ring[:9] == b"scheduler"
    stranger.close()
    g.close()


def check_group_end(path, tenant):
    """A session that goes takes its hold leases; timed leases and requests stay until the last one goes"""
    g = Group(path, tenant)
    first, second = g.sessions[0], g.session()
    first.stage(b"x")
    assert first.put(put_item(first.ns, first.key("g-end"), 1, 0))[:2] == (0, ["OK"])
    timed, held = (bytes.fromhex(first.acquire(want(first.ns, first.key("g-end")), hold=hold, lease=30000)["lease"]) for hold in (0, 1))
    assert begin(first, 7) == "OK"
    g.sessions.remove(first)
    first.close()
    assert second.ask("RENEW", timed + u32(30000))[0][1]["code"] == 0
    assert named(second.ask("RENEW", held + u32(30000))[0][1]["code"]) == "LEASE_LOST"
    assert begin(second, 7) == "INVALID", "a request has gone with the session that began it"
    second.close()
    again = Group(path, tenant, **{k: g.same[k] for k in ("agent", "inc")})
    assert begin(again.sessions[0], 7) == "OK"
    assert named(again.sessions[0].ask("RENEW", timed + u32(1000))[0][1]["code"]) == "LEASE_LOST"
    again.close()


def check_plain(path, tenant):
    """PLAIN: neither side writes checksums behind the HELLOs, and one is CRC"""
    e = Opened(path, tenant, features=LOCAL | RING | PLAIN)
    assert e.plain
    e.stage(b"plain")
    assert e.put(put_item(e.ns, e.key("plain"), 5, 0))[:2] == (0, ["OK"])
    got = e.acquire(want(e.ns, e.key("plain")))
    assert e.body(got["items"][0])[1] == b"plain"
    e.release(got["lease"])
    e.write(control("PING", e.next()))
    refused("CRC", e.read)
    e.close()
    g = Group(path, tenant, features=FEATURES | PLAIN)
    summed = g.session()
    assert summed.plain
    g.same["features"] = FEATURES
    assert not g.session().plain, "a session decides for itself"
    g.close()
