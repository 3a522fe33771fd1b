"""The scheduler driver with the real writer, core and projection, on virtual time: when passes run, and how plans are
applied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from spritz.controller.context import Context
from spritz.controller.diagnostics import Counting
from spritz.controller.forked import ForkRefused
from spritz.controller.journal.blobs import BlobStore
from spritz.controller.scheduler import driver as scheduler_module
from spritz.controller.scheduler import slices as plan_slices
from spritz.controller.scheduler.driver import SchedulerDriver
from spritz.controller.writer.commit import InlineCommitter
from spritz.controller.writer.listeners import Loss
from spritz.controller.writer.loop import SingleWriter
from spritz.core.invariants import breaches
from spritz.core.machine import Machine
from spritz.model.cluster.settings import SYSTEM, Caller, ClusterSettings
from spritz.model.commands.cluster import ApplyPlan, Configure
from spritz.model.commands.job import CancelJobs, JobSubmitted, SubmitHetJob, SubmitJob, UpdateJob
from spritz.model.events import Event
from spritz.model.events.job import JobsNoted, JobStarted
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import JobSpec
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.node_daemon.reports import JobGone, RegisterNode
from spritz.model.resources import NodeCapacity
from spritz.model.states import JobState
from spritz.runtime.log import get_logger
from spritz_testing.memory_journal import MemoryJournal, MemoryStore
from tests.unit.controller.virtual_loop import VirtualLoop, run_virtually


class LoopClock:
    """The loop's time, and a time of day that goes with it."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> float:
        return 1e9 + self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class InstantChild:
    """Stands for `forked.Child`: does the work at once and delivers it later, as the real one."""

    #: how long it takes, on the virtual clock; how often it is to fail, and the fork before it
    seconds = 0.25
    failures = 0
    refusals = 0

    def __init__(self, name: str, work: Callable[[], bytes], done: Callable[[bytes | None], None], *_: Any, **__: Any):
        if InstantChild.refusals:
            InstantChild.refusals -= 1
            raise ForkRefused("Resource temporarily unavailable", code="ESLURM_INTERNAL")
        if InstantChild.failures:
            InstantChild.failures -= 1
            result = None
        else:
            result = work()
        self._deliver = partial(done, result)
        self._timer = asyncio.get_running_loop().call_later(InstantChild.seconds, self._deliver)

    def deliver(self) -> None:
        self._timer.cancel()
        self._deliver()

    def kill(self) -> None:
        self._timer.cancel()


