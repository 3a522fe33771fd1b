"""Conversations with the core as text (`conversation`): what came of a command is its reply (`=`), or `!` and the
refusal, events, and `>` effects.

Commands: `name argument … key=value …`; see `COMMANDS`. Values are read as by `literal`: numbers, `yes`, `no`,
`none`, lists with commas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from spritz.model.cluster.settings import Caller, ClusterSettings
from spritz.model.commands import cluster as on_cluster
from spritz.model.commands import job as on_job
from spritz.model.commands import step as on_step
from spritz.model.ids import STEP_BATCH, STEP_EXTERN, STEP_INTERACTIVE
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Dependency, EndSignal
from spritz.model.job.step import StepSpec
from spritz.model.node.partition import Partition
from spritz.model.node_daemon.reports import StepFinished, StepStarted, TaskEnd
from spritz.model.plan import PendingNote, Plan, PlannedStart
from spritz.model.reasons import Reason
from spritz.model.resources import Allocation, GresAllocation, GresRequest, NodeAllocation
from spritz.model.states import NodeFlag
from spritz.notation import dependency, ranges
from spritz_testing import conversation
from spritz_testing.builders import ALICE, BOB, ROOT, World, capacity, job_spec, task_mask
from spritz_testing.conversation import words_of
from spritz_testing.rendering import flag_names, render, render_event, render_job, render_struct

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


CALLERS = {"alice": ALICE, "bob": BOB, "root": ROOT}
_STEPS = {"batch": STEP_BATCH, "extern": STEP_EXTERN, "interactive": STEP_INTERACTIVE}


class Transcript:
    """Runs one file's commands on a world of their own."""

    def __init__(self) -> None:
        self.world = World()

    def command(self, line: str) -> list[str]:
        """What one command leads to, as lines."""
        caller = ALICE
        if line.split()[0].endswith(":"):
            name, _, line = line.partition(":")
            caller = CALLERS[name]
        (verb, *plain), named = words_of(line)
        return COMMANDS[verb](self, caller, plain, named)

    def send(self, command: msgspec.Struct, caller: Caller) -> list[str]:
        """Send a command to the machine and say what came."""
        return render(self.world.do(command, caller))


def run_file(path: Path, *, bless: bool) -> None:
    """Run a transcript in a world of its own, whose invariants are checked at its end."""
    transcript = Transcript()
    conversation.run_file(path, transcript, bless=bless)
    transcript.world.check()


# -- values


def literal(text: str) -> Any:
    """`3`, `1.5`, `yes`, `none`, `a,b` (a list), or the text itself."""
    if text in ("yes", "no", "none"):
        return {"yes": True, "no": False, "none": None}[text]
    if "," in text:
        return tuple(part for part in text.split(",") if part)
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def target(text: str) -> JobTarget:
    """Parse a target such as `12`, `12_3`, `12_[3-5]` or `12.0`."""
    text, _, step = text.partition(".")
    number, _, tasks = text.partition("_")
    mask = task_mask(list(ranges.ids_of(ranges.parse_ids(tasks.strip("[]"))))) if tasks else ""
    return JobTarget(int(number), tasks=mask, step_id=_step_id(step) if step else None)


def _step_id(text: str) -> int:
    return _STEPS[text] if text in _STEPS else int(text)


