"""How long does a scheduling cycle take, full and after one event? No daemons: projection and cycle alone.

Run with `python -m benchmarks.scheduling [--large]`. One JSON object a line: medians in milliseconds of processor time,
and counts (placements tried, jobs started), which do not depend on the machine. The seed is fixed.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable

from msgspec.structs import replace

from spritz.controller.journal.recovery import GC_THRESHOLDS
from spritz.controller.scheduler.driver import QUICK_PLACEMENTS
from spritz.controller.scheduler.pacing import QUICK_SECONDS
from spritz.model.cluster.preemption import PreemptionPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.events import Changes
from spritz.model.job.record import Dependency, Job, JobSpec
from spritz.model.node.partition import Partition
from spritz.model.node.record import Node, NodeConfig
from spritz.model.plan import Plan
from spritz.model.reasons import Reason
from spritz.model.resources import GresCapacity, GresRequest, NodeCapacity
from spritz.model.states import JobState, NodeState
from spritz.scheduling.forecast import full_cycle
from spritz.scheduling.plan import cycle
from spritz.scheduling.plan.decisions import Result
from spritz.scheduling.view.projection import Projection

SETTINGS = ClusterSettings(default_memory_mib_per_cpu=100, gres_types=("gpu",))


class Bench:
    """A projection, fed as the controller would."""

    def __init__(self, nodes: int, cpus: int, gpus: int) -> None:
        gres = (GresCapacity(name="gpu", count=gpus, files=tuple(f"/dev/g{i}" for i in range(gpus))),) if gpus else ()
        capacity = NodeCapacity(cpus=cpus, cores_per_socket=cpus, memory_mib=200 * cpus, gres=gres)
        configs = tuple(NodeConfig(name=f"n{number:05}", capacity=capacity) for number in range(nodes))
        home = Partition(name="batch", nodes=tuple(config.name for config in configs), default=True)
        self.projection = Projection()
        self.now = 1e9
        self.next_id = 1
        self.running: list[int] = []
        self.configure(SETTINGS, configs, (home,))

    def configure(
        self, settings: ClusterSettings, configs: tuple[NodeConfig, ...], partitions: tuple[Partition, ...]
    ) -> None:
        """Begin with these nodes, idle."""
        nodes = [Node(config=config, state=NodeState.IDLE, features_active=config.features) for config in configs]
        self.projection.reset((), nodes, partitions, settings)

    def put(self, *jobs: Job) -> None:
        """These records of jobs take the place of former ones."""
        records = self.projection.records
        before = [records[job.id].job if job.id in records else None for job in jobs]
        self.projection.follow(Changes(jobs=tuple(zip(before, jobs, strict=True))))

    def submit(self, spec: JobSpec) -> None:
        """Queue a job."""
        job = Job(id=self.next_id, spec=spec, priority=1, submitted_at=self.now, eligible_at=self.now)
        self.next_id += 1
        self.put(job)

    def submit_later(self, spec: JobSpec, target: Dependency) -> None:
        """A job that waits for another."""
        reason, number = Reason.DEPENDENCY, self.next_id
        self.next_id += 1
        job = Job(id=number, spec=spec, priority=1, submitted_at=self.now, reason=reason, dependencies=(target,))
        self.put(job)

    def submit_whole(self, specs: list[JobSpec]) -> None:
        """Queue a heterogeneous job of these components."""
        first, size = self.next_id, len(specs)
        for offset, spec in enumerate(specs):
            job = Job(
                id=first + offset,
                spec=spec,
                priority=1,
                submitted_at=self.now,
                eligible_at=self.now,
                het_job_id=first,
                het_offset=offset,
                het_size=size,
            )
            self.put(job)
        self.next_id += size

    def cycle(self, budget: int | None = None) -> Plan:
        """Plan and apply."""
        snapshot = self.projection.snapshot(self.now)
        plan = self.remember(full_cycle.run(snapshot) if budget is None else cycle.run(snapshot, budget))
        self.apply(plan)
        self.projection.adopt(plan)
        return plan

    def quick(self) -> Plan:
        """A quick plan, within the controller's bounds: what is cut off goes on in the next."""
        until = time.process_time() + QUICK_SECONDS
        snapshot = self.projection.snapshot(self.now)
        return self.remember(cycle.run(snapshot, QUICK_PLACEMENTS, stop=lambda: time.process_time() > until))

    def full(self, *, held: bool = False) -> Plan:
        """A full plan with expected starts. `held`: of jobs that are held back, too, as for those who ask."""
        return self.remember(full_cycle.run(self.projection.snapshot(self.now), held=held))

    def burst(self) -> Plan:
        """A quick plan without bounds."""
        return self.remember(cycle.run(self.projection.snapshot(self.now), expect=False))

    def remember(self, result: Result) -> Plan:
        """As the driver does with every quick plan."""
        self.projection.remember(result.findings)
        return result.plan

    def apply(self, plan: Plan) -> None:
        """What the core would make of it."""
        changed = []
        for start in plan.starts:
            self.running.append(start.job_id)
            job = self.projection.records[start.job_id].job
            minutes = job.spec.time_limit_minutes or 1
            changed.append(
                replace(
                    job,
                    state=JobState.RUNNING,
                    reason=Reason.NONE,
                    partition=start.allocation.partition,
                    allocation=start.allocation,
                    time_limit_minutes=minutes,
                    started_at=self.now,
                    ends_at=self.now + minutes * 60,
                )
            )
        for note in plan.notes:
            changed.append(
                replace(
                    self.projection.records[note.job_id].job,
                    reason=note.reason,
                    reason_detail=note.detail,
                    expected_start_at=note.expected_start_at,
                    expected_nodes=note.expected_nodes,
                )
            )
        self.put(*changed)

    def end(self, job_id: int) -> None:
        """A running job ends."""
        self.now += 1
        job = self.projection.records[job_id].job
        self.put(replace(job, state=JobState.COMPLETED, ended_at=self.now, ends_at=self.now))


