#!/usr/bin/env python3
"""An agent's peer while that agent leaves and comes back, made from docs/spec alone.

    drain.py --link unix:///PATH --name NAME --psk-file key --tenant acme

It begins a push and a lease, prints "running", and waits for GOAWAY. What runs must end well and what is new must be refused, which it
then prints as "done". The session is to be closed without ERROR; it dials until the agent is there again, and uses it.
"""
import argparse
import os
import time

import mrdn
from agents import Session, closed, refused
from link import KEEP_LEASE, PATIENCE, Agent, batch, control, data, named, push_item, u32, want


def leave(peer, tenant):
    s = Session(peer, tenant, lanes=2)
    s.push({"there": b"abc"})
    lease = bytes.fromhex(s.pull(want(s.ns, s.key("there"), flags=KEEP_LEASE), lease_ms=30000)[0]["lease"])
    body = os.urandom(5000)
    req, granted = s.begin([push_item(s.ns, s.key("late"), len(body), mrdn.header(body))], deadline=60000)
    assert granted == ["OK"], granted
    s.data.write(data(req, 0, 0, body[:2000]))
    print("running", flush=True)
    news = s.control.expect("GOAWAY", 0)
    assert named(news["code"]) == "DRAINING", news
    # What is new is refused, and what may still be sent is not.
    m = s.peer.next()
    s.control.write(control("HAS", m, batch([want(s.ns, s.key("there"))], u32(5000))))
    s.control.end(m, "DRAINING")
    other = s.lanes[1]
    for kind, fields in (("PULL", batch([want(s.ns, s.key("there"), most=3)], u32(5000, 0))),
                         ("PUSH", batch([push_item(s.ns, s.key("new"), 3, mrdn.header(b"new"))], u32(5000)))):
        m = s.peer.next()
        other.write(control(kind, m, fields))
        other.end(m, "DRAINING")
        if kind == "PUSH":
            other.write(control("ABORT", m))
            other.end(m, "CANCELLED")
    s.simple("PING", b"")
    s.simple("RENEW", lease + u32(5000))
    s.simple("RELEASE", batch([lease]))
    refused("DRAINING", peer.dial)
    refused("DRAINING", peer.dial, s.control.session, 2)
    # What ran goes on to its end.
    s.data.write(data(req, 0, 2000, body[2000:]))
    assert [named(i["status"]) for i in s.commit(req)] == ["OK"]
    print("done", flush=True)
    for lane in (s.control, s.data):
        closed(lane)


def come_back(peer, tenant):
    until = time.monotonic() + 3 * PATIENCE
    while True:
        try:
            s = Session(peer, tenant)
            break
        except OSError:
            assert time.monotonic() < until, "the agent does not come back"
            time.sleep(0.05)
    s.push({"again": b"abc"})
    assert s.pull(want(s.ns, s.key("again"), most=3))[1] == [b"abc"]
    s.close()


def main():
    p = argparse.ArgumentParser()
    for name in ("link", "name", "psk-file", "tenant"):
        p.add_argument("--" + name, required=True)
    a = p.parse_args()
    with open(a.psk_file, "rb") as file:
        peer = Agent(a.link, a.name, 2, file.read())
    leave(peer, a.tenant)
    come_back(peer, a.tenant)


if __name__ == "__main__":
    main()
