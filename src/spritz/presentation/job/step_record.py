"""A step's record as `scontrol show step` writes it. Source: scontrol(1) show step; order of 22.05."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.ids import STEP_MAX
from spritz.notation.duration import format_minutes
from spritz.notation.ranges import format_ids
from spritz.notation.tres import format as format_tres
from spritz.presentation.job.step_fields import cpus_of, name_of_step, step_hosts, step_label
from spritz.presentation.record import NULL, join, moment

if TYPE_CHECKING:
    from spritz.model.job.step import Step, StepSpec
    from spritz.model.queries.steps import StepView


def record_text(view: StepView, oneliner: bool = False) -> str:
    """The record of `scontrol show step`."""
    step, spec = view.step, view.step.spec
    label = step_label(step.job_id, view.array_job_id, view.array_task_id, step.step_id, view.het_job_id)
    minutes = spec.time_limit_minutes
    lines = [
        f"StepId={label} UserId={step.uid} StartTime={moment(step.started_at)} "
        f"TimeLimit={'UNLIMITED' if minutes is None else format_minutes(minutes)}",
        f"State={step.state.value} Partition={view.partition} NodeList={step_hosts(step.nodes)}",
        f"Nodes={len(step.nodes)} CPUs={cpus_of(step.step_id, step.nodes)} Tasks={step.tasks} "
        f"Name={name_of_step(step.step_id, spec)} Network=(null)",
        f"TRES={(format_tres(sorted(tres(view))) if cpus_of(step.step_id, step.nodes) else '') or '(null)'}",
        f"ResvPorts={format_ids(step.ports) or '(null)'}",
        "CPUFreqReq=Default",
    ]
    if layout := distribution_of(step):
        lines[-1] += f" Dist={layout}"
    lines.append(f"SrunHost:Pid={spec.submit_host or '(null)'}:{spec.client_pid}")
    if spec.container is not None and spec.container.bundle:
        lines.append(f"Container={spec.container.bundle}")
    lines += [f"{title}={text}" for title, text in requested(spec) if text != NULL]
    if spec.submit_line:
        lines.append(f"SubmitLine={spec.submit_line}")
    return join(lines, oneliner)


def distribution_of(step: Step) -> str:
    """How its tasks are laid out; "" for the batch script and other steps without a layout."""
    if step.spec.distribution or step.step_id > STEP_MAX:
        return step.spec.distribution
    # Slurm's default task layout: cyclic if there is a node for each task, else block.
    return "Cyclic" if step.tasks <= len(step.nodes) else "Block"


def requested(spec: StepSpec) -> list[tuple[str, str]]:
    """The requests by GPU, node, socket or task, in the order of Slurm's lines."""
    from spritz.presentation.job.step_fields import bind_text, per_gpu, requests_text

    return [
        ("CpusPerTres", per_gpu(0, spec.cpus_per_gpu)),
        ("MemPerTres", per_gpu(0, spec.memory_mib_per_gpu)),
        ("TresBind", bind_text(0, spec.gpu_bind)),
        ("TresPerStep", requests_text(0, spec.gpus)),
        ("TresPerNode", requests_text(0, spec.gpus_per_node, spec.gres_per_node)),
        ("TresPerSocket", requests_text(0, spec.gpus_per_socket)),
        ("TresPerTask", requests_text(0, spec.gpus_per_task, spec.gres_per_task)),
    ]


def tres(view: StepView) -> list[tuple[str, int]]:
    """Pairs of the TRES that the step holds, summed over its nodes."""
    step = view.step
    sums = {"cpu": 0, "mem": 0, "node": len(step.nodes)}
    for node in step.nodes:
        sums["cpu"] += node.allocation.cpu_count
        sums["mem"] += node.allocation.memory_mib
        for held in node.allocation.gres:
            sums[f"gres/{held.name}"] = sums.get(f"gres/{held.name}", 0) + held.count
            if held.type:
                typed = f"gres/{held.name}:{held.type}"
                sums[typed] = sums.get(typed, 0) + held.count
    return [(name, count) for name, count in sums.items() if count]