class Bench:
    """Nodes of one partition. `started`: the jobs that each command started, in order; `notes`: reasons per event."""

    def __init__(self, *, nodes: int = 1, cpus: int = 1000, parameters: Sequence[tuple[str, str]] = ()) -> None:
        settings = ClusterSettings(
            max_job_count=100_000, default_memory_mib_per_cpu=1, scheduler_parameters=tuple(parameters)
        )
        self.context = Context()
        self.context.clock, self.context.log, self.context.counters = LoopClock(), get_logger("test"), []
        self.context.counting = Counting(0.0)
        journal = MemoryJournal(MemoryStore())
        self.machine = self.context.machine = Machine(settings)
        self.writer = self.context.writer = SingleWriter(
            self.machine,
            journal,
            BlobStore(journal),
            InlineCommitter(lambda error: pytest.fail(error.message)),
            self.context.clock,
            self.context.log,
            on_effects=lambda effects: None,
            on_broken=lambda error: pytest.fail(repr(error)),
        )
        self.writer.listeners.add("counting", self.context.counting.listen, Loss.STOP)
        self.writer.listeners.add("test", self._listen, Loss.STOP)
        self.driver = SchedulerDriver(self.context)
        self.started: list[list[int]] = []
        self.notes: list[int] = []
        capacity = NodeCapacity(cpus=cpus, cores_per_socket=cpus, memory_mib=2 * cpus)
        names = tuple(f"n{number + 1}" for number in range(nodes))
        configs = tuple(NodeConfig(name=name, capacity=capacity) for name in names)
        self.configuration = Configure(
            settings=settings, nodes=configs, partitions=(Partition(name="p", nodes=names, default=True),)
        )
        self.send(self.configuration)
        for name in names:
            self.send(
                RegisterNode(name=name, capacity=capacity, booted_at=1.0, daemon_started_at=1.0, version="25.05.0")
            )

    def _listen(self, events: Sequence[Event]) -> None:
        started = [event.job_id for event in events if isinstance(event, JobStarted)]
        if started:
            self.started.append(started)
        self.notes += [len(event.notes) for event in events if isinstance(event, JobsNoted)]

    def send(self, command: Struct, caller: Caller = SYSTEM) -> Any:
        return self.writer.handle(command, caller)

    def submit(self, *, batch: bool = True, **fields: Any) -> int:
        spec = JobSpec(name="job", user="root", script_key="k", time_limit_minutes=60, batch=batch, **fields)
        reply = self.send(SubmitJob(spec=spec))
        assert isinstance(reply, JobSubmitted), reply
        return reply.job_id

    def cancel(self, *job_ids: int) -> None:
        self.send(CancelJobs(filter=JobFilter(targets=tuple(map(JobTarget, job_ids)))))

    def state(self, job_id: int) -> JobState:
        return self.machine.state.jobs[job_id].state

    def all_run(self, job_ids: Sequence[int]) -> bool:
        return all(self.state(job) is JobState.RUNNING for job in job_ids)

    def pause(self, paused: bool = True) -> None:
        self.context.scheduling_paused = paused
        self.writer.turn()

    def count(self, name: str) -> float:
        return self.driver.counts[f"cycle.{name}_count"]

    @property
    def slices_left(self) -> int:
        return sum(len(application.slices) for application in self.driver._applications)

    async def until(self, what: Callable[[], bool]) -> float:
        """Virtual seconds until this is true at the end of a turn; the next turn has not come yet."""
        loop = asyncio.get_running_loop()
        began, reached = loop.time(), loop.create_future()

        def look() -> None:
            if not reached.done() and what():
                reached.set_result(None)

        self.writer.hooks.append(look)
        look()
        try:
            async with asyncio.timeout(1000):
                await reached
        finally:
            self.writer.hooks.remove(look)
        return loop.time() - began

    async def settle(self) -> None:
        """What is due has been done."""
        await asyncio.sleep(2.0)

    def planned(self) -> Callable[[], bool]:
        """Whether one full pass more has come to its plan, the first slice of which is applied."""
        before = self.context.counting.full.count
        return lambda: self.context.counting.full.count > before


