"""Two controllers over one database: the leader is killed, stopped, cut off, and its database fails."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from spritz_testing.daemons.history import Acted, Began, Ended, Injected, Operation, Outcome
from spritz_testing.daemons.plan import Action, Plan, Scale
from spritz_testing.daemons.system.world import EPOCH
from spritz_testing.daemons.workloads.workload import NewJob, script_of
from tests.simulation.daemons.apart import apart

T = TypeVar("T")

PARTS = frozenset({"standby"})

#: Text by which the statement of a group's commit is known.
_COMMIT = "INSERT INTO groups ("


class Cluster:
    """A cluster with several controllers in a world of its own. Only in a forked process."""

    def __init__(self, seed: int, directory: Path, nodes: int = 4) -> None:
        from spritz_testing.daemons import seam
        from spritz_testing.daemons.clients.users import Users
        from spritz_testing.daemons.site import Site
        from spritz_testing.daemons.system.network import Network
        from spritz_testing.daemons.system.world import World

        self.world = World(seed, directory)
        self.world.network = Network(self.world)
        seam.install(self.world)
        self.site = Site(self.world, Scale(nodes=nodes, parts=PARTS))
        assert self.site.standbys is not None
        self.database = self.site.standbys.database
        self.users = Users(self.site)
        os.environ["SLURM_CONF"] = str(self.site.conf)
        self.site.start()
        self.wait(lambda: len(self.leaders()) == 1, 20.0)

    def leaders(self) -> list[str]:
        """Hosts whose controller leads."""
        return [host.name for host in self.site.controllers if any(process.inside for process in host.processes)]

    def leader(self) -> Any:
        """The unit that leads."""
        (name,) = self.leaders()
        return self.site.units[f"{name}/slurmctld"]

    def wait(self, holds: Callable[[], bool], seconds: float) -> None:
        assert self.world.run_until(holds, seconds), self.story()

    def submit(self, tag: str, seconds: float = 10.0) -> None:
        job = NewJob(
            tag=tag, script=script_of(tag, seconds), environment=(f"TAG={tag}",), memory_mib_per_node=500, shares=False
        )
        self.users.perform(Action(at=0.0, kind="submit", target="alice", data={"wanted": msgspec.to_builtins(job)}))

    def submissions(self) -> list[Operation]:
        return [e for e in self.site.history.entries if isinstance(e, Operation) and e.kind == "submit"]

    def acknowledged(self) -> int:
        return sum(operation.outcome is Outcome.DONE for operation in self.submissions())

    def runs(self, kind: type[Any] = Began) -> list[int]:
        """Jobs whose script has begun, or ended, once for each time."""
        return sorted(entry.job_id for entry in self.site.history.entries if isinstance(entry, kind))

    def judged(self) -> list[Any]:
        """Violations of all rules."""
        from spritz_testing.daemons.runs.judge import judge

        assert not self.world.unhandled, self.world.unhandled
        return self.world.violations + judge(self.site)

    def story(self) -> str:
        return "\n".join(
            f"{at - EPOCH:12.6f} {text.replace(str(self.world.root), '')}" for at, text in self.world.story
        )


def simulated(work: Callable[..., T], *arguments: Any, seed: int = 1) -> T:
    """What `work(cluster, *arguments)`, of this module, returns for a cluster in a process of its own."""
    answer: T = apart(_simulate, work, arguments, seed)
    return answer


def _simulate(work: Callable[..., T], arguments: tuple[Any, ...], seed: int) -> T:
    directory = Path(tempfile.mkdtemp(prefix="spritz-sim-", dir="/dev/shm"))
    gc.disable()
    try:
        return work(Cluster(seed, directory), *arguments)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _killed(cluster: Cluster, jobs: int) -> str:
    for number in range(jobs):
        cluster.submit(str(number), seconds=30.0)
    cluster.wait(lambda: len(cluster.runs()) == jobs, 30.0)
    before = cluster.leaders()
    cluster.leader().kill()
    now, host = cluster.world.now, before[0]
    cluster.site.history.add(Injected(at=now, until=now, kind="kill", target=f"{host}/slurmctld"))
    cluster.wait(lambda: len(cluster.leaders()) == 1, 20.0)
    assert cluster.leaders() != before, cluster.story()
    cluster.wait(lambda: len(cluster.runs(Ended)) == jobs, 60.0)
    cluster.world.run(30.0)
    assert cluster.acknowledged() == jobs
    assert len(set(cluster.runs())) == jobs, "each once"
    assert not cluster.judged(), cluster.judged()
    return cluster.story()


def test_a_standby_takes_over_from_a_killed_leader_and_twenty_jobs_run_on() -> None:
    """None is lost, and none runs twice. The same seed tells the same story."""
    story = simulated(_killed, 20)
    assert story == simulated(_killed, 20)


def _stopped(cluster: Cluster) -> None:
    former = cluster.leader().process
    former.stop()
    cluster.wait(lambda: len(cluster.leaders()) == 2, 60.0)  # it does not know yet that it leads no more
    for number in range(5):
        cluster.submit(str(number))
    cluster.world.run(15.0)
    since = cluster.world.now
    former.go_on()
    cluster.wait(lambda: not former.is_alive, 10.0)
    cluster.world.run(60.0)
    assert len(cluster.leaders()) == 1, cluster.story()
    orders = [entry for entry in cluster.site.history.entries if isinstance(entry, Acted) and entry.at >= since]
    assert all(order.pid != former.pid for order in orders)
    assert cluster.acknowledged() == 5
    assert not cluster.judged(), cluster.judged()


def test_a_leader_that_was_stopped_acts_no_more_when_another_one_leads() -> None:
    simulated(_stopped)


def _cut_off(cluster: Cluster, outwards: bool, inwards: bool) -> None:
    former = cluster.leader().process
    links, here = cluster.world.network, former.host.name
    if outwards:
        links.cut(here, "db", 100.0)
    if inwards:
        links.cut("db", here, 100.0)
    cluster.wait(lambda: not former.is_alive, 60.0)
    cluster.wait(lambda: len(cluster.leaders()) == 1, 60.0)
    assert cluster.leaders() != [here]
    story = cluster.story()
    assert story.index("journal.failed") < story.rindex("standby.taking_over"), "it could answer with an old state"
    cluster.submit("a")
    cluster.world.run(200.0)
    assert cluster.acknowledged() == 1
    assert not cluster.judged(), cluster.judged()


@pytest.mark.parametrize(
    ("outwards", "inwards"),
    [
        (True, True),
        pytest.param(True, False, marks=pytest.mark.slow),
        pytest.param(False, True, marks=pytest.mark.slow),
    ],
)
def test_a_leader_without_its_database_gives_up_and_another_one_leads(outwards: bool, inwards: bool) -> None:
    simulated(_cut_off, outwards, inwards)


def _answer_lost(cluster: Cluster, loss: str) -> None:
    from spritz_testing.daemons.database import Loss

    former = cluster.leader().process
    for number in range(4):
        cluster.database.network.lose_next(Loss(loss), text=_COMMIT)
        cluster.submit(str(number))
        cluster.world.run(3.0)
    assert cluster.database.network.counts[f"lost_{loss}"] == 4
    cluster.world.run(60.0)
    assert former.is_alive, cluster.story()
    assert len(cluster.runs()) == cluster.acknowledged() == 4
    assert not cluster.judged(), cluster.judged()


@pytest.mark.parametrize("loss", [pytest.param("before", marks=pytest.mark.slow), "after"])
def test_a_commit_that_is_lost_with_its_connection_happens_once(loss: str) -> None:
    simulated(_answer_lost, loss)


def _set_back(cluster: Cluster) -> None:
    from spritz_testing.daemons import faults
    from spritz_testing.daemons.injectors import standby  # noqa: F401 - registers them

    cluster.submit("a", seconds=300.0)
    cluster.world.run(10.0)
    former = cluster.leader().process
    faults.perform(cluster.site, Action(at=0.0, kind="database set back", target="cluster", data={"draw": 3}))
    cluster.wait(lambda: not former.is_alive, 30.0)
    assert "has lost event" in cluster.story(), cluster.story()
    cluster.wait(lambda: len(cluster.leaders()) == 1, 30.0)
    cluster.submit("b")
    cluster.world.run(200.0)
    assert cluster.world.counts["loss noticed"] == 1
    assert not cluster.judged(), cluster.judged()


def test_a_leader_notices_that_a_promoted_replica_lacks_what_it_acknowledged() -> None:
    simulated(_set_back)


def _unnoticed(cluster: Cluster) -> list[str]:
    from spritz_testing.daemons import faults
    from spritz_testing.daemons.injectors import standby  # noqa: F401 - registers them

    journal = cluster.leader().process.inside.context.journal
    journal._beats.on_again = journal._writer.on_again = None
    cluster.submit("a", seconds=300.0)
    cluster.world.run(10.0)
    faults.perform(cluster.site, Action(at=0.0, kind="database set back", target="cluster", data={"draw": 1}))
    cluster.world.run(5.0)
    cluster.submit("b")
    cluster.world.run(200.0)
    return [rule for rule, _, _ in cluster.world.violations]


@pytest.mark.slow
def test_a_loss_that_a_leader_does_not_notice_is_found() -> None:
    """Planted: what the database has is not compared with what it has acknowledged."""
    assert "4: a leader notices that the database lost what it acknowledged" in simulated(_unnoticed)


def _copy_altered(cluster: Cluster) -> list[str]:
    from spritz_testing.daemons.controller.copies import ObservedCopy

    copies = []
    follow = ObservedCopy.follow

    def noted(self: Any, store: Any, last: int) -> None:
        if self not in copies:
            copies.append(self)
        follow(self, store, last)

    ObservedCopy.follow = noted  # type: ignore[method-assign]
    cluster.submit("a", seconds=1.0)
    cluster.world.run(20.0)
    for copy in copies:
        jobs = copy._recovered.machine.state.jobs
        jobs[1] = msgspec.structs.replace(jobs[1], submitted_at=7.0)
    cluster.submit("b")
    cluster.world.run(30.0)
    return [rule for rule, _, _ in cluster.world.violations]


def test_a_copy_that_differs_from_the_leader_is_found() -> None:
    assert "4: a standby's image is the leader's" in simulated(_copy_altered)


def _disturbed(seed: int) -> tuple[list[Any], str]:
    from spritz_testing.daemons.runs.campaign import plan_of
    from spritz_testing.daemons.runs.run import run

    scale = Scale(nodes=3, jobs=12, busy_seconds=900.0, quiet_seconds=3600.0, faults=8, parts=PARTS)
    plan: Plan = plan_of(seed, scale)
    result = run(plan)
    return result.violations, "\n".join(result.transcript)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 7))
def test_seeds_with_two_controllers_violate_no_rule(seed: int) -> None:
    violations, transcript = apart(_disturbed, seed)
    assert not violations, transcript


def _lost_in_commits(cluster: Cluster, draws: int) -> int:
    from spritz_testing.daemons import faults
    from spritz_testing.daemons.injectors import standby  # noqa: F401 - registers them

    for draw in range(draws):
        data = {"draw": draw * ((1 << 30) // draws), "seconds": 60.0}
        faults.perform(cluster.site, Action(at=0.0, kind="controller lost in a commit", target="leader", data=data))
        cluster.submit(str(draw), seconds=3.0)
        cluster.world.run(20.0)
        cluster.wait(lambda: len(cluster.leaders()) == 1, 60.0)
    cluster.world.run(60.0)
    assert cluster.acknowledged() == draws, "each is submitted until a controller answers"
    assert len(set(cluster.runs())) == draws, cluster.story()
    assert not cluster.judged(), cluster.judged()
    return cluster.world.counts["fault controller lost in a commit"]


@pytest.mark.slow
def test_a_leader_that_is_lost_in_a_commit_loses_no_job_and_doubles_none() -> None:
    assert simulated(_lost_in_commits, 12) == 12
