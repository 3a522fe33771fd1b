"""Usage of a step's tasks, summed over its nodes. Pure; used where events are stored and by `sstat`.

`TRESUsageInMax` and related fields are lists of `name=number` in base units: cpu in milliseconds, memory and disk in
bytes. Source: sacct(1) TRESUsageIn*, TRESUsageOut*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.node_daemon.reports import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spritz.model.accounting.records import StepRecord
    from spritz.model.node_daemon.reports import Usage

_MIB = 1024 * 1024

#: measures shown for every measured step, even if 0
_MEASURED = {"in": ("cpu", "fs/disk", "mem", "pages", "vmem"), "out": ("fs/disk",)}


def parse(text: str) -> dict[str, str]:
    """Values by name of a TRES usage such as `cpu=10,mem=2048`."""
    return dict(item.split("=", 1) for item in text.split(",")) if text else {}


def write(values: Mapping[str, str | int]) -> str:
    """`name=value` pairs joined by commas, as `parse` reads them."""
    return ",".join([f"{name}={value}" for name, value in values.items()])


def add(step: StepRecord, node: str, used: Usage) -> None:
    """Add one node's report to the step's record."""
    step.user_cpu_seconds += used.cpu_user_seconds
    step.system_cpu_seconds += used.cpu_system_seconds
    if step.node_count > 1:
        node_text = f"{node}:{write(totals(used))}"
        step.usage_nodes = f"{step.usage_nodes};{node_text}" if step.usage_nodes else node_text
    if not (used.energy_joules or used.rss_peak_mib or used.vm_peak_mib or any(map(_seen, used.metrics))):
        # it ended before the first sample: as in Slurm its fields stay empty, since 0 would mean that it used nothing
        return
    if used.metrics:
        measured = used.metrics
        if used.energy_joules:
            joules = used.energy_joules
            measured = (*measured, Metric("energy", joules, joules, 0, joules, 0))
        for way, prefix in (("in", ""), ("out", "out/")):
            # Nodes leave out measures that are 0 for all tasks.
            nothing = Metric("", 0, 0, measured[0].smallest_task, 0, measured[0].smallest_task)
            metrics = dict.fromkeys(_MEASURED[way], nothing) | {
                metric.name.removeprefix("out/"): metric
                for metric in measured
                if metric.name.startswith("out/") == bool(prefix)
            }
            _add_metrics(step, way, node, metrics)
        return
    cpu = round((used.cpu_user_seconds + used.cpu_system_seconds) * 1000)
    incoming = {
        "cpu": cpu,
        "fs/disk": round(used.read_mib * _MIB),
        "mem": round(used.rss_peak_mib * _MIB),
        "pages": used.pages,
        "vmem": round(used.vm_peak_mib * _MIB),
    }
    if used.energy_joules:
        incoming["energy"] = used.energy_joules
    written = round(used.written_mib * _MIB)
    if not (written or any(incoming.values())) and not step.usage_in_tot:
        return  # a node that was lost or never ran has no report
    _add(step, "in", node, incoming)
    _add(step, "out", node, {"fs/disk": written})


def _seen(metric: Metric) -> bool:
    """A process that was sampled has memory."""
    return metric.total > 0 and metric.name.removeprefix("out/") not in ("cpu", "fs/disk", "pages")


def totals(used: Usage) -> dict[str, int]:
    """Usage of all tasks of a node together: cpu, mem, and gres/gpumem, gres/gpuutil if known."""
    sums = {
        "cpu": round((used.cpu_user_seconds + used.cpu_system_seconds) * 1000),
        "mem": round(used.rss_peak_mib * _MIB),
    }
    for metric in used.metrics:
        if metric.name in ("cpu", "mem", "gres/gpumem", "gres/gpuutil"):
            sums[metric.name] = metric.total
    return sums


def of_nodes(step: StepRecord) -> dict[str, dict[str, int]]:
    """The usage on each node, as far as it is known."""
    by_node: dict[str, dict[str, int]] = {}
    for item in step.usage_nodes.split(";") if step.usage_nodes else ():
        node, _, text = item.partition(":")
        by_node[node] = {name: int(value) for name, value in parse(text).items()}
    if not by_node and step.node_count == 1 and step.usage_in_tot:
        by_node[step.nodes] = {name: int(value) for name, value in parse(step.usage_in_tot).items()}
    return by_node


def _add_metrics(step: StepRecord, way: str, node: str, metrics: dict[str, Metric]) -> None:
    """Add measures that are given by task."""
    total = {name: int(value) for name, value in parse(getattr(step, f"usage_{way}_tot")).items()}
    for name, metric in metrics.items():
        total[name] = total.get(name, 0) + metric.total
    setattr(step, f"usage_{way}_tot", write(total))
    largest = {name: (metric.largest, metric.largest_task) for name, metric in metrics.items()}
    smallest = {name: (metric.smallest, metric.smallest_task) for name, metric in metrics.items()}
    _bound(step, f"usage_{way}_max", node, largest, int.__gt__)
    _bound(step, f"usage_{way}_min", node, smallest, int.__lt__)


def _add(step: StepRecord, way: str, node: str, values: dict[str, int]) -> None:
    # nearly all steps: the only node that reports has everything
    if not getattr(step, f"usage_{way}_tot"):
        text = write(values)
        where, tasks = write(dict.fromkeys(values, node)), write(dict.fromkeys(values, 0))
        prefix = f"usage_{way}"
        setattr(step, f"{prefix}_tot", text)
        for bound in ("max", "min"):
            setattr(step, f"{prefix}_{bound}", text)
            setattr(step, f"{prefix}_{bound}_node", where)
            setattr(step, f"{prefix}_{bound}_task", tasks)
        return
    total = {name: int(value) for name, value in parse(getattr(step, f"usage_{way}_tot")).items()}
    for name, value in values.items():
        total[name] = total.get(name, 0) + value
    setattr(step, f"usage_{way}_tot", write(total))
    for bound, better in (("max", int.__gt__), ("min", int.__lt__)):
        _bound(step, f"usage_{way}_{bound}", node, {name: (value, 0) for name, value in values.items()}, better)


def _bound(
    step: StepRecord, column: str, node: str, values: dict[str, tuple[int, int]], better: Callable[[int, int], bool]
) -> None:
    known = parse(getattr(step, column))
    where, tasks = parse(getattr(step, f"{column}_node")), parse(getattr(step, f"{column}_task"))
    for name, (value, task) in values.items():
        if name not in known or better(value, int(known[name])):
            known[name], where[name], tasks[name] = str(value), node, str(task)
    setattr(step, column, write(known))
    setattr(step, f"{column}_node", write(where))
    setattr(step, f"{column}_task", write(tasks))


def average(step: StepRecord) -> None:
    """Compute averages once all nodes have reported."""
    for way in ("in", "out"):
        text = getattr(step, f"usage_{way}_tot")
        tasks = step.tasks
        if tasks <= 1:
            setattr(step, f"usage_{way}_ave", text)
            continue
        total = parse(text)
        setattr(step, f"usage_{way}_ave", write({name: int(value) // tasks for name, value in total.items()}))
