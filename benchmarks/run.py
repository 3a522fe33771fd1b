"""Ask every question of one system or of two in turns, and print JSON lines, then a table.

python -m benchmarks --ours .venv/bin --real /usr/bin [--tuned] [--only NAME ...] [--rounds N] [--jobs N]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import signal
import statistics
import sys
from pathlib import Path
from types import ModuleType

from .cluster import BenchmarkError, Cluster

QUESTIONS = (
    "startup",
    "srun_one",
    "srun_four",
    "steps",
    "first_line",
    "throughput",
    "long_queue",
    "durability",
    "pending",
)
#: These are long and their answers steady: once is enough.
ROUNDS = {"pending": 1, "long_queue": 1, "first_line": 7}
DEFAULT_ROUNDS = 3


def main(arguments: list[str]) -> int:
    """Run what is asked for; status 1 if a question could not be answered."""
    options = parse(arguments)
    # A terminated run takes its clusters with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    clusters = [Cluster("ours", options.ours)] if options.ours else []
    if options.real:
        clusters.append(Cluster("real", options.real))
        if options.tuned:
            clusters.append(Cluster("real-tuned", options.real))
    if not clusters:
        print("benchmarks: nothing to measure: name --ours DIR or --real DIR", file=sys.stderr)
        return 2
    try:
        for cluster in clusters:
            cluster.start()
        table, failed = ask_all(clusters, options)
    finally:
        for cluster in clusters:
            cluster.stop()
    print_table(table, [cluster.name for cluster in clusters])
    return 1 if failed else 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=(__doc__ or "").partition("\n")[0])
    beside = Path(sys.executable).parent
    installed = shutil.which("slurmctld-wlm", path="/usr/sbin:/sbin:" + os.environ["PATH"])
    parser.add_argument("--ours", type=Path, default=beside if (beside / "slurmctld").exists() else None)
    parser.add_argument("--real", type=Path, default=Path("/usr/bin") if installed else None)
    parser.add_argument("--no-ours", dest="ours", action="store_const", const=None)
    parser.add_argument("--no-real", dest="real", action="store_const", const=None)
    parser.add_argument("--tuned", action="store_true", help="also Slurm with its scheduler set for short jobs")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=QUESTIONS)
    parser.add_argument("--rounds", type=int, help="how often each question is asked of each system")
    parser.add_argument("--jobs", type=int, help="pending jobs in `pending` (10000)")
    return parser.parse_args(arguments)


def ask_all(clusters: list[Cluster], options: argparse.Namespace) -> tuple[dict[str, dict[str, float]], bool]:
    """Medians by measure and system; the systems take turns, so that a noisy minute falls on both."""
    table: dict[str, dict[str, float]] = {}
    failed = False
    for name in options.only:
        question = importlib.import_module(f"benchmarks.{name}")
        if name == "pending" and options.jobs:
            question.JOBS = options.jobs  # type: ignore[attr-defined]
        values: dict[tuple[str, str], list[float]] = {}
        for _ in range(options.rounds or ROUNDS.get(name, DEFAULT_ROUNDS)):
            for cluster in clusters:
                try:
                    for measure, value in question.measure(cluster).items():
                        values.setdefault((measure, cluster.name), []).append(value)
                except BenchmarkError as error:
                    failed = True
                    print(json.dumps({"question": name, "system": cluster.name, "error": str(error)}), flush=True)
        report(name, question, values, table)
    return table, failed


def report(
    name: str, question: ModuleType, values: dict[tuple[str, str], list[float]], table: dict[str, dict[str, float]]
) -> None:
    """One JSON line for each measure and system, and one for the ratio of ours to real."""
    for (measure, system), found in values.items():
        line = {"question": name, "measure": measure, "unit": question.UNIT, "better": question.BETTER}
        line |= {"system": system, "median": round(statistics.median(found), 3)}
        print(json.dumps(line | {"values": [round(value, 3) for value in found]}), flush=True)
        row = table.setdefault(f"{name}: {measure}" + (f" ({question.UNIT})" if question.UNIT else ""), {})
        row[system] = statistics.median(found)
    for measure in dict.fromkeys(measure for measure, _ in values):
        ours, real = values.get((measure, "ours")), values.get((measure, "real"))
        if ours and real and statistics.median(real):
            ratio = round(statistics.median(ours) / statistics.median(real), 3)
            print(json.dumps({"question": name, "measure": measure, "ratio_ours_to_real": ratio}), flush=True)


def print_table(table: dict[str, dict[str, float]], systems: list[str]) -> None:
    """A table for people, on standard error."""
    width = max((len(row) for row in table), default=0)
    both = {"ours", "real"} <= set(systems)
    heads = "".join(f"{system:>12}" for system in systems) + ("   ours/real" if both else "")
    print(f"{'':{width}}{heads}", file=sys.stderr)
    for row, cells in table.items():
        line = "".join(f"{cells[system]:12.2f}" if system in cells else f"{'-':>12}" for system in systems)
        if both and {"ours", "real"} <= set(cells) and cells["real"]:
            line += f"{cells['ours'] / cells['real']:12.2f}"
        print(f"{row:{width}}{line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
