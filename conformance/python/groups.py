"""What the sessions of one engine (GROUP) can expect of their agent, and one without checksums (PLAIN); a check each."""
import array
import os
import socket
import struct

from agents import BLOCK, refused
from engines import Opened
from link import (ADVICE, AUTO, FETCH, GROUP, LOCAL, PIN, PLAIN, RING, WAIT, Engine, batch, control, load_item, named, put_item, store_item,
                  u32, want)

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


def check_group_advice(path, tenant):
    """PHASEAT comes to every session of the group, with the position"""
    g = Group(path, tenant)
    scheduler, worker = g.sessions[0], g.session()
    assert (begin(scheduler, 7), begin(worker, 7)) == ("OK", "INVALID")
    worker.stage(b"x")
    assert worker.put(put_item(worker.ns, worker.key("g-7"), 1, 0, tier=2, req=7))[:2] == (0, ["OK"])
    scheduler.write(tokens(False, (7, (5, 6, 8))))
    scheduler.ask("PING")  # the sessions' messages have no order among them
    got = worker.ask("FINISH", u32(7, 0))
    assert got[-1][1]["code"] == 0
    both = got[:-1], scheduler.ask("PING")[:-1]
    for advice in both:
        (name, fields), = advice
        assert name == "PHASEAT" and (fields["req"], fields["kind"], fields["reason"], fields["pos"]) == (7, 4, 5, 5), advice
    g.close()


def put_at(e, *items, deadline=5000):
    (_, end), = [a for a in e.ask("PUTAT", batch(items, u32(deadline))) if a[0] not in ADVICE]
    return end["code"], [named(s) for s in end["status"]], end["text"]


def tiers(e, *names):
    """The tiers that blocks have now."""
    got = e.acquire(*[want(e.ns, e.key(n)) for n in names])
    e.release(got["lease"])
    return [i["tier"] for i in got["items"]]


def resume(e, number, prompt, decoded, first=0, model=b"qwen3-8b"):
    """RESUME; gives END's code and the advice that came before the answer to a PING behind it."""
    fields = u32(number, 0, 0, 0) + struct.pack("<HHIII", 2, len(model), first, len(prompt), len(decoded))
    got = e.ask("RESUME", fields + struct.pack(f"<{len(prompt) + len(decoded)}i", *prompt, *decoded) + b"id" + model) + e.ask("PING")
    return named([f for n, f in got if n == "END"][0]["code"]), [f for n, f in got if n in ADVICE]


THINK, ANSWER = 151667, 151668  # of the models whose name begins with qwen3
OUTPUT, ACTIVE, COMPLETE = 2, 1, 0


def check_group_positions(path, tenant):
    """AUTO: a block's tier follows from its position in the request, whenever it is put"""
    g = Group(path, tenant)
    e = g.sessions[0]
    e.stage(b"x" * 16)
    def auto(name, pos):
        assert put_at(e, store_item(e.ns, e.key(name), 16, tier=AUTO, req=7, pos=pos))[:2] == (0, ["OK"])
    assert begin(e, 7, range(16), b"qwen3-8b") == "OK"
    e.write(tokens(False, (7, [THINK] + [9] * 31)))
    auto("at-prompt", 0), auto("at-thinking", 32)
    assert tiers(e, "at-prompt", "at-thinking") == [OUTPUT, ACTIVE]
    e.write(tokens(False, (7, [ANSWER] + [8] * 31)))
    auto("at-late", 20), auto("at-answer", 64), auto("at-begin", 16), auto("at-end", 33), auto("at-both", 34)
    assert tiers(e, "at-prompt", "at-thinking", "at-late", "at-answer") == [OUTPUT, COMPLETE, COMPLETE, OUTPUT]
    assert tiers(e, "at-begin", "at-end", "at-both") == [OUTPUT, COMPLETE, OUTPUT]
    e.ask("FINISH", u32(7, 0))
    assert [(n, f["kind"], f["pos"]) for n, f in e.advice] == [("PHASEAT", 1, 17), ("PHASEAT", 2, 49), ("PHASEAT", 4, 80)], e.advice
    assert tiers(e, "at-prompt", "at-thinking", "at-late", "at-answer") == [COMPLETE] * 4
    auto("at-nobody", 0)
    assert tiers(e, "at-nobody") == [COMPLETE]
    g.close()


