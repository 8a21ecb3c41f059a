"""What an engine can expect of the agent of its node; a check each, named by its first line."""
import os
import struct

import mrdn
from agents import BLOCK, RUN, manifest, refused
from link import LOCAL, RING, Engine, Hello, Lane, batch, connect, control, named, put_item, seg, u32, want


class Opened(Engine):
    """An engine with a namespace."""

    def __init__(self, address, tenant, **fields):
        super().__init__(address, **{"features": LOCAL | RING, **fields})
        m = manifest(tenant)
        self.space = mrdn.namespace(m)
        (kind, opened), (_, end) = self.ask("OPEN", u32(len(m)) + m)
        assert kind == "OPENED" and opened["status"] == end["code"] == 0, (opened, end)
        self.ns = opened["ns"]

    def key(self, name):
        return mrdn.key(self.space, RUN + name.encode())

    def put(self, *items, deadline=5000):
        (_, end), = self.ask("PUT", batch(items, u32(deadline)))
        return end["code"], [named(s) for s in end["status"]], end["text"]

    def need(self, size):
        """Asks for a staging ring of at least size bytes."""
        (_, end), = self.ask("MAP", u32(1) + seg(0, 3, size))
        return named(end["code"]), end["text"]

    def stage(self, body, at=0):
        if self.ring is None or at + len(body) > len(self.ring):
            assert self.need(at + len(body)) == ("OK", ""), "no staging ring"
        self.ring[at:at + len(body)] = body
        return len(body), at

    def acquire(self, *wants, hold=0, lease=5000):
        got = self.ask("ACQUIRE", batch(wants, u32(5000, lease, hold)))
        assert len(got) == 2 and got[1][1]["code"] == 0, got
        return got[0][1]

    def release(self, *leases):
        assert self.ask("RELEASE", batch([bytes.fromhex(l) for l in leases]))[0][1]["code"] == 0


def check_hello(path, tenant):
    """HELLO: feature LOCAL and lane 0, nothing else is looked at"""
    refused("UNSUPPORTED", Engine, path, features=2)
    refused("STATE", Engine, path, lane=1)
    refused("LINK_VERSION", Engine, path, min=2, max=9)
    e = Engine(path, agent=b"\1" * 16, session=b"\2" * 16, limits=(0, 0, 0, 0, 0), auth=[(9, b"x")])
    assert int(e.hello["features"]) & 1 and e.hello["limits"]["reqs"] and e.hello["limits"]["items"]
    e.close()


def check_hello_timeout(path, tenant):
    """An engine that says nothing, or half a HELLO, is ended with HELLO_TIMEOUT"""
    silent, half = Lane(connect(path)), Lane(connect(path))
    half.write(Hello(features=LOCAL).frame()[:40])
    refused("HELLO_TIMEOUT", silent.read)
    refused("HELLO_TIMEOUT", half.read)


def check_blocks(path, tenant):
    """PUT and ACQUIRE: bodies come back, mapped, by key and by reference"""
    e = Opened(path, tenant)
    bodies, at, items = {"e-empty": b"", "e-a": os.urandom(300), "e-b": os.urandom(BLOCK)}, 0, []
    for name, body in bodies.items():
        items.append(put_item(e.ns, e.key(name), *e.stage(body, at), tier=1))
        at += len(body)
    assert e.put(*items)[:2] == (0, ["OK"] * 3)
    got = e.acquire(*[want(e.ns, e.key(n)) for n in bodies])
    for place, body in zip(got["items"], bodies.values()):
        assert place["status"] == 0 and (place["tier"], place["attest"]) == (1, 2), place
        assert e.body(place) == (mrdn.header(body, 1), body)
    b = got["items"][2]
    again = e.acquire(want(e.ns, slot=b["slot"], gen=b["gen"]), want(e.ns, e.key("e-b"), slot=b["slot"], gen=b["gen"]),
                      want(e.ns, e.key("e-a"), slot=b["slot"], gen=b["gen"]), want(e.ns, slot=b["slot"], gen=b["gen"] + 2),
                      want(e.ns, e.key("none")), want(e.ns), want(e.ns + 1, e.key("e-a")))
    assert [named(p["status"]) for p in again["items"]] == ["OK", "OK", "STALE", "STALE", "ABSENT", "ABSENT", "NS_UNKNOWN"]
    assert again["items"][0] == b
    none = e.acquire(want(e.ns, e.key("none")))
    assert none["lease"] == bytes(16).hex()
    table = e.ask("HAS", batch([want(e.ns, slot=b["slot"], gen=b["gen"]), want(e.ns, e.key("none"))], u32(5000)))[0][1]["items"]
    assert [named(i["status"]) for i in table] == ["OK", "ABSENT"] and table[0]["len"] == BLOCK
    e.release(got["lease"], again["lease"], got["lease"])
    e.close()


