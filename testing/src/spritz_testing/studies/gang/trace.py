"""Gang jobs of a GPU cluster: each needs all its GPUs at the same time.

The header line tells which of three forms a file has. The Muri form names `num_gpu, submit_time` (ms), `iterations`,
`model_name` and `iteration_time` (ms); a job runs for iterations x iteration_time x 1.015, and pays its model's restart
cost whenever a preemptive policy looks at it again. The ITP form names `num_gpu, submission_time, duration` in seconds,
the Philly form `timestamp` (a date and time), `duration` (seconds) and `num_gpus`.

Source: Zhao et al., "Multi-resource interleaving for deep learning training" (Muri), SIGCOMM'22, and the traces
published with it; Gu et al., ElasticFlow, ASPLOS'23; Jeon et al., ATC'19 (Philly).
"""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct, field

from spritz.sim.trace.files import lines
from spritz.sim.trace.workload import SECONDS_MAX, RowCount, TraceError, count_row, remark_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Factor by which Muri's simulator multiplies every iteration's time.
ITERATION_FACTOR = 1.015

#: Seconds to save and restore a job, by model, for 1, 2, 4, 8, 16 and 32 GPUs: measurements of the Muri study.
RESTART_SECONDS: dict[str, tuple[int, int, int, int, int, int]] = {
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "bert": (10, 10, 10, 10, 10, 10),
    "gpt2": (10, 10, 10, 10, 10, 10),
    "a2c": (38, 39, 39, 46, 46, 46),
    "dqn": (5, 5, 6, 6, 8, 8),
}

#: Seconds for a model that the study did not measure.
RESTART_SECONDS_OTHERWISE = 10

MURI = ("num_gpu", "submit_time", "iterations", "iteration_time")
ITP = ("num_gpu", "submission_time", "duration")
PHILLY = ("timestamp", "duration", "num_gpus")


class GangJobs(Struct, kw_only=True):
    """Jobs in order of submission. Times are seconds; `unit` is the time of one iteration."""

    job: list[str] = field(default_factory=list)
    submit: list[float] = field(default_factory=list)
    gpus: list[int] = field(default_factory=list)
    iterations: list[float] = field(default_factory=list)
    unit: list[float] = field(default_factory=list)
    restart: list[float] = field(default_factory=list)
    model: list[str] = field(default_factory=list)
    skipped: dict[str, RowCount] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.job)

    def remarks(self) -> list[str]:
        """One line for each reason for which rows were left out."""
        return remark_lines(self.skipped)

    def in_order(self) -> GangJobs:
        """Sorted by time of submission; jobs submitted at the same time keep their order."""
        order = sorted(range(len(self)), key=self.submit.__getitem__)
        return GangJobs(
            job=[self.job[i] for i in order],
            submit=[self.submit[i] for i in order],
            gpus=[self.gpus[i] for i in order],
            iterations=[self.iterations[i] for i in order],
            unit=[self.unit[i] for i in order],
            restart=[self.restart[i] for i in order],
            model=[self.model[i] for i in order],
            skipped=self.skipped,
        )


def read_gang(path: str, gpus_max: int) -> GangJobs:
    """Read a gang trace, plain or gzip; jobs of more than `gpus_max` GPUs are skipped.

    Raises TraceError for a file of another form, or without a usable job.
    """
    jobs = parse_gang(lines(path), gpus_max, path)
    if not len(jobs):
        raise TraceError(f"{path}: no job that can be replayed", "; ".join(jobs.remarks()))
    return jobs


def parse_gang(rows: Iterable[str], gpus_max: int, name: str = "trace") -> GangJobs:
    """Parse lines; the first names the columns."""
    reader = csv.DictReader(rows)
    columns = tuple(reader.fieldnames or ())
    muri = all(column in columns for column in MURI)
    philly = all(column in columns for column in PHILLY)
    if not muri and not philly and not all(column in columns for column in ITP):
        forms = " or ".join(", ".join(form) for form in (MURI, ITP, PHILLY))
        raise TraceError(f"{name}: the columns {forms} are needed, this has {', '.join(columns)[:200]}")
    size = "num_gpus" if philly else "num_gpu"
    jobs = GangJobs()
    for row in reader:
        try:
            gpus = int(row[size])
            if philly:
                submit = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp()
            else:
                submit = float(row["submit_time"]) / 1000 if muri else float(row["submission_time"])
            iterations = float(row["iterations"]) if muri else float(row["duration"])
            unit = float(row["iteration_time"]) * ITERATION_FACTOR / 1000 if muri else 1.0
        except (TypeError, ValueError, KeyError):
            count_row(jobs.skipped, "a missing field, or one that is no number", reader.line_num)
            continue
        why = _unusable(gpus, submit, iterations * unit, gpus_max)
        if why:
            count_row(jobs.skipped, why, reader.line_num)
            continue
        model = (row.get("model_name") or "") if muri else ""
        jobs.job.append(row.get("job_id") or str(reader.line_num - 2))
        jobs.submit.append(submit)
        jobs.gpus.append(gpus)
        jobs.iterations.append(iterations)
        jobs.unit.append(unit)
        jobs.restart.append(restart_seconds(model, gpus) if muri else 0.0)
        jobs.model.append(model)
    return jobs.in_order()


def restart_seconds(model: str, gpus: int) -> float:
    """Seconds to save and restore a job of this model on this number of GPUs."""
    measured = RESTART_SECONDS.get(model)
    if measured is None or gpus not in (1, 2, 4, 8, 16, 32):
        return float(RESTART_SECONDS_OTHERWISE)
    return float(measured[gpus.bit_length() - 1])


def _unusable(gpus: int, submit: float, run: float, gpus_max: int) -> str:
    if not (abs(submit) < SECONDS_MAX and abs(run) < SECONDS_MAX):
        return "a time beyond all bounds"
    if submit < 0:
        return "submitted at a negative time"
    if run <= 0:
        return "no run time"
    if gpus <= 0:
        return "no GPUs"
    if gpus > gpus_max:
        return f"asks for more than {gpus_max} GPUs"
    return ""