def check_group_resume(path, tenant):
    """RESUME: the agent stands where it would, and says the latest only"""
    g = Group(path, tenant)
    e = g.sessions[0]
    def said(advice):
        return [(f["kind"], f["pos"], f["used"]) for f in advice]
    assert resume(e, 0, (), ()) == ("INVALID", [])
    code, advice = resume(e, 7, range(16), [THINK] + [9] * 20)
    assert (code, said(advice)) == ("OK", [(1, 17, 0)]), advice
    assert resume(e, 7, (), ())[0] == "INVALID"
    code, advice = resume(e, 8, range(6), [THINK, 9, 9, ANSWER, 8], first=10)
    assert (code, said(advice)) == ("OK", [(2, 20, 3)]), advice
    assert resume(e, 9, range(6), ()) == ("OK", [])
    e.write(tokens(False, (7, [9, ANSWER])))
    advice = [f for n, f in e.ask("PING") if n == "PHASEAT"]
    assert said(advice) == [(2, 39, 22)], advice
    e.stage(b"x")
    assert put_at(e, store_item(e.ns, e.key("r-late"), 1, tier=AUTO, req=7, pos=20))[:2] == (0, ["OK"])
    assert tiers(e, "r-late") == [COMPLETE]
    g.close()


def check_group_put_at(path, tenant):
    """PUTAT: what is wrong with an item is its status; pins are what the item says"""
    g = Group(path, tenant)
    e = g.sessions[0]
    e.stage(b"y" * 100)
    size = len(e.ring)
    code, got, _ = put_at(
        e, store_item(e.ns, e.key("pa"), 100), store_item(e.ns, e.key("pa"), 100), store_item(e.ns + 1, e.key("pb"), 1),
        store_item(e.ns, e.key("pb"), 2, size - 1), store_item(e.ns, bytes(32), 1), store_item(e.ns, e.key("pb"), BLOCK + 1),
        store_item(e.ns, e.key("pb"), 1, flags=PIN), store_item(e.ns, e.key("pc"), 1, flags=PIN, pin_ms=1000), store_item(e.ns, e.key("pd"), 1, tier=AUTO, req=99))
    assert (code, got) == (0, ["OK", "EXISTS", "NS_UNKNOWN", "INVALID", "INVALID", "TOO_LARGE", "INVALID", "OK", "OK"]), got
    g.close()


def check_group_reserve(path, tenant):
    """RESERVE and FILL: known keys are refused first, room is filled once, and what is left is given back"""
    g = Group(path, tenant)
    e, other = g.sessions[0], g.session()
    e.stage(b"0123456789")
    other.stage(b"0123456789")
    def reserve(*items, e=e, ttl=5000):
        got = e.ask("RESERVE", batch(items, u32(5000, ttl)))
        assert [n for n, _ in got] == ["RESERVED", "END"] and got[1][1]["code"] == 0, got
        return int(got[0][1]["rsv"]), [named(s) for s in got[0][1]["status"]]
    def fill(rsv, *items, last=0, e=e):
        (_, end), = e.ask("FILL", batch([struct.pack("<IIQ", *i) for i in items], struct.pack("<QI", rsv, last)))
        assert end["code"] == 0, end
        return [named(s) for s in end["status"]]
    assert e.put(put_item(e.ns, e.key("f-known"), 4, 0))[:2] == (0, ["OK"])
    rsv, got = reserve(*[store_item(e.ns, e.key(n), 4) for n in ("f-known", "f-a", "f-b", "f-c")], store_item(e.ns, bytes(32), 4),
                       store_item(e.ns + 1, e.key("f-d"), 4), store_item(e.ns, e.key("f-d"), BLOCK + 1), store_item(e.ns, e.key("f-a"), 4))
    assert rsv and got[:7] == ["EXISTS", "OK", "OK", "OK", "INVALID", "NS_UNKNOWN", "TOO_LARGE"] and got[7] in ("OK", "EXISTS"), got
    assert fill(rsv, (1, 4, 0), e=other) == ["LEASE_LOST"], "a reservation of another session"
    assert e.ask("HAS", batch([want(e.ns, e.key("f-a"))], u32(5000)))[0][1]["items"][0]["status"] == 100
    size = len(e.ring)
    assert fill(rsv, (1, 3, 2), (1, 4, 0), (0, 4, 0), (2, 5, 0), (2, 0, 0), (2, 4, size - 3), (99, 1, 0)) == ["OK"] + ["INVALID"] * 6
    assert other.put(put_item(other.ns, other.key("f-b"), 4, 0))[:2] == (0, ["OK"])
    assert fill(rsv, (2, 4, 4), last=1) == ["EXISTS"]
    assert fill(rsv, (3, 4, 0)) == ["LEASE_LOST"] and fill(rsv, last=1) == []
    got = e.acquire(want(e.ns, e.key("f-a")), want(e.ns, e.key("f-c")))
    assert [named(i["status"]) for i in got["items"]] == ["OK", "ABSENT"] and e.body(got["items"][0])[1] == b"234"
    none, got = reserve(store_item(e.ns, e.key("f-known"), 4))
    assert (none, got) == (0, ["EXISTS"])
    assert reserve() == (0, [])
    rsv, _ = reserve(store_item(e.ns, e.key("f-c"), 4))
    g.sessions.remove(e)
    e.close()
    assert other.put(put_item(other.ns, other.key("f-c"), 4, 0))[:2] == (0, ["OK"]), "room of a session that has gone"
    g.close()


