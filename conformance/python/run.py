#!/usr/bin/env python3
"""Tries a Meridian agent with a peer and an engine made from docs/spec alone.

    run.py --link tcp://127.0.0.1:7000 --name decode --psk-file key --tenant acme --engine /run/meridian/engine.sock

Prints a line for each check and ends with 1 where one failed. README.md says what the agent's configuration needs.
"""
import argparse
import json
import os
import ssl
import sys
import traceback

import agents
import engines
import groups
from link import Agent, Certificate, Closed, Lane, Refused, connect, control, named

EXCHANGES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "vectors", "link-v1", "exchanges")


def exchanges(name):
    with open(os.path.join(EXCHANGES, name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def brief(name, frame, fields):
    """An answer as the vectors give it."""
    out = {"type": name, "req": int(frame["req"])}
    if name == "END":
        out["code"] = fields["code"]
    elif name == "OPENED":
        out["code"] = fields["status"]
    status = fields.get("status") if name in ("END", "GRANT", "RESERVED") else [i["status"] for i in fields.get("items", [])]
    return {**out, **({"status": status} if status else {})}


def play(lane, case, ping):
    """Sends what a case sends, and compares what comes."""
    lane.write(b"".join(bytes.fromhex(f) for f in case["send"]) + (b"" if case["ends"] else control("PING", ping)))
    wanted = case["answers"] + ([] if case["ends"] else [{"type": "END", "req": ping, "code": 0}])
    got = []
    try:
        while len(got) < len(wanted) or case["ends"] or ping not in [a["req"] for a in got]:
            got.append(brief(*lane.read()))
    except Refused as refused:
        got.append({"type": "ERROR", "code": refused.code})
        try:
            extra = lane.read()
            raise AssertionError(f"{extra[0]} after ERROR")
        except Closed:
            pass
    except Closed:
        got.append({"type": "closed without ERROR"})
    got.sort(key=lambda a: a.get("req", 0))  # requests are answered in any order, each in its own
    for a in got[:len(wanted)]:
        if a["type"] == "END" and "status" not in wanted[got.index(a)]:
            a.pop("status", None)
    assert got == wanted, f"got {got}, want {wanted}"


class Checks:
    def __init__(self):
        self.good, self.bad = 0, 0

    def run(self, name, f, *args):
        try:
            f(*args)
            self.good += 1
            print(f"ok    {name}", flush=True)
        except Exception as err:
            self.bad += 1
            at = traceback.extract_tb(err.__traceback__)
            lines = ", ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in at[1:])
            print(f"FAIL  {name}: {str(err) or err.__class__.__name__} ({lines})", flush=True)

    def functions(self, room, *args):
        for name, f in list(vars(room).items()):
            if name.startswith("check_"):
                self.run(f.__doc__, f, *args)


def first(address, case, certificate=None):
    lane = Lane(connect(address, certificate))
    play(lane, case, 1)
    lane.close()


def session(agent, lane0, case):
    """On a lane of its own; lane 0 is dialled again, which the session outlives."""
    lane = agent.dial(lane0.session, case["lane"])
    play(lane, case, agent.next())
    lane.close()


def local(address, case, **fields):
    engine = engines.Engine(address, **fields)
    play(engine, case, engine.next())
    engine.close()


def turned_away(peer, why):
    """A certificate is refused: by TLS itself before any frame, or by a code."""
    try:
        peer.dial()
    except ssl.SSLError as err:
        assert why == "tls", f"TLS refuses: {err}, want {why}"
    except Closed:
        assert why == "tls", f"the connection is closed, want {why}"
    except Refused as err:
        assert named(err.code) == why, f"{err}, want {why}"
    else:
        raise AssertionError(f"taken, want {why}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--link", help="tcp://HOST:PORT, tls://HOST:PORT or unix:///PATH of the agent's link")
    p.add_argument("--name", default="", help="the name under which the agent lists this peer")
    p.add_argument("--psk-file", help="file with the pre-shared key, as the agent uses it; without: --method")
    p.add_argument("--method", type=int, default=0, help="auth method without a key: 0 none, 3 peer credentials")
    p.add_argument("--server-name", help="with tls: the agent's name")
    p.add_argument("--certificate", nargs=3, metavar=("CA", "CERT", "KEY"), help="with tls: PEM files")
    p.add_argument("--refused", nargs=4, action="append", default=[], metavar=("WHY", "CA", "CERT", "KEY"),
                   help="a certificate that the agent must refuse: WHY is tls, or the code of the ERROR; CERT may be empty")
    p.add_argument("--tenant", required=True)
    p.add_argument("--engine", help="path of the engine's socket")
    a = p.parse_args()
    checks = Checks()
    if a.engine:
        path = "unix://" + a.engine
        for case in exchanges("first"):
            checks.run(f"engine, first frame: {case['name']}", first, path, case)
        for case in exchanges("local"):
            checks.run(f"engine: {case['name']}", local, path, case)
        for case in exchanges("group") + exchanges("load"):
            checks.run(f"engine of a group: {case['name']}", lambda: local(path, case, **groups.new()))
        checks.functions(engines, path, a.tenant)
        checks.functions(groups, path, a.tenant)
    if a.link:
        psk = b""
        if a.psk_file:
            with open(a.psk_file, "rb") as file:
                psk = file.read()
        shown = Certificate(*a.certificate, a.server_name) if a.certificate else None
        peer = Agent(a.link, a.name, 1 if shown else 2 if psk else a.method, psk, shown)
        for why, *files in a.refused:
            stranger = Agent(a.link, a.name, 1, certificate=Certificate(*files, a.server_name))
            checks.run(f"link, {os.path.basename(files[1]) or 'no certificate'}: {why}", turned_away, stranger, why)
        for case in exchanges("first"):
            checks.run(f"link, first frame: {case['name']}", first, a.link, case, shown)
        lane0 = peer.dial()
        for case in exchanges("session"):
            checks.run(f"link, lane {case['lane']}: {case['name']}", session, peer, lane0, case)
        lane0.close()
        checks.functions(agents, peer, a.tenant, "unix://" + a.engine if a.engine else None)
    print(f"{checks.good} checks hold, {checks.bad} do not")
    return 1 if checks.bad or not checks.good else 0


if __name__ == "__main__":
    sys.exit(main())
