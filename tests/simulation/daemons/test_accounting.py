"""slurmdbd in the simulation: the real daemon, on virtual time, killed and disturbed in every way."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from spritz.sim.daemons.accounting.database import template
from spritz.sim.daemons.plan import Action, Scale
from spritz.sim.daemons.workload import Wanted, script_of
from tests.simulation.daemons.apart import apart


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
        fields = {"script": script_of(tag, 10), "environment": (f"TAG={tag}",), "held": True, **wanted}
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
        return "\n".join(f"{at - 1.8e9:12.6f} {text}" for at, text in self.world.story)


def simulated(work: Callable[[Cluster], Any], seed: int = 1, **options: Any) -> Any:
    """What `work` returns for a cluster in a forked process."""
    template()  # once for all that are forked

    def run() -> Any:
        directory = Path(tempfile.mkdtemp(prefix="spritz-sim-", dir="/dev/shm"))
        try:
            return work(Cluster(seed, directory, **options))
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    return apart(run)


def test_a_cancelled_job_is_in_the_records() -> None:
    """From the submission to sacct's answer, by the daemons alone."""

    def work(cluster: Cluster) -> Any:
        cluster.world.run(5.0)
        cluster.submit("a")
        cluster.world.run(1.0)
        cluster.ask("cancel", tag="a")
        cluster.world.run(1.0)
        return [(row.job.job_id, row.job.state, row.job.account, row.job.user) for row in cluster.jobs()], cluster.story()

    rows, story = simulated(work)
    assert rows == [(1, "CANCELLED", "physics", "alice")], story


def _disturb(cluster: Cluster, seed: int, count: int, kinds: tuple[str, ...]) -> None:
    """Users submit, hold and cancel jobs while faults happen; then all is well for five minutes."""
    from spritz.sim.daemons.accounting import faults

    chance = random.Random(seed)
    cluster.world.run(5.0)
    users = ("alice", "bob", "carol", "dave")
    for number in range(count):
        for job in range(3):
            tag, user = f"{number}.{job}", chance.choice(users)
            cluster.submit(tag, user, array="0-2" if chance.random() < 0.2 else "")
            cluster.world.run(chance.uniform(0.0, 0.3))
            if chance.random() < 0.7:
                cluster.ask(chance.choice(("cancel", "hold", "release")), user, tag=tag)
        kind = chance.choice(kinds)
        if kind == "slurmctld killed":
            cluster.controller.kill()
        else:
            faults.inject(cluster.accounting, kind, faults.KINDS[kind].draw(chance))
        cluster.world.run(chance.choice((0.01, 0.1, 1.0, 8.0)))
    cluster.world.run(600.0)


def test_twenty_kills_of_slurmdbd_and_slurmctld_lose_nothing_and_store_nothing_twice() -> None:
    def work(cluster: Cluster) -> Any:
        _disturb(cluster, 7, 40, ("slurmdbd killed", "slurmctld killed"))
        rows = cluster.jobs()
        return cluster.differences(), len(rows), cluster.world.counts, cluster.story()

    differences, jobs, counts, story = simulated(work)
    assert not differences, story
    assert jobs > 40, story
    assert counts["fault slurmdbd killed"] >= 15