def check_group_handoff(path, tenant):
    """HANDOFF ends a request, for every session of its group; its blocks stay, and END says how many"""
    g = Group(path, tenant)
    e, other = g.sessions[0], g.session()
    def handoff(e, number, keep):
        got = e.ask("HANDOFF", u32(number, keep))
        return named(got[-1][1]["code"]), got[-1][1]["text"], [f for n, f in got if n == "PHASEAT"]
    assert handoff(e, 7, 0)[0] == "INVALID" and handoff(e, 7, 1000)[0] == "OK"
    assert begin(e, 7, range(16)) == "OK"
    e.stage(b"zz")
    items = [store_item(e.ns, e.key(n), 1, at, tier=2, req=7, pos=16 * at) for at, n in enumerate(("h-a", "h-b"))]
    assert put_at(e, *items)[:2] == (0, ["OK"] * 2)
    code, text, advice = handoff(other, 7, 5000)
    assert code == "OK" and "2 " in text, (code, text)
    assert handoff(e, 7, 5000)[0] == "OK" and begin(e, 7) == "OK", "the number is not free"
    g.close()


class Load:
    """A LOAD under way: its parts as they come, and its END."""

    def __init__(self, e, *items, holders=(), deadline=5000, lease=5000, hold=0):
        self.e, self.req, self.parts, self.end, self.n = e, e.next(), [], None, len(items)
        fields = u32(deadline, lease) + struct.pack("<BBHI", hold, 0, len(holders), len(items)) + b"".join(a + struct.pack("<Q", i) for a, i in holders)
        e.write(control("LOAD", self.req, fields + b"".join(items), e.plain))

    def step(self):
        """Reads the next part or END, MAP and advice aside."""
        name, frame, fields = self.e.read()
        if name == "MAP":
            self.e.map(fields)
            return self.step()
        assert int(frame["req"]) == self.req, f"{name} of {frame['req']} while LOAD {self.req} runs"
        if name == "END":
            self.end = fields
            return None
        assert name == "LOADED" and fields["first"] == len(self.places()), (name, fields, self.parts)
        assert len(self.places()) + len(fields["items"]) <= self.n, "more items than were asked"
        assert (fields["lease"] == bytes(16).hex()) == all(i["status"] for i in fields["items"]), fields
        self.parts.append(fields)
        return fields

    def places(self):
        return [i for p in self.parts for i in p["items"]]

    def all(self):
        """Everything until END; gives the items' statuses."""
        while self.end is None:
            self.step()
        assert self.end["code"] or len(self.places()) == self.n, "END OK before the last part"
        return [named(i["status"]) for i in self.places()]

    def release(self):
        self.e.release(*[p["lease"] for p in self.parts])


