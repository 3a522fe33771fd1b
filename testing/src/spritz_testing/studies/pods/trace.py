"""Pods that ask for shares of GPUs, and the nodes that they run on, in the form of Alibaba's openb lists.

Pods: `name, cpu_milli, memory_mib, num_gpu, gpu_milli`, and optionally `gpu_spec` (accepted models, `|` between them).
Nodes: `sn, cpu_milli, memory_mib, gpu, model`. Times in the lists are not used: the study fills an empty cluster until
a given share of its capacity has been asked for.

Source: Weng et al. (FGD), USENIX ATC'23; alibaba/clusterdata, cluster-trace-gpu-v2023.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.sim.trace.files import lines
from spritz.sim.trace.workload import RowCount, TraceError, count_row

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Largest plausible number; a larger one in a list is an error.
AMOUNT_MAX = 1 << 40
GPUS_MAX = 64


class Pod(Struct, frozen=True, kw_only=True, gc=False):
    """A request: CPUs and each GPU's share in thousandths; empty `models` means any."""

    name: str
    cpu: int
    memory_mib: int
    gpus: int
    milli: int
    models: tuple[str, ...] = ()


class PodNode(Struct, frozen=True, kw_only=True, gc=False):
    """A machine; `model` is "" if it has no GPUs."""

    name: str
    cpu: int
    memory_mib: int
    gpus: int
    model: str


def read_pods(path: str) -> tuple[list[Pod], dict[str, RowCount]]:
    """The pods of a list, and the skipped rows by reason. Raises TraceError for another form, or without a
    usable pod.
    """
    skipped: dict[str, RowCount] = {}
    pods = []
    for line, row in _rows(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")):
        try:
            amounts = [int(row[key]) for key in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")]
        except (TypeError, ValueError):
            count_row(skipped, "a missing field, or one that is no number", line)
            continue
        cpu, memory, gpus, milli = amounts
        if min(amounts) < 0 or max(amounts) > AMOUNT_MAX or gpus > GPUS_MAX:
            count_row(skipped, "an amount out of bounds", line)
            continue
        if gpus and not 0 < milli <= 1000:
            count_row(skipped, "a share of a GPU that is not within 1 to 1000 thousandths", line)
            continue
        if gpus > 1 and milli < 1000:
            count_row(skipped, "shares of several GPUs", line)
            continue
        models = tuple(sorted(set((row.get("gpu_spec") or "").split("|")) - {""}))
        pods.append(
            Pod(name=row["name"], cpu=cpu, memory_mib=memory, gpus=gpus, milli=milli if gpus else 0, models=models)
        )
    if not any(pod.gpus for pod in pods):
        raise TraceError(f"{path}: no pod that asks for a GPU")
    return pods, skipped


def read_nodes(path: str) -> list[PodNode]:
    """The nodes of a list. Raises TraceError for another form, a bad row, or a list without a GPU."""
    nodes = []
    for line, row in _rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        try:
            cpu, memory, gpus = int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"])
        except (TypeError, ValueError) as error:
            raise TraceError(f"{path}: line {line}: a missing field, or one that is no number") from error
        if min(cpu, memory, gpus) < 0 or max(cpu, memory) > AMOUNT_MAX or gpus > GPUS_MAX:
            raise TraceError(f"{path}: line {line}: an amount out of bounds")
        nodes.append(
            PodNode(name=row["sn"], cpu=cpu, memory_mib=memory, gpus=gpus, model=(row["model"] or "") if gpus else "")
        )
    if not any(node.gpus for node in nodes):
        raise TraceError(f"{path}: no node with a GPU")
    return nodes


def _rows(path: str, columns: tuple[str, ...]) -> Iterable[tuple[int, dict[str, str]]]:
    reader = csv.DictReader(lines(path))
    header = tuple(reader.fieldnames or ())
    missing = [column for column in columns if column not in header]
    if missing:
        raise TraceError(f"{path}: no column {', '.join(missing)}; this has {', '.join(header)[:200]}")
    for row in reader:
        yield reader.line_num, row