def _spec_fields(named: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, text in named.items():
        if name == "dependency":
            items, mode = dependency.parse(text)
            fields["dependencies"] = tuple(
                Dependency(kind=item.kind, job_id=item.job_id, task_id=item.task_id, minutes=item.minutes)
                for item in items
            )
            fields["dependency_mode"] = mode
        elif name in ("gpus", "gpus_per_node", "gpus_per_task", "gres_per_node"):
            fields[name] = tuple(_gres(part) for part in text.split(","))
        elif name == "signal":
            number, _, seconds = text.partition("@")
            fields["end_signal"] = EndSignal(
                signal=int(number.removeprefix("B:")), seconds=int(seconds or 60), batch=number.startswith("B:")
            )
        elif name in ("partitions", "node_list", "exclude", "argv"):
            fields[name] = tuple(text.split(","))
        elif name in ("array", "name", "gpu_bind", "cpu_bind", "distribution", "features", "licenses"):
            fields[name] = text
        else:
            fields[name] = literal(text)
    if "nodes_min" in fields:
        fields.setdefault("nodes_given", True)
    if "tasks" in fields:
        fields.setdefault("tasks_given", True)
    return fields


def _gres(text: str) -> GresRequest:
    parts = text.split(":")
    if len(parts) == 1:
        return GresRequest("gpu", "", int(parts[0]))
    return GresRequest(parts[0], parts[1] if len(parts) > 2 else "", int(parts[-1]))


def _share(world: World, text: str) -> NodeAllocation:
    """`n1` (one free CPU), `n1:4` (four), `n1:4:500` (and memory), `n1:4:500:0-1` (and GPUs)."""
    name, *rest = text.split(":")
    share = world.free_share(name, int(rest[0]) if rest else 1)
    memory = int(rest[1]) if len(rest) > 1 else 0
    gres: tuple[GresAllocation, ...] = ()
    if len(rest) > 2:
        mask = ranges.parse_ids(rest[2])
        gres = (GresAllocation(name="gpu", count=mask.bit_count(), indexes=format(mask, "x")),)
    return NodeAllocation(node=name, cpus=share.cpus, memory_mib=memory, gres=gres)


# -- commands


def _cluster(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    """cluster nodes=N cpus= memory= gpus= and settings: a new world."""
    del caller
    hardware = {key: int(named.pop(key)) for key in ("cpus", "memory_mib", "gpus", "sockets") if key in named}
    count = int(named.pop("nodes", "4"))
    features = tuple(named.pop("features", "").split(",")) if "features" in named else ()
    settings = ClusterSettings(gres_types=("gpu",), **{name: literal(text) for name, text in named.items()})
    partitions = tuple(_partition(text, count) for text in plain) or None
    run.world = World(
        nodes=count, hardware=capacity(**hardware), settings=settings, partitions=partitions, features=features
    )
    return ["ok"]


def _partition(text: str, count: int) -> Partition:
    """`debug`, `long:max_time_minutes=60:state=DOWN`; the first one named debug is the default."""
    name, *pairs = text.split(":")
    fields = {key: literal(value) for key, _, value in (pair.partition("=") for pair in pairs)}
    nodes = fields.pop("nodes", tuple(f"n{number}" for number in range(1, count + 1)))
    nodes = (nodes,) if isinstance(nodes, str) else nodes
    return msgspec.convert({"name": name, "nodes": nodes, "default": name == "debug", **fields}, Partition)


def _submit(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    fields = _spec_fields(named)
    for name in ("begin_at", "deadline_at"):
        if name in fields:
            fields[name] += run.world.now  # given as seconds from now
    test_only = "test_only" in plain
    immediate = fields.pop("immediate", None)
    spec = job_spec(**fields)
    command = on_job.SubmitJob(
        spec=spec, script=b"#!" if spec.batch else b"", test_only=test_only, immediate_seconds=immediate
    )
    return run.send(command, caller)


def _plan(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    """plan 1 n1:2 n2:2 [partition=debug]; a task of an array as 5_3."""
    del caller
    number, _, task = plain[0].partition("_")
    job = run.world.state.jobs.get(int(number))
    partition = named.get("partition", job.partition if job else "debug")
    allocation = Allocation(
        partition=partition,
        nodes=tuple(_share(run.world, text) for text in plain[1:]),
        whole_nodes=named.get("whole") == "yes",
    )
    start = PlannedStart(job_id=int(number), task_id=int(task) if task else None, allocation=allocation)
    return run.send(on_cluster.ApplyPlan(plan=Plan(starts=(start,))), ROOT)


def _note(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    del caller
    notes = tuple(
        PendingNote(job_id=int(number), reason=Reason(named["reason"]), detail=named.get("detail", ""))
        for number in plain
    )
    return run.send(on_cluster.ApplyPlan(plan=Plan(notes=notes)), ROOT)


def _report(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    """started 1 n1 [step=0], finished 1 n1 [step=0] [exit=N] [signal=N] [oom=yes] [gone=yes] [life=N]."""
    del caller
    what, number, node = plain
    job = run.world.state.jobs.get(int(number))
    life = int(named.get("life", job.restart_count if job else 0))
    step_id = _step_id(named.get("step", "batch"))
    if what == "started":
        started = StepStarted(
            node=node, job_id=int(number), restart_count=life, step_id=step_id, started_at=run.world.now
        )
        return run.send(started, ROOT)
    status = int(named.get("exit", "0")) << 8 | int(named.get("signal", "0"))
    return run.send(
        StepFinished(
            node=node,
            job_id=int(number),
            restart_count=life,
            step_id=step_id,
            ended_at=run.world.now,
            tasks=(TaskEnd(0, status),),
            oom=named.get("oom") == "yes",
            job_gone=named.get("gone") == "yes",
            launch_failed="launch_failed" in named,
            error_kind=named.get("launch_failed", ""),
        ),
        ROOT,
    )


def _gone(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    del caller, named
    return render(run.world.gone(int(plain[0]), *plain[1:]))


def _cancel(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    options = {name: literal(text) for name, text in named.items() if name in ("signal", "batch", "full", "hurry")}
    filters: dict[str, Any] = {name: (literal(text),) for name, text in named.items() if name not in options}
    targets = tuple(target(text) for text in plain)
    return run.send(on_job.CancelJobs(filter=JobFilter(targets=targets, **filters), **options), caller)


def _of_target(kind: Callable[..., msgspec.Struct]) -> Callable[..., list[str]]:
    def command(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
        fields = {name: literal(text) for name, text in named.items()}
        return run.send(kind(target=target(plain[0]), **fields), caller)

    return command


def _top(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    del named
    return run.send(on_job.TopJob(targets=tuple(target(text) for text in plain)), caller)


def _update(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    changes = _spec_fields(named)
    changes.pop("nodes_given", None)
    for name in ("begin_at", "deadline_at", "end_at"):
        if name in changes:
            changes[name] += run.world.now
    return run.send(on_job.UpdateJob(target=target(plain[0]), changes=msgspec.to_builtins(changes)), caller)


def _finish(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    status = int(named.get("exit", "0")) << 8
    return run.send(on_job.FinishAllocation(job_id=int(plain[0]), exit_status=status), caller)


def _step(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    fields = _spec_fields(named)
    fields.pop("nodes_given", None)
    fields.pop("tasks_given", None)
    return run.send(on_step.CreateStep(job_id=int(plain[0]), spec=StepSpec(**fields)), caller)


def _signal_step(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    where = target(plain[0])
    return run.send(
        on_step.SignalStep(
            job_id=where.job_id,
            step_id=where.step_id or 0,
            signal=int(named.get("signal", "0")),
            terminate=named.get("terminate") == "yes",
        ),
        caller,
    )


def _node(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    state, reason = named.pop("state", ""), named.pop("reason", "")
    changes = {name: literal(text) for name, text in named.items()}
    return run.send(on_cluster.UpdateNode(names=tuple(plain), state=state, reason=reason, changes=changes), caller)


def _register(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    """register n1 [running=1.0.batch,1.0.0] [memory_mib=…] [cpus=…] [booted=seconds ago] [boot_id=…]."""
    del caller
    running = []
    for text in named.get("running", "").split(","):
        if text:
            job_id, life, step = text.split(".")
            running.append((int(job_id), int(life), _step_id(step)))
    fields: dict[str, Any] = {}
    hardware = {key: int(named[key]) for key in ("cpus", "memory_mib", "gpus") if key in named}
    if hardware:
        fields["capacity"] = capacity(**hardware)
    if "booted" in named:
        fields["booted_at"] = run.world.now - float(named["booted"])
    if "boot_id" in named:
        fields["boot_id"] = named["boot_id"]
    return render(run.world.register(plain[0], running, **fields))


def _lost(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    del caller, named
    return render(run.world.lose(*plain))


def _advance(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    """advance SECONDS: time passes; what falls due happens."""
    del caller, named
    world = run.world
    count = len(world.events)
    effects = world.advance(float(plain[0]))
    return [
        *(f"{event.at - 1000:g}s {render_event(event)}" for event in world.events[count:]),
        *(f"> {render_struct(effect)}" for effect in effects),
    ]


def _show(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    """show [job …]: one line for each record."""
    del caller, named
    state = run.world.state
    numbers = [int(text) for text in plain] or list(state.jobs)
    return [render_job(state.jobs[number]) for number in numbers]


def _show_nodes(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    del caller, named
    lines = []
    for name in plain or run.world.state.nodes:
        node, use = run.world.state.nodes[name], run.world.state.uses[name]
        words = [node.name, "+".join([node.state.value, *flag_names(NodeFlag, node.flags)])]
        if node.reason:
            words.append(f"reason={node.reason!r}")
        if use.jobs:
            words.append(f"cpus={ranges.format_ids(use.cpus)} jobs={','.join(map(str, use.jobs))}")
        lines.append(" ".join(words))
    return lines


def _effects(run: Transcript, caller: Caller, plain: list[str], named: dict[str, str]) -> list[str]:
    """effects [node]: what would be asked again after a restart."""
    del caller, named
    return [f"> {render_struct(effect)}" for effect in run.world.machine.pending_effects(plain[0] if plain else None)]


COMMANDS: dict[str, Callable[[Transcript, Caller, list[str], dict[str, str]], list[str]]] = {
    "cluster": _cluster,
    "submit": _submit,
    "plan": _plan,
    "note": _note,
    "report": _report,
    "gone": _gone,
    "cancel": _cancel,
    "hold": _of_target(on_job.HoldJob),
    "release": _of_target(on_job.ReleaseJob),
    "requeue": _of_target(on_job.RequeueJob),
    "suspend": _of_target(on_job.SuspendJob),
    "resume": _of_target(on_job.ResumeJob),
    "notify": _of_target(on_job.NotifyJob),
    "top": _top,
    "update": _update,
    "finish": _finish,
    "step": _step,
    "signal-step": _signal_step,
    "node": _node,
    "register": _register,
    "lost": _lost,
    "advance": _advance,
    "show": _show,
    "nodes": _show_nodes,
    "effects": _effects,
}