def story(function: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[pytest.MonkeyPatch], None]:
    """A test on virtual time, with full passes that take a quarter of a second."""

    def test(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(scheduler_module, "Child", InstantChild)
        monkeypatch.setattr(InstantChild, "seconds", InstantChild.seconds)
        monkeypatch.setattr(InstantChild, "failures", 0)
        monkeypatch.setattr(InstantChild, "refusals", 0)
        run_virtually(function())

    test.__name__, test.__doc__ = function.__name__, function.__doc__
    return test


# -- when passes run


@story
async def test_a_lone_submission_starts_in_its_own_turn() -> None:
    bench = Bench()
    await bench.settle()
    job = bench.submit()
    await asyncio.sleep(0)
    assert bench.state(job) is JobState.RUNNING


@story
async def test_batch_sched_delay_is_kept_when_something_else_wakes_the_loop_before() -> None:
    """slurm.conf(5): how long the scheduling of batch jobs can be delayed. Here the timer of bf_interval rings before,
    for a full pass that takes long.
    """
    bench = Bench(parameters=(("batch_sched_delay", "5"), ("bf_interval", "20")))
    bench.submit(hold=True)
    await bench.settle()
    await asyncio.sleep(15)
    InstantChild.seconds = 30.0
    job = bench.submit()
    assert await bench.until(lambda: bench.state(job) is JobState.RUNNING) <= 5.1


@story
async def test_sched_interval_is_kept_when_nothing_else_wakes_the_loop() -> None:
    """slurm.conf(5): the main scheduling loop runs this often; -1 of bf_interval disables the other one."""
    bench = Bench(parameters=(("defer", ""), ("sched_interval", "7"), ("bf_interval", "-1")))
    bench.submit(hold=True)
    await bench.settle()
    before = bench.count("quick")
    await asyncio.sleep(70)
    assert bench.count("quick") - before in (9, 10)


@story
async def test_full_passes_run_in_the_loop_where_their_children_are_killed() -> None:
    bench = Bench(cpus=1, parameters=(("bf_interval", "-1"),))
    bench.submit()
    await bench.settle()
    InstantChild.failures = 10**6
    planned = bench.planned()
    bench.submit()
    await bench.until(planned)
    assert bench.count("inline") == 1


@story
async def test_a_full_pass_that_fails_is_made_again() -> None:
    bench = Bench(cpus=1, parameters=(("bf_interval", "-1"),))
    bench.submit()
    await bench.settle()
    planned = bench.planned()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler_module, "_decode_plan", lambda _result: 1 // 0)
        passes = bench.count("full")
        bench.submit()
        await bench.until(lambda: bench.count("full") > passes and bench.driver._child is None)
        assert not planned()
    assert await bench.until(planned) < 15


@story
async def test_full_passes_run_in_the_loop_while_no_process_can_be_forked() -> None:
    bench = Bench(cpus=1, parameters=(("bf_interval", "5"),))
    bench.submit()
    await bench.settle()
    InstantChild.refusals = 10**6
    planned = bench.planned()
    bench.submit()
    await bench.until(planned)
    assert bench.count("inline") == 1


@story
async def test_a_projection_that_fails_is_made_again_and_nothing_is_lost() -> None:
    bench = Bench()
    await bench.settle()
    bench.driver._projection.queue = None  # type: ignore[assignment]  # it fails at the next event
    job = bench.submit()
    await bench.until(lambda: bench.state(job) is JobState.RUNNING)


@story
async def test_when_the_time_of_day_is_set_both_passes_run() -> None:
    bench = Bench(parameters=(("bf_interval", "-1"), ("sched_interval", "-1")))
    bench.submit(hold=True)
    await bench.settle()
    quick, full = bench.count("quick"), bench.count("full")
    bench.driver.clock_set()
    await bench.settle()
    assert (bench.count("quick"), bench.count("full")) == (quick + 1, full + 1)


# -- large plans

#: Quick passes start one job each, and none because of a submission: the full pass plans all the others.
FULL_ALONE = (("default_queue_depth", "1"), ("batch_sched_delay", "100"))


async def large_plan(jobs: int, **bench: Any) -> tuple[Bench, list[int]]:
    """Submit jobs, and apply the first slice of a plan that starts nearly all of them, highest rank first."""
    made = Bench(parameters=FULL_ALONE, **bench)
    await made.settle()
    made.pause()
    ids = [made.submit() for _ in range(jobs)]
    planned = made.planned()
    made.pause(False)
    await made.until(planned)
    del made.started[:-1]
    return made, ids


@story
async def test_a_large_plan_is_applied_in_slices_and_the_loop_turns_between_them() -> None:
    bench, ids = await large_plan(500)
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    def turn() -> None:
        seen.append(len(bench.started))
        if bench.slices_left:
            loop.call_soon(turn)

    loop.call_soon(turn)
    await bench.until(lambda: not bench.driver._applications)
    assert bench.all_run(ids)
    started = [job for one in bench.started for job in one]
    assert max(map(len, bench.started)) == plan_slices.STARTS_MAX
    assert len(bench.started) == -(-len(started) // plan_slices.STARTS_MAX)
    assert set(seen) >= set(range(1, len(bench.started))), "other callbacks ran after each slice"
    assert started == sorted(started), "not in the plan's order"


@story
async def test_what_comes_between_slices_takes_nothing_from_the_rest_of_the_plan() -> None:
    """A job of the highest rank that is submitted meanwhile would fit on what later slices give to others. It waits
    for its turn after them, as if the plan had been applied in one piece.
    """
    bench, ids = await large_plan(300, cpus=300)
    urgent = bench.submit(batch=False, priority=1_000_000)
    first = bench.started[0][0]
    bench.cancel(first)
    bench.send(JobGone(node="n1", job_id=first, restart_count=0))  # an event that wants a pass
    quick = bench.count("quick")
    while bench.slices_left:
        assert bench.state(urgent) is JobState.PENDING
        assert bench.count("quick") == quick, "no pass while the plan is being applied"
        await asyncio.sleep(0)
    assert bench.all_run([job for job in ids if job != first])
    await bench.until(lambda: bench.state(urgent) is JobState.RUNNING)
    assert breaches(bench.machine.state) == []


@story
async def test_what_has_become_stale_between_slices_is_dropped_and_the_rest_starts() -> None:
    bench, ids = await large_plan(300)
    gone = ids[-10:]
    bench.cancel(*gone)
    stale = bench.count("stale")
    await bench.until(lambda: not bench.driver._applications)
    assert bench.count("stale") - stale == len(gone)
    assert {bench.state(job) for job in gone} == {JobState.CANCELLED}
    assert bench.all_run(ids[:-10])


@story
async def test_a_pause_keeps_the_rest_of_a_plan_back_and_a_new_one_follows() -> None:
    bench, ids = await large_plan(300)
    bench.pause()
    await bench.settle()
    assert len(bench.started) == 1
    bench.pause(False)
    await bench.until(bench.planned())
    await bench.until(lambda: bench.all_run(ids))


@story
async def test_a_plan_for_nodes_that_are_not_these_any_more_is_given_up_and_made_again() -> None:
    bench, ids = await large_plan(300, nodes=2)
    known = bench.configuration
    bench.send(replace(known, nodes=known.nodes[:1], partitions=(replace(known.partitions[0], nodes=("n1",)),)))
    bench.context.check_whole(())  # rebuilds the table, as any pass would
    await bench.until(lambda: not bench.driver._applications)
    assert len(bench.started) == 2, "a quick pass, and no slice"
    assert len(bench.started[1]) == 1
    await bench.until(lambda: bench.all_run(ids))
    assert breaches(bench.machine.state) == []


@story
async def test_a_slice_that_fails_gives_up_the_plan_and_another_is_made() -> None:
    bench, ids = await large_plan(300)
    handle = bench.writer.handle_own
    failures: list[Struct] = []

    def fail_once(command: Struct) -> Any:
        if isinstance(command, ApplyPlan) and not failures:
            failures.append(command)
            raise KeyError("a fault of the core that has changed nothing")
        return handle(command)

    bench.writer.handle_own = fail_once  # type: ignore[method-assign]  # a core with a fault
    await bench.until(lambda: bench.all_run(ids))
    assert failures


@story
async def test_a_full_plan_that_arrives_while_a_quick_one_is_applied_follows_it() -> None:
    bench = Bench(parameters=(("batch_sched_delay", "100"), ("bf_interval", "1")))
    await bench.settle()
    bench.pause()
    ids = [bench.submit() for _ in range(300)]
    InstantChild.seconds = 500.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler_module, "QUICK_PLACEMENTS", 1)
        bench.pause(False)
        await bench.until(lambda: bench.driver._child is not None)
        patch.setattr(scheduler_module, "QUICK_PLACEMENTS", 1000)
        bench.started.clear()
        bench.submit(batch=False)
        await bench.until(lambda: bool(bench.started))
    child: Any = bench.driver._child
    child.deliver()
    assert len(bench.driver._applications) == 2
    stale = bench.count("stale")
    await bench.until(lambda: not bench.driver._applications)
    assert bench.all_run(ids)
    assert max(map(len, bench.started)) == plan_slices.STARTS_MAX
    assert bench.count("stale") - stale == len(ids) - 1, "all that both plans start, the quick one had started"
    assert breaches(bench.machine.state) == []


@story
async def test_a_job_that_is_changed_meanwhile_does_not_start_with_its_former_size() -> None:
    bench = Bench(cpus=8)
    await bench.settle()
    bench.pause()
    changed, other = (bench.submit(tasks=2, tasks_given=True) for _ in range(2))
    await bench.settle()
    driver = bench.driver
    driver._begin_full_pass(asyncio.get_running_loop().time())
    bench.send(UpdateJob(target=JobTarget(changed), changes={"cpus_per_task": 2}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_quick_pass", lambda began: None)
        bench.context.scheduling_paused = False
        child: Any = driver._child
        child.deliver()
        await bench.until(lambda: not driver._applications)
    assert (bench.state(other), bench.state(changed)) == (JobState.RUNNING, JobState.PENDING)


@pytest.mark.parametrize("array", ["", "0-2"])
def test_a_job_that_both_passes_start_costs_the_next_ones_no_planned_start(
    monkeypatch: pytest.MonkeyPatch, array: str
) -> None:
    async def both_start_it() -> None:
        bench = Bench(cpus=4, parameters=(("batch_sched_delay", "100"),))
        await bench.settle()
        whole: dict[str, Any] = {"tasks": 4, "tasks_given": True}
        first = bench.submit(**whole)
        await bench.until(lambda: bench.state(first) is JobState.RUNNING)
        for _ in range(1 if array else 3):
            bench.submit(array=array, **whole)
        await asyncio.sleep(200.0)
        bench.pause()
        await bench.settle()
        bench.cancel(first)
        bench.send(JobGone(node="n1", job_id=first, restart_count=0))
        bench.started.clear()
        InstantChild.seconds = 500.0
        driver, now = bench.driver, asyncio.get_running_loop().time()
        driver._begin_full_pass(now)
        bench.context.scheduling_paused = False
        driver._quick_pass(now)
        assert [len(one) for one in bench.started] == [1]
        child: Any = driver._child
        child.deliver()
        await bench.until(lambda: not driver._applications)
        ledger, time_of_day = driver._projection.ledger, bench.context.clock.now()
        starts = sorted(one.start_at - time_of_day for ones in ledger.by_request.values() for one in ones)
        assert starts == pytest.approx([3600.0, 7200.0], abs=1.0)

    story(both_start_it)(monkeypatch)


@story
async def test_notes_are_cut_as_well() -> None:
    bench = Bench(cpus=1, parameters=FULL_ALONE)
    await bench.settle()
    bench.pause()
    for _ in range(2500):
        bench.submit()
    bench.notes.clear()
    planned = bench.planned()
    bench.pause(False)
    await bench.until(planned)
    await bench.settle()
    assert max(bench.notes) == plan_slices.NOTES_MAX


@story
async def test_components_of_a_heterogeneous_job_start_in_one_slice() -> None:
    bench = Bench(parameters=(*FULL_ALONE, ("hetjob_share_nodes", "")))
    await bench.settle()
    bench.pause()
    spec = JobSpec(name="job", user="root", batch=True, script_key="k", time_limit_minutes=60)
    wholes = []
    for _ in range(40):
        reply = bench.send(SubmitHetJob(components=(SubmitJob(spec=spec),) * 5))
        assert isinstance(reply, JobSubmitted), reply
        wholes.append(set(range(reply.job_id, reply.job_id + 5)))
    planned = bench.planned()
    bench.pause(False)
    await bench.until(planned)
    await bench.until(lambda: not bench.driver._applications)
    for whole in wholes:
        assert any(whole <= set(one) for one in bench.started), "started in two pieces"
    assert max(map(len, bench.started)) <= plan_slices.STARTS_MAX


@story
async def test_after_stop_nothing_more_is_applied() -> None:
    bench, _ids = await large_plan(300)
    bench.driver.stop()
    await asyncio.sleep(0.1)
    assert len(bench.started) == 1


def test_the_loop_of_these_tests_says_when_nothing_is_left_to_wait_for() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="nothing is left"):
        run_virtually(main())
    assert issubclass(VirtualLoop, asyncio.SelectorEventLoop)
