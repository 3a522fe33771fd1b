"""slurmdbd in the simulation: the real daemon, on virtual time, killed and disturbed in every way."""

from __future__ import annotations

import gc
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any, TypeVar

import msgspec

from spritz.sim.daemons.plan import Action, Scale
from spritz.sim.daemons.workload import Wanted, script_of
from spritz.sim.daemons.world import EPOCH
from tests.simulation.daemons.apart import apart

T = TypeVar("T")


class Cluster:
    """A cluster with accounting in a world of its own. Only in a forked process."""

    def __init__(self, seed: int, directory: Path, nodes: int = 2) -> None:
        from spritz.sim.daemons import seam
        from spritz.sim.daemons.network import Network
        from spritz.sim.daemons.site import Site
        from spritz.sim.daemons.users import Users
        from spritz.sim.daemons.world import World

        self.world = World(seed, directory)
        self.world.network = Network(self.world)
        parts = frozenset({"accounting"})
        seam.load(parts)
        seam.install(self.world)
        self.site = Site(self.world, Scale(nodes=nodes, parts=parts))
        assert self.site.accounting is not None
        self.accounting = self.site.accounting
        self.users = Users(self.site)
        os.environ["SLURM_CONF"] = str(self.site.conf)
        self.controller = self.site.units["ctl1/slurmctld"]
        self._renew_state()
        self.site.start()

    def _renew_state(self) -> None:
        """A killed controller leaves its files without its locks."""
        unit, state = self.controller, self.site.controllers[0].directory / "state"
        begin = unit._main

        def renew(silently: bool) -> None:
            old = state.with_name(f"state.{len(unit.ends)}")
            state.rename(old)
            shutil.copytree(old, state)

        def main(process: Any) -> Any:
            process.on_end.append(renew)
            return begin(process)

        unit._main = main

    def submit(self, tag: str, user: str = "alice", **wanted: Any) -> None:
        fields = {"script": script_of(tag, 10), "environment": (f"TAG={tag}",), **wanted}
        data = {"wanted": msgspec.to_builtins(Wanted(tag=tag, **fields))}
        self.users.perform(Action(at=0.0, kind="submit", target=user, data=data))

    def ask(self, kind: str, user: str = "alice", **data: Any) -> None:
        self.users.perform(Action(at=0.0, kind=kind, target=user, data=data))

    def told(self, main: Any) -> Any:
        """What a command of an administrator is answered."""
        from spritz.sim.daemons.accounting.client import Command

        command = Command(self.site.controllers[0], "sacct", main)
        assert self.world.run_until(lambda: command.is_over, 300.0), self.story()
        return command.result

    def jobs(self) -> list[Any]:
        rows: list[Any] = self.told(self.accounting.client.read_jobs)
        return rows

    def differences(self) -> list[str]:
        """Of the tables from what the journal says."""
        from spritz.sim.daemons.accounting import records

        wanted = records.rows_by_journal(self.site.controllers[0].directory / "state")
        assert wanted is not None
        assert wanted["jobs"]
        return records.differences(records.rows_of(self.accounting.database.path), wanted)

    def story(self) -> str:
        return "\n".join(
            f"{at - EPOCH:12.6f} {text.replace(str(self.world.root), '')}" for at, text in self.world.story
        )


def simulated(work: Callable[..., T], *arguments: Any, seed: int = 1, **options: Any) -> T:
    """What `work(cluster, *arguments)`, of this module, returns for a cluster in a process of its own."""
    answer: T = apart(_simulate, work, arguments, seed, options)
    return answer


def _simulate(work: Callable[..., T], arguments: tuple[Any, ...], seed: int, options: dict[str, Any]) -> T:
    directory = Path(tempfile.mkdtemp(prefix="spritz-sim-", dir="/dev/shm"))
    gc.disable()
    try:
        return work(Cluster(seed, directory, **options), *arguments)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _cancelled(cluster: Cluster) -> Any:
    cluster.world.run(5.0)
    cluster.submit("a", held=True)
    cluster.world.run(1.0)
    cluster.ask("cancel", tag="a")
    cluster.world.run(1.0)
    return [(row.job.job_id, row.job.state, row.job.account, row.job.user) for row in cluster.jobs()], cluster.story()


def test_a_cancelled_job_is_in_the_records() -> None:
    """From the submission to sacct's answer, by the daemons alone."""
    rows, story = simulated(_cancelled)
    assert rows == [(1, "CANCELLED", "physics", "alice")], story


class Outcome(msgspec.Struct, kw_only=True):
    """How a disturbed run ended."""

    #: of the tables from the journal; of sreport from sacct; of the records from what nodes ran
    differences: list[str]
    usage: list[str]
    runs: list[str]
    jobs: int
    counts: dict[str, int]
    story: str
    unhandled: list[str]
    cpu_seconds: float
    virtual_seconds: float


def disturbed(cluster: Cluster, rounds: int, kinds: tuple[str, ...], clock_seconds: float = 0.0) -> Outcome:
    """Users submit, hold and cancel jobs while faults happen; then all is well until everything has ended."""
    from spritz.sim.daemons.accounting import faults, records

    began, world = process_time(), cluster.world
    chance = random.Random(world.seed)
    world.run(8.0)
    for number in range(rounds):
        for job in range(3):
            tag, user = f"{number}.{job}", chance.choice(("alice", "bob", "carol", "dave"))
            script = script_of(tag, chance.choice((1, 20, 200)), chance.choice((0, 0, 0, 3)))
            cluster.submit(tag, user, script=script, array="0-2" if chance.random() < 0.2 else "")
            world.run(chance.uniform(0.0, 0.3))
            if chance.random() < 0.5:
                cluster.ask(chance.choice(("cancel", "hold", "release")), user, tag=tag)
        kind = chance.choice(kinds)
        if kind == "slurmctld killed":
            cluster.controller.kill()
        else:
            faults.inject(cluster.accounting, kind, faults.KINDS[kind].draw(chance))
        world.run(chance.choice((0.01, 0.1, 1.0, 8.0, 60.0)))
    world.run(7200.0)
    jobs = cluster.jobs()
    begin, end = int(EPOCH), int(world.now) // 3600 * 3600
    _, holders = cluster.told(lambda: cluster.accounting.client.read_usage(begin, end))
    return Outcome(
        differences=cluster.differences(),
        usage=records.usage_differences(jobs, holders, begin, end),
        runs=records.run_differences(
            cluster.site.history.entries, jobs, slack_seconds=30.0, clock_seconds=clock_seconds
        ),
        jobs=len(jobs),
        counts=world.counts,
        story=cluster.story(),
        unhandled=[repr(each) for each in world.unhandled],
        cpu_seconds=process_time() - began,
        virtual_seconds=world.now - EPOCH,
    )


def test_twenty_kills_of_slurmdbd_and_slurmctld_lose_nothing_and_store_nothing_twice() -> None:
    outcome = simulated(disturbed, 40, ("slurmdbd killed", "slurmctld killed"), seed=7)
    assert not outcome.differences, outcome.story
    assert outcome.jobs > 100, outcome.story
    assert outcome.counts["fault slurmdbd killed"] >= 15
