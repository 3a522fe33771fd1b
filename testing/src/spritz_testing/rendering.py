"""How what came of a command is written in a transcript: short, stable, complete enough to see every change.

Fields at their default are left out; times are seconds since the world began; masks are ranges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from spritz.model.commands import job as on_job
from spritz.model.commands import step as on_step
from spritz.model.events import Event
from spritz.model.ids import INFINITE, step_name
from spritz.model.job.record import Dependency, Job
from spritz.model.job.step import Step, StepNode
from spritz.model.reasons import Reason
from spritz.model.rejection import Rejection
from spritz.model.resources import Allocation, NodeAllocation, mask_of
from spritz.model.states import JobFlag, NodeFlag
from spritz.notation import ranges

if TYPE_CHECKING:
    from spritz.core.machine import Outcome


def render(outcome: Outcome) -> list[str]:
    """The reply, events and effects of one command."""
    reply = outcome.reply
    lines = []
    if isinstance(reply, Rejection):
        lines = [*(f"! {line}" for line in reply.details), f"! {reply.code}: {reply.text}"]
        if reply.hint:
            lines.append(f"! ({reply.hint})")
    elif reply != on_job.Done():
        lines = render_reply(reply)
    lines += [render_event(event) for event in outcome.events]
    lines += [f"> {render_struct(effect)}" for effect in outcome.effects]
    return lines or ["ok"]


def render_reply(reply: msgspec.Struct) -> list[str]:
    """Some replies have a form of their own."""
    if isinstance(reply, on_job.CancelResult):
        return [f"= {outcome.label} {outcome.code or 'ok'}" for outcome in reply.outcomes] or ["= nothing"]
    if isinstance(reply, on_step.StepCreated):
        return [f"= step {reply.step.job_id}.{step_name(reply.step.step_id)}"]
    return [f"= {render_struct(reply)}"]


def render_event(event: msgspec.Struct) -> str:
    """Kind and fields that say something."""
    return render_struct(event, skip=("at",))


def render_struct(value: msgspec.Struct, skip: tuple[str, ...] = ()) -> str:
    """`Kind field=value …`, without fields that have their default."""
    words = [type(value).__name__]
    for field in msgspec.structs.fields(type(value)):
        content = getattr(value, field.name)
        if field.name in skip or content == field.default:
            continue
        if field.name == "flags":
            kind = NodeFlag if isinstance(value, Event) and type(value).__name__.startswith("Node") else JobFlag
            words.append(f"flags={'+'.join(flag_names(kind, content)) or '0'}")
        else:
            words.append(f"{field.name}={render_value(field.name, content)}")
    return " ".join(words)


def render_value(name: str, value: Any) -> str:
    """A field as transcripts show it: jobs, steps and allocations in a short form, times relative to the start."""
    if isinstance(value, Job):
        return f"({render_job(value)})"
    if isinstance(value, Step):
        return f"({step_name(value.step_id)}: {' '.join(_step_node(node) for node in value.nodes)})"
    if isinstance(value, Allocation):
        return " ".join(_node_share(share) for share in value.nodes) + (" whole" if value.whole_nodes else "")
    if name == "step_id" and isinstance(value, int):
        return step_name(value)
    if name.endswith("_at") and isinstance(value, float):
        return f"{value - 1000:g}s"
    if name == "time_limit_minutes" and value == INFINITE:
        return "UNLIMITED"
    if isinstance(value, msgspec.Struct):
        return f"({render_struct(value)})"
    if isinstance(value, tuple):
        return ",".join(render_value("", item) for item in value) or "()"
    return str(getattr(value, "value", value))


def flag_names(kind: Any, bits: int) -> list[str]:
    return [str(flag.name) for flag in kind if bits & flag]


def _node_share(share: NodeAllocation) -> str:
    text = f"{share.node}:{ranges.format_ids(mask_of(share.cpus))}"
    if share.memory_mib:
        text += f":{share.memory_mib}M"
    for item in share.gres:
        text += f":{item.name}[{ranges.format_ids(mask_of(item.indexes))}]"
    return text


def _step_node(node: StepNode) -> str:
    tasks = ranges.format_ids(node.task_ids)
    text = f"{_node_share(node.allocation)} tasks {tasks}"
    if node.cpus_by_task:
        text += f" bound {'|'.join(ranges.format_ids(mask_of(mask)) for mask in node.cpus_by_task)}"
    if node.gpus_by_task:
        text += f" gpus {'|'.join(ranges.format_ids(mask_of(mask)) for mask in node.gpus_by_task)}"
    return text


def render_job(job: Job) -> str:
    """A job's record on one line; values that most jobs do not have are shown only if set."""
    name = f"{job.array_job_id}_{job.array_task_id}({job.id})" if job.array_task_id is not None else str(job.id)
    if job.array is not None:
        name = f"{job.id}_[{ranges.format_array(mask_of(job.array.pending), job.array.limit)}]"
    words = [name, "+".join([job.state.value, *flag_names(JobFlag, job.flags)])]
    if job.reason is not Reason.NONE:
        words.append(job.reason_detail or job.reason.value)
    if job.hold.value:
        words.append(f"hold={job.hold.value}")
    if job.priority > 1:
        words.append(f"priority={job.priority}")
    if job.allocation is not None:
        words.append(render_value("", job.allocation))
    if job.completing:
        words.append(f"completing={','.join(job.completing)}")
    if job.dependencies:
        words.append(f"waits={','.join(_dependency(item) for item in job.dependencies)}")
    if job.exit_status or job.derived_exit_status:
        words.append(f"exit={job.exit_status >> 8}:{job.exit_status & 0x7F}")
    if job.restart_count:
        words.append(f"restarts={job.restart_count}")
    return " ".join(words)


def _dependency(item: Dependency) -> str:
    text = item.kind
    if item.job_id:
        text += f":{item.job_id}" + (f"_{item.task_id}" if item.task_id is not None else "")
    return text if item.state == "unfulfilled" else f"{text}({item.state})"
