"""Meridian's block socket for inference engines: blocks in shared memory, leases, the token stream.

    from meridian import Engine, Manifest

    with Engine("/run/meridian/engine.sock") as e:
        space = e.open(manifest)
        keys = manifest.keys(hashes)                     # (n, 32) of u8, the engine's own block hashes
        e.put(space, keys, kv)                           # (n, block_bytes) of u8
        with e.acquire(space, keys, fetch=True) as lease:
            status = lease.copy_into(out)                # a code a block: OK, or a miss

docs/python.md of Meridian's repository has the rest. It needs numpy, and Linux.
"""
from .blocks import Space
from .engine import Engine
from .errors import ClosedError, Code, MeridianError, OpenError, ProtocolError, RequestError
from .generation import CANNOT_FORCE, COMPLETED, ENTER_THINK, EXIT_THINK, FORCE_BUDGET, REAPED, Phase
from .group import Group
from .lease import Lease
from .load import Load
from .manifest import Manifest
from .reserve import Reservation
from .session import Pending
from .store import AUTO, OUTPUT_CRITICAL, THINK_ACTIVE, THINK_COMPLETE, Staged, Stored

__all__ = [
    "AUTO", "CANNOT_FORCE", "COMPLETED", "ENTER_THINK", "EXIT_THINK", "FORCE_BUDGET", "OUTPUT_CRITICAL", "REAPED", "THINK_ACTIVE", "THINK_COMPLETE",
    "ClosedError", "Code", "Engine", "Group", "Lease", "Load", "Manifest", "MeridianError", "OpenError", "Pending", "Phase", "ProtocolError",
    "RequestError", "Reservation", "Space", "Staged", "Stored",
]
