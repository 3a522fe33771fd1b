"""One run: a world from a seed, a cluster in it, a plan carried out, and its history checked.

A run needs a process of its own, since the seam is never undone: `python -m spritz.sim.daemons`, or `tests.simulation`.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spritz.sim.daemons import final, seam
from spritz.sim.daemons.network import Network
from spritz.sim.daemons.site import Site
from spritz.sim.daemons.users import Users
from spritz.sim.daemons.world import EPOCH, World

if TYPE_CHECKING:
    from spritz.sim.daemons.final import Final
    from spritz.sim.daemons.history import Entry
    from spritz.sim.daemons.plan import Plan

#: Where the disks of simulated hosts are: in memory, since only the simulation decides what a disk loses.
_MEMORY = Path("/dev/shm")


class Result(Struct, kw_only=True):
    """How a run ended."""

    seed: int
    #: (rule, seconds after the beginning, text)
    violations: list[tuple[str, float, str]]
    #: how often something happened, by name
    counts: dict[str, int]
    virtual_seconds: float
    cpu_seconds: float
    events: int
    #: one line each, with its time
    story: list[str]
    #: what users and nodes saw
    history: list[Entry]
    #: what users are shown in the end
    final: Final


def run(plan: Plan, root: Path | None = None) -> Result:
    """Carry out a plan. `root`: an empty directory for the hosts' disks, which stays."""
    began = process_time()
    directory = root or Path(tempfile.mkdtemp(prefix="spritz-sim-", dir=_MEMORY if _MEMORY.is_dir() else None))
    gc.disable()  # when objects end must not depend on the collector
    try:
        world = World(plan.seed, directory)
        world.network = Network(world)
        seam.install(world)
        site = Site(world, plan.scale)
        violations: list[Any] = []
        site.start()
        users = Users(site)
        os.environ["SLURM_CONF"] = str(site.conf)
        users.schedule(plan.actions)
        world.run(plan.scale.busy_seconds)
        world.run(plan.scale.quiet_seconds)
        found = final.read(users)
        return Result(
            seed=plan.seed,
            violations=violations,
            counts=world.counts,
            virtual_seconds=world.now - EPOCH,
            cpu_seconds=process_time() - began,
            events=world.events,
            story=[f"{at - EPOCH:12.6f} {text}".replace(str(directory), "ROOT") for at, text in world.story],
            history=site.history.entries,
            final=found,
        )
    finally:
        if root is None:
            shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """Run a plan that is read from standard input. The exit ends all threads of the simulation."""
    import msgspec.json

    from spritz.sim.daemons.plan import Plan

    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    sys.stdout.buffer.write(msgspec.json.encode(run(plan)))
    sys.stdout.flush()
    os._exit(0)
