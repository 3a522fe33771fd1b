"""The cost of a decision about one job or node does not depend on the size of the cluster.

Counted are the records that a decision reads: look-ups and iteration steps in the dicts of the state. The same commands
are sent to a small cluster and to one ten times as large; both must read the same number of records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from spritz.core.state import State
from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import UpdateNode
from spritz.model.commands.job import HoldJob, ReleaseJob, RequeueJob, UpdateJob
from spritz.model.commands.reservation import CreateReservation, ReservationRequest
from spritz.model.job.job_filter import JobTarget
from spritz_testing.builders import World

Command = tuple[str, Callable[[], object]]

#: Records that may be read more in the large cluster, for the order in which dicts are searched.
SPREAD = 3


class Counted(dict[Any, Any]):
    """A dict of the state that counts what is read of it."""

    def __init__(self, content: dict[Any, Any], name: str, reads: Counter[str]) -> None:
        super().__init__(content)
        self._name = name
        self._reads = reads

    def _read(self, count: int = 1) -> None:
        self._reads[self._name] += count

    def _each(self, items: Any) -> Any:
        for item in items:
            self._read()
            yield item

    def __getitem__(self, key: Any) -> Any:
        self._read()
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        self._read()
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._read()
        return super().__contains__(key)

    def __iter__(self) -> Any:
        return self._each(super().__iter__())

    def keys(self) -> Any:
        return self._each(super().keys())

    def values(self) -> Any:
        return self._each(super().values())

    def items(self) -> Any:
        return self._each(super().items())

    def copy(self) -> dict[Any, Any]:
        self._read(len(self))
        return super().copy()


def counted(state: State) -> Counter[str]:
    """Counts what is read of every dict of the state from now on, by its name."""
    reads: Counter[str] = Counter()
    for name in State.__slots__:
        value = getattr(state, name)
        if isinstance(value, dict):
            setattr(state, name, Counted(value, name, reads))
    return reads


def cluster(nodes: int, jobs: int) -> World:
    """Nodes that power saving and max_powered_nodes apply to, waiting and running jobs, and a reservation that lacks
    nodes: all others have jobs without a limit, except a few.
    """
    power = PowerPolicy(resumes=True, suspends=True, powered_max=10 * nodes, suspend_seconds=86_400)
    world = World(nodes=nodes, settings=ClusterSettings(max_job_count=100_000, power=power))
    for number in range(jobs):
        world.submit(name=f"j{number}", time_limit_minutes=60)
    for name in world.names[nodes // 2 :]:
        world.start(world.submit(), name)
    request = ReservationRequest(
        name="r",
        users=("alice",),
        node_count=nodes // 2 - 3,
        start_at=world.now + 86_400,
        duration_seconds=3600.0,
        flags=("REPLACE",),
    )
    world.ok(CreateReservation(request=request))
    for name in world.names[nodes // 2 - 3 : nodes // 2]:
        world.start(world.submit(), name)
    for name in world.state.reservations["r"].nodes[:2]:
        world.ok(UpdateNode(names=(name,), state="DRAIN", reason="test"))
    assert world.state.memory.lacking, "the reservation has replacements"
    world.tick()
    return world


def commands(world: World) -> Iterator[Command]:
    """Commands about one job or node each, with their names."""
    node = world.names[-1]
    yield "submit", lambda: world.submit(time_limit_minutes=10)
    job_id = world.submit(time_limit_minutes=10)
    target = JobTarget(job_id)
    yield "hold", lambda: world.ok(HoldJob(target=target))
    yield "release", lambda: world.ok(ReleaseJob(target=target))
    yield "update", lambda: world.ok(UpdateJob(target=target, changes={"comment": "x"}))
    yield "start", lambda: world.start(job_id, node)
    yield "start step", lambda: world.step(job_id)
    yield "end step", lambda: world.finished(job_id, step_id=0, gone=False)
    yield "end", lambda: world.finished(job_id)
    again = world.start(world.submit(time_limit_minutes=10, requeue=True), node)
    yield "requeue", lambda: world.ok(RequeueJob(target=JobTarget(again)))
    yield "gone", lambda: world.gone(again)
    array = world.submit(array="0-9", time_limit_minutes=10)
    yield "start a task", lambda: world.start(array, node, task=0)
    yield "cancel an array", lambda: world.cancel(array)
    yield "register", lambda: world.register(node)
    yield "drain", lambda: world.ok(UpdateNode(names=(node,), state="DRAIN", reason="test"))
    yield "resume", lambda: world.ok(UpdateNode(names=(node,), state="RESUME"))
    yield "lose", lambda: world.lose(node)
    yield "tick", world.tick
    yield "next deadline", world.machine.next_deadline


def reads_of(world: World) -> dict[str, Counter[str]]:
    """By command and dict."""
    reads = counted(world.state)
    found = {}
    for name, send in commands(world):
        reads.clear()
        send()
        found[name] = Counter(reads)
    return found


def test_an_event_costs_the_same_in_a_cluster_ten_times_as_large() -> None:
    small, large = reads_of(cluster(20, 30)), reads_of(cluster(200, 300))
    more = {
        (command, name): (small[command][name], count)
        for command, counts in large.items()
        for name, count in counts.items()
        if count > small[command][name] + SPREAD
    }
    assert not more, f"(command, dict): records read in the small and in the large cluster: {more}"