def check_group_load(path, tenant):
    """LOAD: what is here comes at once, in order, under leases"""
    g = Group(path, tenant)
    e = g.sessions[0]
    e.stage(b"abcdefgh")
    assert e.put(put_item(e.ns, e.key("o-a"), 3, 0), put_item(e.ns, e.key("o-b"), 5, 3))[:2] == (0, ["OK"] * 2)
    l = Load(e, load_item(e.ns, e.key("o-a")), load_item(e.ns, e.key("o-none")), load_item(e.ns, e.key("o-b")), load_item(e.ns + 1, e.key("o-a")))
    assert l.all() == ["OK", "ABSENT", "OK", "NS_UNKNOWN"] and l.end["code"] == 0
    a, _, b, _ = l.places()
    assert (e.body(a)[1], e.body(b)[1]) == (b"abc", b"defgh")
    for p in l.parts:
        if p["lease"] != bytes(16).hex():
            assert e.ask("RENEW", bytes.fromhex(p["lease"]) + u32(1000))[0][1]["code"] == 0
    l.release()
    again = Load(e, load_item(e.ns, slot=b["slot"], gen=b["gen"]), load_item(e.ns, e.key("o-a"), slot=b["slot"], gen=b["gen"]), hold=1)
    assert again.all() == ["OK", "STALE"] and again.places()[0] == b
    again.release()
    g.close()


def check_group_wait(path, tenant):
    """WAIT: what is here does not wait for what is not; that comes when it is put, by whichever session"""
    g = Group(path, tenant)
    e, writer = g.sessions[0], g.session()
    writer.stage(b"first second")
    assert writer.put(put_item(writer.ns, writer.key("w-a"), 5, 0))[:2] == (0, ["OK"])
    l = Load(e, *[load_item(e.ns, e.key(n), flags=WAIT) for n in ("w-a", "w-b", "w-a")], deadline=60000)
    assert len(l.step()["items"]) == 1, "the first part is not what is here at once"
    e.write(control("PING", e.next()))
    name, frame, _ = e.read()
    assert (name, int(frame["req"])) == ("END", e.req), "a parked LOAD holds up a PING"
    assert writer.put(put_item(writer.ns, writer.key("w-b"), 6, 6))[:2] == (0, ["OK"])
    assert l.all() == ["OK"] * 3 and [e.body(p)[1] for p in l.places()] == [b"first", b"second", b"first"]
    l.release()
    never = Load(e, load_item(e.ns, e.key("w-never"), flags=WAIT), load_item(e.ns, e.key("w-a")), deadline=50)
    assert never.all() == ["ABSENT", "OK"] and never.end["code"] == 0
    never.release()
    l = Load(e, load_item(e.ns, e.key("w-a")), load_item(e.ns, e.key("w-never"), flags=WAIT), deadline=60000)
    part = l.step()
    e.write(control("CANCEL", l.req))
    l.all()
    assert named(l.end["code"]) == "CANCELLED" and len(l.places()) == 1, (l.end, l.parts)
    assert e.ask("RENEW", bytes.fromhex(part["lease"]) + u32(1000))[0][1]["code"] == 0, "a part that came has lost its lease"
    l.release()
    Load(e, load_item(e.ns, e.key("w-gone"), flags=WAIT), deadline=60000)
    g.close()  # with a LOAD that waits


def check_group_hint(path, tenant):
    """A holder that is none is said in END's text, and asked for nothing else"""
    g = Group(path, tenant)
    e = g.sessions[0]
    e.stage(b"here")
    assert e.put(put_item(e.ns, e.key("hint-a"), 4, 0))[:2] == (0, ["OK"])
    nobody = [(os.urandom(16), 7)]
    l = Load(e, load_item(e.ns, e.key("hint-a"), holder=1), load_item(e.ns, e.key("hint-none"), holder=1), holders=nobody)
    assert l.all() == ["OK", "ABSENT"] and l.end["code"] == 0 and l.end["text"], l.end
    l.release()
    l = Load(e, load_item(e.ns, e.key("hint-none"), holder=1, flags=FETCH), holders=nobody)
    assert l.all() == ["ABSENT"] and l.end["code"] == 0
    g.close()


def check_group_process(path, tenant):
    """PROCESS takes one pidfd; a descriptor that nobody expects is closed"""
    g = Group(path, tenant)
    e = g.sessions[0]
    def send(kind, *fds):
        req = e.next()
        e.sock.sendmsg([control(kind, req)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        return named(e.expect("END", req)["code"])
    pidfd, (reads, writes) = os.pidfd_open(os.getpid()), os.pipe()
    assert [send("PROCESS", *fds) for fds in ([pidfd], [pidfd], [pidfd, pidfd], [reads])] == ["OK", "OK", "INVALID", "INVALID"]
    assert send("PING", writes) == "OK"
    os.close(writes)
    assert os.read(reads, 1) == b"", "a descriptor of a PING is kept"
    os.close(reads), os.close(pidfd)
    g.close()


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
