"""What does one decision cost, and does it grow with the number of jobs? `python -m benchmarks.core`

The pure core alone: no journal, no sockets. Medians of processor time, in microseconds; the last lines compare an
empty cluster with one of 10,000 pending and 100,000 finished jobs. Targets: a submission 60, a start and end 150, the
same whatever else is there; an array of 10,000 tasks well under a millisecond.
"""

from __future__ import annotations

import gc
import statistics
import time

from spritz.core.machine import Machine
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import ApplyPlan, Tick
from spritz.model.commands.job import SubmitJob
from spritz.model.commands.step import CreateStep
from spritz.model.ids import STEP_BATCH
from spritz.model.job.record import Dependency
from spritz.model.job.step import StepSpec
from spritz.model.node_daemon.reports import StepFinished, TaskEnd
from spritz.model.plan import Plan, PlannedStart
from spritz.model.resources import Allocation, NodeAllocation
from spritz_testing.builders import ALICE, ROOT, World, capacity, job_spec

ROUNDS = 2_000
PENDING = 10_000
FINISHED = 100_000
SCRIPT = b"#!/bin/sh\n"
SETTINGS = ClusterSettings(max_job_count=1_000_000, max_array_size=20_000, gres_types=("gpu",))
ALLOCATION = Allocation(partition="debug", nodes=(NodeAllocation(node="n1", cpus="1", memory_mib=100),))


def new_world(nodes: int = 8) -> World:
    """A cluster of alike nodes with two GPUs each."""
    return World(nodes=nodes, hardware=capacity(cpus=64, memory_mib=256_000, gpus=2), settings=SETTINGS)


def submit(machine: Machine, now: float, **fields: object) -> int:
    """One accepted batch job."""
    reply = machine.handle(SubmitJob(spec=job_spec(**fields), script=SCRIPT), now, ALICE).reply
    return int(getattr(reply, "job_id"))  # noqa: B009  # the reply is JobSubmitted or an error worth seeing


def start_and_end(machine: Machine, job_id: int, now: float) -> None:
    """ApplyPlan, then the report that the script is over and the job gone."""
    start = PlannedStart(job_id=job_id, allocation=ALLOCATION)
    machine.handle(ApplyPlan(plan=Plan(starts=(start,))), now, ROOT)
    machine.handle(
        StepFinished(
            node="n1",
            job_id=job_id,
            restart_count=0,
            step_id=STEP_BATCH,
            ended_at=now,
            tasks=(TaskEnd(0, 0),),
            job_gone=True,
        ),
        now,
        ROOT,
    )


def life(machine: Machine, now: float, rounds: int = ROUNDS) -> tuple[float, float]:
    """Medians in microseconds: a submission; a start and end."""
    submitted, ran = [], []
    for number in range(rounds):
        at = now + number * 1e-4
        first = time.process_time_ns()
        job_id = submit(machine, at)
        second = time.process_time_ns()
        start_and_end(machine, job_id, at)
        third = time.process_time_ns()
        submitted.append(second - first)
        ran.append(third - second)
    return statistics.median(submitted) / 1e3, statistics.median(ran) / 1e3


def timed(action: object, rounds: int = 1) -> float:
    """Median microseconds of calling `action`."""
    assert callable(action)
    times = []
    for _ in range(rounds):
        began = time.process_time_ns()
        action()
        times.append(time.process_time_ns() - began)
    return statistics.median(times) / 1e3


def say(what: str, microseconds: float) -> None:
    print(f"{what:66} {microseconds:10.1f} us", flush=True)


def alone() -> tuple[float, float]:
    """Each kind of decision on a small cluster."""
    world = new_world()
    machine = world.machine
    costs = life(machine, 2_000.0)
    say("submit one job", costs[0])
    say("start and end a job (two commands, three events)", costs[1])
    say("accept an array of 10,000 tasks", timed(lambda: submit(machine, 3_000.0, array="0-9999"), 20))
    array = submit(machine, 3_000.0, array="0-9999")
    task = iter(range(10_000))

    def start_task() -> None:
        start = PlannedStart(job_id=array, task_id=next(task), allocation=ALLOCATION)
        reply = machine.handle(ApplyPlan(plan=Plan(starts=(start,))), 3_000.0, ROOT)
        job_id = world.state.arrays[array][next_started(reply)]
        machine.handle(
            StepFinished(
                node="n1", job_id=job_id, restart_count=0, step_id=STEP_BATCH, ended_at=3_000.0, job_gone=True
            ),
            3_000.0,
            ROOT,
        )

    def next_started(outcome: object) -> int:
        del outcome
        return len(world.state.arrays[array]) - 1

    say("start and end a task of it", timed(start_task, 2_000))
    job_id = submit(machine, 3_000.0)
    machine.handle(ApplyPlan(plan=Plan(starts=(PlannedStart(job_id=job_id, allocation=ALLOCATION),))), 3_000.0, ROOT)
    spec = StepSpec(argv=("true",), overlap=True)

    def step() -> None:
        reply = machine.handle(CreateStep(job_id=job_id, spec=spec), 3_000.0, ALICE).reply
        step_id = reply.step.step_id  # type: ignore[attr-defined]  # StepCreated, or an error worth seeing
        machine.handle(
            StepFinished(node="n1", job_id=job_id, restart_count=0, step_id=step_id, ended_at=3_000.0), 3_000.0, ROOT
        )

    say("make and end a step", timed(step, 2_000))
    waiting = Dependency(kind="afterok", job_id=job_id)
    say("submit a job that depends on another", timed(lambda: submit(machine, 3_000.0, dependencies=(waiting,)), 500))
    say("Tick with nothing due", timed(lambda: machine.handle(Tick(), 3_000.0, ROOT), 500))
    return costs


def crowded(base: tuple[float, float]) -> None:
    """The same with many jobs around."""
    machine = new_world(nodes=1_000).machine
    for number in range(PENDING):
        submit(machine, 2_000.0, name=f"job{number}")
    few = life(machine, 2_500.0)
    life(machine, 2_600.0, FINISHED)
    gc.freeze()
    many = life(machine, 2_700.0)
    print(f"\n{'beside':34} {'submit':>12} {'start and end':>16}")
    for what, costs in (
        ("nothing", base),
        (f"{PENDING:,} pending, 1,000 nodes", few),
        (f"and {FINISHED:,} finished", many),
    ):
        print(f"{what:34} {costs[0]:9.1f} us {costs[1]:13.1f} us", flush=True)
    data = machine.image()
    say(f"write the image of {len(machine.state.jobs):,} jobs ({len(data) / 1e6:.0f} MB)", timed(machine.image))
    say("read it", timed(lambda: Machine.from_image(data)))


if __name__ == "__main__":
    crowded(alone())
