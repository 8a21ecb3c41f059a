"""What a batch costs an engine written in Python: python3 -m meridian.bench SOCKET.

Prints the median and the 90th percentile of each, in microseconds, as JSON with --json. The
daemon needs the tenant (--tenant, acme) and room for 1,024 blocks of 16 KiB.
"""
from __future__ import annotations

import argparse
import json
import os
import time
from typing import Callable

import numpy as np

from . import Engine, Manifest

BLOCK = 16 << 10
BLOCKS = 1024


def measure(rounds: int, call: Callable[[], object]) -> dict[str, float]:
    for _ in range(rounds // 10 + 1):
        call()
    took = np.empty(rounds)
    for i in range(rounds):
        begun = time.perf_counter_ns()
        call()
        took[i] = time.perf_counter_ns() - begun
    p50, p90 = np.percentile(took, (50, 90)) / 1000
    return {"p50_us": round(float(p50), 1), "p90_us": round(float(p90), 1)}


def run(path: str, tenant: str, rounds: int) -> dict[str, dict[str, float]]:
    m = Manifest(tenant=tenant, model="meridian/bench", role="kv", dtype="bf16", block_tokens=16, block_bytes=BLOCK, tp_size=1, pp_size=1, dcp_size=1)
    with Engine(path) as e:
        space = e.open(m)
        keys = m.keys(np.frombuffer(os.urandom(32 * BLOCKS), np.uint8).reshape(BLOCKS, 32))
        kv = np.frombuffer(os.urandom(BLOCK * BLOCKS), np.uint8).reshape(BLOCKS, BLOCK)
        stored = e.put(space, keys, kv)
        if not stored.kept:
            raise SystemExit(f"the daemon does not take {BLOCKS} blocks: {stored.why}")
        reqs = np.array([e.begin([1, 2, 3], model="bench") for _ in range(256)], np.uint32)
        ones, toks = np.ones(256, np.uint8), np.arange(256, dtype=np.int32)
        out = np.empty((64, BLOCK), np.uint8)
        lease = e.acquire(space, keys[:64])
        results = {
            "ping": measure(rounds, e.ping),
            "acquire and release, 16 blocks": measure(rounds, lambda: e.acquire(space, keys[:16]).release()),
            "acquire and release, 64 blocks": measure(rounds, lambda: e.acquire(space, keys[:64]).release()),
            "acquire, release later, 64 blocks": measure(rounds, lambda: e.acquire(space, keys[:64]).release(later=True)),
            "check of 64 blocks": measure(rounds, lease.check),
            "copy of 64 blocks of 16 KiB": measure(rounds // 10, lambda: lease.copy_into(out)),
            "has, 1024 keys": measure(rounds // 4, lambda: e.has(space, keys)),
            "put, 64 blocks of 16 KiB that are there": measure(rounds // 10, lambda: e.put(space, keys[:64], kv[:64])),
            "tokens, 256 requests": measure(rounds, lambda: e.tokens(reqs, ones, toks)),
            "tokens and phases, 256 requests": measure(rounds, lambda: (e.tokens(reqs, ones, toks), e.phases())),
        }
        lease.release()
        for req in reqs:
            e.start_finish(int(req), abort=True)
        e.ping()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m meridian.bench", description="What a batch costs an engine written in Python.")
    parser.add_argument("socket", help="the daemon's socket for engines")
    parser.add_argument("--tenant", default="acme")
    parser.add_argument("--rounds", type=int, default=4000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = run(args.socket, args.tenant, args.rounds)
    if args.json:
        print(json.dumps(results))
        return
    for name, r in results.items():
        print(f"{name:42} p50 {r['p50_us']:8.1f} us   p90 {r['p90_us']:8.1f} us")


if __name__ == "__main__":
    main()