def timed(work: Callable[[], Plan]) -> tuple[float, Plan]:
    """Milliseconds and the plan."""
    started = time.process_time()
    plan = work()
    return (time.process_time() - started) * 1e3, plan


def say(question: str, **values: float) -> None:
    """One line of JSON."""
    print(json.dumps({"question": question, **{key: round(value, 4) for key, value in values.items()}}), flush=True)


def some_specs(count: int, rng: random.Random, gpus: int) -> list[JobSpec]:
    """A number of different requests: one node to eight, some with GPUs."""
    found = []
    for number in range(count):
        nodes = rng.choice([1, 1, 1, 1, 2, 4, 8])
        wants = rng.randint(1, gpus) if gpus and rng.random() < 0.7 else 0
        found.append(
            JobSpec(
                nodes_min=nodes,
                nodes_max=nodes,
                nodes_given=True,
                tasks=nodes,
                tasks_given=True,
                cpus_per_task=rng.randint(1, 16),
                gpus_per_node=(GresRequest("gpu", "", wants),) if wants else (),
                # Different limits make different requests of the same size.
                time_limit_minutes=60 + number,
            )
        )
    return found


def stream(shapes: int) -> None:
    """Eight nodes, 10,000 pending no-op jobs: one ends, the next starts."""
    bench = Bench(8, 8, 0)
    specs = [JobSpec(tasks=1, tasks_given=True, time_limit_minutes=60 + number) for number in range(shapes)]
    for number in range(10_000):
        bench.submit(specs[number % shapes])
    bench.cycle()
    costs, tested = [], 0
    for turn in range(2000):
        job_id = bench.running[turn]
        started = time.process_time()
        bench.end(job_id)
        tested += bench.cycle(QUICK_PLACEMENTS).examined
        costs.append((time.process_time() - started) * 1e3)
    say(f"stream_{shapes}_shapes", per_job_ms=statistics.median(costs), tested_per_job=tested / 2000)


def arrivals() -> None:
    """Ten thousand wait behind a full cluster, and one more comes."""
    bench = Bench(8, 8, 0)
    spec = JobSpec(tasks=1, tasks_given=True, time_limit_minutes=60)
    for _ in range(10_000):
        bench.submit(spec)
    bench.cycle()
    costs = []
    for _ in range(500):
        started = time.process_time()
        bench.submit(spec)
        bench.cycle(QUICK_PLACEMENTS)
        costs.append((time.process_time() - started) * 1e3)
    say("arrival", per_job_ms=statistics.median(costs))


