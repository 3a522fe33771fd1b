"""slurmdbd in the simulation: the real daemon, on virtual time, killed and disturbed in every way."""

from __future__ import annotations

import os
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
        self.site.start()

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
