"""Requests that would start sooner: each takes the job's place, as with `scontrol update`, and is planned for.

Everything reported was planned by a full cycle over the whole queue. Which requests to try is only a guess at what the
user may be willing to change: a shorter time, a smaller size, another partition.

Source: sbatch(1); scontrol(1) update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from spritz.model.ids import INFINITE
from spritz.model.job.record import Hold, Job, JobSpec, Sharing
from spritz.model.queries.explain import Alternative
from spritz.model.reasons import Reason
from spritz.model.rules.time_limit import limit_minutes, longest_minutes
from spritz.scheduling.explain.context import PlanView
from spritz.scheduling.explain.expected_start import Start, expected, start_of
from spritz.scheduling.explain.wording import count, gres_noun, limit_text, memory
from spritz.scheduling.forecast import full_cycle

if TYPE_CHECKING:
    from spritz.model.node.partition import Partition
    from spritz.model.queries.explain import Expected, Explanation
    from spritz.model.resources import GresRequest
    from spritz.scheduling.view.projection import Projection
    from spritz.scheduling.view.snapshot import History

#: most requests tried for one job, and most waiting jobs that all of these cycles may consider together
TRIES_MAX = 18
WORK_MAX = 60_000
TRIES_MIN = 4

#: only a start that is earlier by this much is reported, seconds
SOONER_SECONDS = 60.0

#: most alternatives reported
TOLD_MAX = 5


class Change(Struct, frozen=True):
    """A request that could replace the job's. Changes of one `family` are ordered: each gives up more than the one
    before.
    """

    family: str
    text: str
    spec: JobSpec
    update: str = ""


def try_others(
    projection: Projection,
    job: Job,
    explanation: Explanation,
    now: float,
    acceptable: Callable[[JobSpec], bool],
    history: History | None = None,
) -> tuple[tuple[Alternative, ...], int]:
    """Alternatives that would start sooner than `explanation` expects, least change first; and how many were tried.

    `projection` must not be used for anything else afterwards. `acceptable`: whether the core would take this request
    from the job's owner. `history`: see `Projection.snapshot`.
    """
    budget = max(TRIES_MIN, min(TRIES_MAX, WORK_MAX // max(1, len(projection.queue))))
    base = (
        explanation.expected.start_at
        if explanation.expected is not None and explanation.expected.start_at
        else float("inf")
    )
    best: dict[str, float] = {}
    sooner: list[Alternative] = []
    tried = 0
    for change in _in_turns(changes(job.spec, explanation, projection, now)):
        if tried >= budget:
            break
        if best.get(change.family, base) <= now or not acceptable(change.spec):
            continue
        tried += 1
        start = plan_for(projection, replace(job, spec=change.spec), now, history)
        if start is None or start.at > best.get(change.family, base) - SOONER_SECONDS:
            continue
        best[change.family] = start.at
        update = f"JobId={job.id} {change.update}" if change.update else ""
        sooner.append(Alternative(change=change.text, start_at=start.at, now=start.now, update=update))
    projection.put_job(job)
    return tuple(sorted(sooner, key=lambda item: item.start_at)[:TOLD_MAX]), tried


def plan_for(projection: Projection, job: Job, now: float, history: History | None = None) -> Start | None:
    """When the job would start with this request: by a full cycle over all waiting jobs."""
    record = projection.put_job(job)
    return start_of(_planned(projection, now, history), record)


def once_free(projection: Projection, job: Job, now: float, history: History | None = None) -> Expected:
    """When the job would start if no hold, begin time or dependency held it back."""
    record = projection.put_job(freed(job, now))
    start = expected(_planned(projection, now, history), record)
    projection.put_job(job)
    return start


def _planned(projection: Projection, now: float, history: History | None) -> PlanView:
    snapshot = projection.snapshot(now, history)
    result = full_cycle.run(snapshot, held=True)
    # Each cycle after the first looks again only at what is different.
    projection.remember(result.findings)
    return PlanView(snapshot, result, {}, {})


def freed(job: Job, now: float) -> Job:
    """The job as if only resources held it back."""
    return replace(
        job,
        hold=Hold.NONE,
        dependencies=(),
        reason=Reason.NONE,
        reason_detail="",
        eligible_at=now,
        priority=max(job.priority, 1),
    )


def _in_turns(families: Iterable[list[Change]]) -> Iterator[Change]:
    """The first change of each family, then the second of each, and so on."""
    nonempty = [family for family in families if family]
    for place in range(max(map(len, nonempty), default=0)):
        for family in nonempty:
            if place < len(family):
                yield family[place]


def changes(spec: JobSpec, explanation: Explanation, projection: Projection, now: float) -> list[list[Change]]:
    """Changes worth trying, by family: only what stands in the way is reduced."""
    tests = [test for view in explanation.partitions for test in view.tests]
    short = {what for test in tests for what in test.what}
    failed = {test.test for test in tests}
    names = spec.partitions
    home = projection.partitions.get(names[0]) if names else None
    minutes = most = INFINITE
    if home is not None:
        minutes = limit_minutes(spec, home)
        most = longest_minutes(spec, home, projection.rules.placing(spec.qos))
    return [
        list(_shorter(spec, minutes, most, _starts_of_others(explanation, projection, now), now)),
        list(_elsewhere(spec, projection)),
        list(_fewer_nodes(spec, home)),
        list(_fewer_gpus(spec)) if any(what.startswith("gres/") for what in short) else [],
        list(_anywhere(spec, failed)),
        list(_fewer_cpus(spec)) if "cpus" in short else [],
        list(_fewer_tasks(spec)) if short & {"cpus", "memory"} else [],
        list(_less_memory(spec)) if "memory" in short else [],
        list(_sharing(spec)),
        list(_fewer_licenses(spec, explanation)),
        list(_any_switches(spec)),
        list(_fewer_together(spec)) if any(what.startswith("gres/") for what in short) else [],
    ]


def _starts_of_others(explanation: Explanation, projection: Projection, now: float) -> list[float]:
    """Times until which resources that are free now may be used: the next planned starts and reservations."""
    starts = {other.start_at for other in explanation.ahead.first} | set(projection.reserved.starts())
    return sorted(at for at in starts if at > now)[:4]


def _shorter(spec: JobSpec, minutes: int, most: int, until: Iterable[float], now: float) -> Iterator[Change]:
    shorter = {1440, 240, 60} if minutes >= INFINITE else {minutes // 2, minutes // 4, 60, 15}
    if minutes > most:
        shorter.add(most)
    # Run times that end before other jobs need the resources planned for them.
    shorter |= {int((at - now) // 60) for at in until}
    for choice in sorted(shorter, reverse=True):
        if 0 < choice < minutes:
            changed = replace(spec, time_limit_minutes=choice, time_min_minutes=None)
            text = limit_text(choice)
            yield Change("time", f"a time limit of {text} (--time={text})", changed, f"TimeLimit={text}")


def _elsewhere(spec: JobSpec, projection: Projection) -> Iterator[Change]:
    for name, partition in sorted(projection.partitions.items()):
        if name not in spec.partitions and not partition.hidden:
            # Each partition is a family of its own: none is a greater change than another.
            changed = replace(spec, partitions=(name,))
            yield Change(f"partition {name}", f"partition {name} (--partition={name})", changed, f"Partition={name}")


def _fewer_nodes(spec: JobSpec, home: Partition | None) -> Iterator[Change]:
    most = home.max_nodes if home is not None else INFINITE
    if spec.nodes_min <= most < (spec.nodes_max or 0):
        # The partition holds back a job whose range of nodes exceeds its limit.
        sizes = f"{spec.nodes_min}-{most}"
        text = f"at most {count(most, 'node')} (--nodes={most if spec.nodes_min == most else sizes})"
        yield Change("nodes", text, replace(spec, nodes_max=most), f"NumNodes={sizes}")
    if not spec.nodes_given or spec.nodes_min < 2 or spec.node_list:
        return
    for nodes in sorted({spec.nodes_min - 1, spec.nodes_min // 2, 1}, reverse=True):
        if not 0 < nodes < spec.nodes_min:
            continue
        changed = replace(spec, nodes_min=nodes, nodes_max=nodes)
        update = f"NumNodes={nodes}-{nodes}"  # one number would leave the most
        text = f"{count(nodes, 'node')} (--nodes={nodes})"
        if spec.tasks_given:
            tasks = max(nodes, spec.tasks * nodes // spec.nodes_min)
            changed = replace(changed, tasks=tasks)
            text = f"{count(nodes, 'node')} and {count(tasks, 'task')} (--nodes={nodes} --ntasks={tasks})"
            update += f" NumTasks={tasks}"
        yield Change("nodes", text, changed, update)


def _fewer_gpus(spec: JobSpec) -> Iterator[Change]:
    for field, option, where in (
        ("gpus", "gpus", "in all"),
        ("gpus_per_node", "gpus-per-node", "a node"),
        ("gpus_per_task", "gpus-per-task", "a task"),
        ("gres_per_node", "gres", "a node"),
    ):
        asked: tuple[GresRequest, ...] = getattr(spec, field)
        if len(asked) != 1:
            continue
        gpu_need = asked[0]
        for number in sorted({gpu_need.count // 2, gpu_need.count // 4, 1}, reverse=True):
            if 0 < number < gpu_need.count:
                value = ":".join(
                    part
                    for part in (
                        gpu_need.name if field == "gres_per_node" else "",
                        gpu_need.type,
                        str(number),
                    )
                    if part
                )
                text = f"{gres_noun(gpu_need.name or 'gpu', gpu_need.type, number)} {where} (--{option}={value})"
                gres = ":".join(part for part in (gpu_need.name or "gpu", gpu_need.type, str(number)) if part)
                update = f"Gres={gres}" if where == "a node" else ""
                yield Change(option, text, replace(spec, **{field: (replace(gpu_need, count=number),)}), update)
        if gpu_need.type and field != "gres_per_node":
            yield Change(
                f"any {option}",
                f"{gres_noun('gpu', '', gpu_need.count)} of any type {where} (--{option}={gpu_need.count})",
                replace(spec, **{field: (replace(gpu_need, type=""),)}),
            )


def _anywhere(spec: JobSpec, failed: set[str]) -> Iterator[Change]:
    if spec.features and "features" in failed:
        yield Change("features", "no --constraint", replace(spec, features=""), "Features=")
    if spec.node_list and not spec.distribution.lower().startswith("arbitrary"):
        yield Change("node_list", "no --nodelist", replace(spec, node_list=()), "ReqNodeList=")
    if spec.exclude:
        yield Change("exclude", "no --exclude", replace(spec, exclude=()), "ExcNodeList=")


def _fewer_cpus(spec: JobSpec) -> Iterator[Change]:
    cpus_per_task = spec.cpus_per_task or 1
    for cpus in sorted({cpus_per_task // 2, 1}, reverse=True):
        if 0 < cpus < cpus_per_task:
            yield Change(
                "cpus",
                f"{count(cpus, 'CPU')} a task (--cpus-per-task={cpus})",
                replace(spec, cpus_per_task=cpus),
                f"CPUsPerTask={cpus}",
            )


def _fewer_tasks(spec: JobSpec) -> Iterator[Change]:
    if not spec.tasks_given or (spec.nodes_given and spec.nodes_min > 1):
        return
    for tasks in sorted({spec.tasks // 2, spec.tasks // 4, 1}, reverse=True):
        if 0 < tasks < spec.tasks:
            text = f"{count(tasks, 'task')} (--ntasks={tasks})"
            yield Change("tasks", text, replace(spec, tasks=tasks), f"NumTasks={tasks}")


def _fewer_licenses(spec: JobSpec, explanation: Explanation) -> Iterator[Change]:
    """As many licenses as are free, if the job asks for one kind."""
    held = [rule for rule in explanation.limits if rule.kind == "Licenses" and rule.holds]
    if len(held) != 1 or held[0].subject != spec.licenses.partition(":")[0]:
        return
    free = (held[0].limit or 0) - (held[0].used or 0)
    if 0 < free < (held[0].asked or 0):
        value = f"{held[0].subject}:{free}"
        text = f"{count(free, 'license')} (--licenses={value})"
        yield Change("licenses", text, replace(spec, licenses=value), f"Licenses={value}")


def _any_switches(spec: JobSpec) -> Iterator[Change]:
    if spec.switches:
        yield Change("switches", "no --switches", replace(spec, switches=None), "Switches=0")


def _fewer_together(spec: JobSpec) -> Iterator[Change]:
    """Fewer nodes, and fewer of the GPUs requested in total."""
    if not spec.nodes_given or spec.nodes_min < 2 or spec.node_list or len(spec.gpus) != 1 or spec.tasks_given:
        return
    gres = spec.gpus[0]
    for nodes in sorted({spec.nodes_min // 2, 1}, reverse=True):
        number = gres.count * nodes // spec.nodes_min
        if number:
            value = f"{gres.type}:{number}" if gres.type else str(number)
            fewer = replace(spec, nodes_min=nodes, nodes_max=nodes, gpus=(replace(gres, count=number),))
            gpus = gres_noun("gpu", gres.type, number)
            yield Change("both", f"{count(nodes, 'node')} and {gpus} in all (--nodes={nodes} --gpus={value})", fewer)


def _less_memory(spec: JobSpec) -> Iterator[Change]:
    asked = spec.memory_mib_per_node
    if asked:
        for mib in (asked // 2, asked // 4):
            if mib:
                text = f"{memory(mib)} a node (--mem={mib}M)"
                yield Change("memory", text, replace(spec, memory_mib_per_node=mib), f"MinMemoryNode={mib}")


def _sharing(spec: JobSpec) -> Iterator[Change]:
    if spec.sharing in (Sharing.EXCLUSIVE, Sharing.USER):
        yield Change("sharing", "no --exclusive", replace(spec, sharing=Sharing.DEFAULT))