def cluster(nodes: int, pending: int, shapes: int) -> None:
    """A full cycle on an empty cluster, on a full one, and after one end."""
    rng = random.Random(7)
    bench = Bench(nodes, 64, 8)
    specs = some_specs(shapes, rng, 8)
    started = time.process_time()
    for _ in range(pending):
        bench.submit(rng.choice(specs))
    bench.projection.settle(bench.now)
    queued = (time.process_time() - started) * 1e6 / pending
    # A burst fills the empty cluster; a full cycle then promises starts and says of everybody when he will start.
    empty, plan = timed(bench.burst)
    started_count = len(plan.starts)
    started = time.process_time()
    bench.apply(plan)
    applied = (time.process_time() - started) * 1e6 / max(1, started_count)
    bench.projection.queue.forget_failures()
    bench.projection.snapshot(bench.now)
    bench.projection.profile.settle()
    # The controller's child, in which full cycles run, collects no garbage.
    gc.disable()
    full, second = timed(bench.full)
    bench.apply(second)
    bench.projection.adopt(second)
    again, _third = timed(bench.full)
    gc.enable()
    forecast, waiting = second.forecast, pending - started_count - len(second.starts)
    expected = len(forecast.job_ids) // 8 if forecast is not None else 0
    # Gates: counts, which no machine changes.
    assert expected == waiting, f"{waiting - expected} waiting jobs have no expected start"
    assert second.examined <= shapes, "a request was tested more than once in one cycle"
    costs, tested, cut = [], 0, 0
    for job_id in rng.sample(bench.running, 50):
        bench.end(job_id)
        cost, plan = timed(bench.quick)
        cut += not plan.complete
        bench.apply(plan)
        bench.projection.adopt(plan)
        costs.append(cost)
        tested += plan.examined
    say(
        f"cluster_{nodes}_nodes_{pending}_pending_{shapes}_shapes",
        queue_us_per_job=queued,
        empty_cycle_ms=empty,
        empty_cycle_starts=started_count,
        starts_per_second=started_count / empty * 1e3,
        apply_us_per_start=applied,
        full_cycle_ms=full,
        full_cycle_tested=second.examined,
        full_cycle_planned_starts=len(second.future_starts or ()),
        full_cycle_expected=expected,
        unchanged_full_cycle_ms=again,
        incremental_ms=statistics.median(costs),
        incremental_max_ms=max(costs),
        incremental_tested=tested / 50,
        incremental_cut=cut / 50,
        memory_mib_max=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


def preemption(nodes: int) -> None:
    """Half of the nodes full of a higher tier, half of a lower one, and two hundred wait that can preempt no job where
    they may run: what does a quick cycle cost?
    """
    bench = Bench(nodes, 64, 8)
    names = tuple(bench.projection.nodes)
    settings = replace(SETTINGS, preemption=PreemptionPolicy(type="partition_prio", mode=("REQUEUE",)))
    homes = (
        Partition(name="low", nodes=names, default=True),
        Partition(name="high", nodes=names[: nodes // 2], priority_tier=10),
    )
    configs = tuple(node.config for node in bench.projection.nodes.values())
    bench.configure(settings, configs, homes)

    def submit(home: str, count: int, gpus: int, minutes: int) -> None:
        bench.submit(
            JobSpec(
                partitions=(home,),
                nodes_min=count,
                nodes_max=count,
                nodes_given=True,
                tasks=count,
                tasks_given=True,
                gpus_per_node=(GresRequest("gpu", "", gpus),),
                time_limit_minutes=minutes,
            )
        )

    for number in range(nodes // 2):
        submit("high", 1, 8, 600 + number % 50)
    bench.apply(bench.burst())
    for number in range(nodes):
        submit("low", 1, 4, 600 + number % 50)
    bench.apply(bench.burst())
    for number in range(200):
        submit("high", 1 + number % 8, 8, 60 + number)
    costs, tested = [], 0
    for turn in range(20):
        if turn:
            bench.end(bench.running[-turn])
        cost, plan = timed(bench.quick)
        bench.apply(plan)
        bench.projection.adopt(plan)
        costs.append(cost)
        tested += plan.examined
    say(f"preemption_{nodes}_nodes", quick_ms=statistics.median(costs), quick_max_ms=max(costs), tested=tested / 20)


def gangs(nodes: int, running: int, count: int) -> None:
    """Heterogeneous jobs of three components wait on a full cluster: what does one cost in a full cycle, when
    nothing is promised yet, and after twenty jobs have ended?
    """
    rng = random.Random(5)
    bench = Bench(nodes, 64, 8)
    specs = some_specs(200, random.Random(7), 8)
    for _ in range(running):
        bench.submit(rng.choice(specs))
    bench.apply(bench.burst())
    for _ in range(count):
        bench.submit_whole(rng.sample(specs, 3))
    costs = []
    gc.disable()
    for _ in range(3):
        cost, plan = timed(lambda: bench.remember(cycle.run(bench.projection.snapshot(bench.now))))
        costs.append(cost / count)
        bench.apply(plan)
        bench.projection.adopt(plan)
        for _ in range(20):
            bench.end(bench.running.pop(rng.randrange(len(bench.running))))
    gc.enable()
    say(f"gangs_{nodes}_nodes_{count}_waiting", first_ms=costs[0], again_ms=statistics.mean(costs[1:]))


def to_come(kind: str, count: int) -> None:
    """Jobs in one chain of dependencies, or all behind one job ("fan"), on 1,000 nodes: what do their expected
    starts cost in a full cycle, and what do the jobs cost a quick one?
    """
    bench = Bench(1000, 64, 8)
    bench.submit(JobSpec(tasks=1, tasks_given=True, time_limit_minutes=10))
    bench.apply(bench.burst())
    for number in range(count):
        target = Dependency(kind="afterany", job_id=bench.next_id - 1 if kind == "chain" else 1)
        bench.submit_later(JobSpec(tasks=1, tasks_given=True, time_limit_minutes=1 + number % 7), target)
    bench.projection.settle(bench.now)
    plain, _plan = timed(bench.full)
    cost, plan = timed(lambda: bench.full(held=True))
    assert plan.forecast is not None
    quick = min(timed(bench.quick)[0] for _ in range(5))
    told = len(plan.forecast.job_ids) // 8
    say(f"to_come_{kind}_of_{count}", full_cycle_ms=plain, asked_ms=cost, asked_expected=told, quick_ms=quick)


def burst() -> None:
    """5,000 empty nodes, 6,000 single-node GPU jobs of many sizes at once: placements a second."""
    rng = random.Random(7)
    bench = Bench(5000, 64, 8)
    for _ in range(6000):
        gpus = (GresRequest("gpu", "", rng.randint(1, 4)),)
        bench.submit(JobSpec(tasks=1, tasks_given=True, cpus_per_task=rng.randint(1, 8), gpus_per_node=gpus))
    bench.projection.settle(bench.now)
    cost, plan = timed(bench.burst)
    assert len(plan.starts) == 6000
    say("burst_5000_nodes_single_node_gpu", placements_per_second=6000 / cost * 1e3)


def main(arguments: list[str]) -> int:
    """All questions; `--large` adds issue-sized clusters. Garbage is searched for as rarely as in the controller."""
    gc.set_threshold(*GC_THRESHOLDS)
    questions: list[Callable[[], None]] = [
        lambda: stream(1),
        lambda: stream(100),
        arrivals,
        burst,
        lambda: cluster(1000, 10_000, 200),
        lambda: cluster(1000, 10_000, 2000),
        lambda: gangs(1000, 4000, 100),
        lambda: gangs(20, 100, 40),
        lambda: preemption(1000),
        lambda: to_come("chain", 10_000),
        lambda: to_come("fan", 10_000),
    ]
    if "--large" in arguments:
        questions += [lambda: preemption(10_000), lambda: cluster(10_000, 100_000, 2000)]
    for ask in questions:
        ask()
        # What is left of one is not to be searched for in the next.
        gc.collect()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