def check_put_statuses(path, tenant):
    """PUT: what is wrong with an item is its status, and the others go on"""
    e = Opened(path, tenant)
    e.stage(b"x" * 100)
    e.put(put_item(e.ns, e.key("p-there"), 100, 0))
    size = len(e.ring)
    code, got, _ = e.put(
        put_item(e.ns, e.key("p-there"), 100, 0), put_item(e.ns + 1, e.key("p"), 1, 0), put_item(e.ns, e.key("p"), 2, size - 1),
        put_item(e.ns, e.key("p"), 1, 1 << 63), put_item(e.ns, e.key("p"), BLOCK + 1, 0), put_item(e.ns, bytes(32), 1, 0),
        put_item(e.ns, e.key("p-new"), 100, 0), put_item(e.ns, e.key("p-new"), 100, 0))
    assert (code, got) == (0, ["EXISTS", "NS_UNKNOWN", "INVALID", "INVALID", "TOO_LARGE", "INVALID", "OK", "EXISTS"]), got
    e.close()


def check_leases(path, tenant):
    """Leases: renewed, given back, held; another session's are none"""
    e, thief = Opened(path, tenant), Opened(path, tenant)
    e.stage(b"x")
    e.put(put_item(e.ns, e.key("l"), 1, 0))
    for lease, hold in ((5000, 0), (0, 0), (1000, 1)):
        token = bytes.fromhex(e.acquire(want(e.ns, e.key("l")), hold=hold, lease=lease)["lease"])
        for ms in (1000, 0):
            assert e.ask("RENEW", token + u32(ms))[0][1]["code"] == 0
        assert named(thief.ask("RENEW", token + u32(1000))[0][1]["code"]) == "LEASE_LOST"
        thief.release(token.hex())
        assert e.ask("RENEW", token + u32(1000))[0][1]["code"] == 0
        e.release(token.hex())
        assert named(e.ask("RENEW", token + u32(1000))[0][1]["code"]) == "LEASE_LOST"
    e.close()
    thief.close()


def check_maps(path, tenant):
    """MAP: asked for, all comes anew"""
    e = Opened(path, tenant)
    e.stage(b"abc")
    e.put(put_item(e.ns, e.key("m"), 3, 0))
    place = e.acquire(want(e.ns, e.key("m")))["items"][0]
    before = set(e.segs)
    e.segs, e.ring = {}, None
    assert e.ask("MAP", u32(0))[-1][1]["code"] == 0
    assert e.ring[:3] == b"abc" and set(e.segs) == before and e.body(place)[1] == b"abc"
    e.close()


def check_ring(path, tenant):
    """A staging ring comes when it is asked for, and to an engine that cannot ask with OPENED"""
    e = Opened(path, tenant)
    assert e.ring is None, "a staging ring that nobody asked for"
    code, text = e.need(1 << 50)
    assert code == "TOO_LARGE" and text, (code, text)
    e.stage(b"abc")
    size = len(e.ring)
    assert size >= BLOCK, f"a ring of {size} bytes for blocks of {BLOCK}"
    for least in (0, 1, size):
        e.ring = None
        assert e.need(least) == ("OK", "") and len(e.ring) == size and e.ring[:3] == b"abc"
    e.close()
    nothing = Engine(path, features=LOCAL | RING)
    (_, end), = nothing.ask("MAP", u32(1) + seg(0, 3, 1))
    assert named(end["code"]) == "STATE", end
    nothing.close()
    old = Opened(path, tenant, features=LOCAL)
    assert old.ring is not None and len(old.ring) >= BLOCK, "no staging ring before OPENED"
    old.stage(b"old")
    assert old.put(put_item(old.ns, old.key("r-old"), 3, 0))[:2] == (0, ["OK"])
    old.close()


def check_generation(path, tenant):
    """BEGIN, TOKENS, PHASE and FINISH"""
    e = Opened(path, tenant)
    def begin(number):
        return named(e.ask("BEGIN", u32(number, 0, 0, 0) + struct.pack("<HHI", 2, 4, 3) + struct.pack("<3i", 1, 2, -3) + b"idpage")[-1][1]["code"])
    def tokens(number):
        return control("TOKENS", 0, u32(1, 2, number) + b"\2" + struct.pack("<2i", 5, 6))
    assert (begin(7), begin(7), begin(0)) == ("OK", "INVALID", "INVALID")
    e.write(tokens(7) + tokens(9))
    got = e.ask("FINISH", u32(7, 0))
    assert ("PHASE", 7, 4, 5) in [(n, f.get("req"), f.get("kind"), f.get("reason")) for n, f in got], got
    assert got[-1][1]["code"] == 0 == e.ask("FINISH", u32(7, 1))[-1][1]["code"] and begin(7) == "OK"
    e.close()


def check_reuse(path, tenant):
    """A namespace has one number, and a refused tenant learns nothing"""
    e = Opened(path, tenant)
    m, stranger = manifest(tenant), manifest("nobody")
    assert e.ask("OPEN", u32(len(m)) + m)[0][1]["ns"] == e.ns
    (_, opened), (_, end) = e.ask("OPEN", u32(len(stranger)) + stranger)
    assert named(opened["status"]) == named(end["code"]) == "NS_UNKNOWN"
    e.close()
