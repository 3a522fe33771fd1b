"""How long does each command take as a whole process: through the command server, without it, and Slurm's own?

python -m benchmarks.commands [--ours DIR] [--before DIR] [--real DIR] [--rounds N] [--pending 1000 10000] [--no-sacct]

One call of each system after the other, so that a noisy minute falls on all of them; medians and ratios at the end.
JSON lines on standard output, the table on standard error.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import shutil
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from .cluster import BenchmarkError, Cluster
from .recorded import Recorded

SUBMITTERS = (1, 4, 16)
SUBMISSIONS = 256
SBATCH = ("sbatch", "-H", "-o", "/dev/null", "--wrap", "true")
#: what people type: such jobs start while others are submitted, and share the machine with that
SBATCH_STARTING = ("sbatch", "-o", "/dev/null", "--wrap", "true")


class System:
    """A cluster, and a way to call its commands."""

    def __init__(self, name: str, cluster: Cluster, **environment: str) -> None:
        self.name = name
        self.cluster = cluster
        self.command = cluster.command
        self.environment = {**cluster.env, **environment}
        self.job = ""

    def call(self, *argv: str) -> float:
        """Milliseconds from before the start of the process to after its end. Raises BenchmarkError if it fails."""
        path = self.command(argv[0])
        words = [argv[0], *(word.replace("{job}", self.job) for word in argv[1:])]
        nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
        began = time.perf_counter()
        pid = os.posix_spawn(path, words, self.environment, file_actions=nothing)
        _, status = os.waitpid(pid, 0)
        ended = time.perf_counter()
        if status:
            raise BenchmarkError(f"{self.name}: {' '.join(words)}: wait status {status}")
        return (ended - began) * 1000

    def submissions_per_second(self, submitters: int, words: tuple[str, ...] = SBATCH) -> float:
        """Jobs a second, submitted by a number of processes at once."""

        def submit() -> None:
            for _ in range(SUBMISSIONS // submitters):
                self.call(*words)

        threads = [threading.Thread(target=submit) for _ in range(submitters)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return SUBMISSIONS / (time.perf_counter() - began)

    def starting_per_second(self, submitters: int) -> float:
        """As `submissions_per_second`, of jobs that start at once. Returns when they have ended."""
        rate = self.submissions_per_second(submitters, SBATCH_STARTING)
        self.cluster.wait_for(lambda: not self.cluster.out("squeue", "-h"), "an empty queue")
        return rate

    def held(self, count: int) -> None:
        """Submit jobs until this number is pending."""
        have = self.cluster.run("squeue", "-h", "-o", "%i").split()
        if len(have) < count:
            have += self.cluster.submit(count - len(have), held=True)
        self.job = have[0]

    def clear(self) -> None:
        """No jobs at all."""
        self.cluster.run("scancel", "-u", self.cluster.env["USER"])
        self.cluster.wait_for(lambda: not self.cluster.out("squeue", "-h"), "an empty queue")


def main(arguments: list[str]) -> int:
    """Status 1 if something could not be measured."""
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    clusters: list[Cluster] = []
    systems: list[System] = []
    try:
        if options.real:
            clusters.append(Cluster("real", options.real))
            clusters[-1].start()
            systems.append(System("real", clusters[-1]))
        for name, binaries in (("before", options.before), ("ours", options.ours)):
            if not binaries:
                continue
            clusters.append(Cluster(name, binaries))
            clusters[-1].start()
            runtime = clusters[-1].directory / "run"
            runtime.mkdir(mode=0o700)
            served = System(name, clusters[-1], XDG_RUNTIME_DIR=str(runtime))
            if _is_launcher(clusters[-1]):
                _warm_up(served, runtime)
                systems.append(served)
            else:
                print("benchmarks: these commands are Python: there was no C compiler", file=sys.stderr)
            direct = "direct" if name == "ours" else f"{name}-direct"
            systems.append(System(direct, clusters[-1], SPRITZ_NO_SERVER="1"))
        if not systems:
            print("benchmarks: nothing to measure: name --ours DIR or --real DIR", file=sys.stderr)
            return 2
        table = _measure(systems, options)
        if not options.no_sacct:
            _measure_sacct(systems, options, table)
        _print(table, [system.name for system in systems])
    except BenchmarkError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    finally:
        for cluster in clusters:
            cluster.stop()
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.commands", description=(__doc__ or "").partition("\n")[0])
    beside = Path(sys.executable).parent
    installed = shutil.which("slurmctld-wlm", path="/usr/sbin:/sbin:" + os.environ["PATH"])
    parser.add_argument("--ours", type=Path, default=beside if (beside / "slurmctld").exists() else None)
    parser.add_argument("--before", type=Path, help="commands of an older version, for comparison")
    parser.add_argument("--real", type=Path, default=Path("/usr/bin") if installed else None)
    parser.add_argument("--no-real", dest="real", action="store_const", const=None)
    parser.add_argument("--rounds", type=int, default=25, help="calls of each command and system")
    parser.add_argument("--no-sacct", action="store_true", help="no clusters with accounting (MariaDB, root)")
    parser.add_argument("--pending", type=int, nargs="*", default=(1000, 10000), help="lengths of the queue")
    return parser.parse_args(arguments)


def _is_launcher(cluster: Cluster) -> bool:
    with open(cluster.command("squeue"), "rb") as file:
        return file.read(4) == b"\x7fELF"


def _warm_up(system: System, runtime: Path) -> None:
    """The first call leaves a server; wait until it listens."""
    system.call("squeue", "--version")
    system.cluster.wait_for(lambda: list(runtime.glob("spritz/commands-*[0-9a-f]")), "a command server")


Table = dict[str, dict[str, float]]


def _in_turns(systems: list[System], title: str, measure: Callable[[System], float], rounds: int, table: Table) -> None:
    values: dict[str, list[float]] = {system.name: [] for system in systems}
    for number in range(rounds + 2):
        for system in systems:
            value = measure(system)
            # The first two are for caches.
            if number > 1:
                values[system.name].append(value)
    table[title] = {name: statistics.median(found) for name, found in values.items()}
    _report(title, table[title], values)


def _measure_sacct(systems: list[System], options: argparse.Namespace, table: Table) -> None:
    """On clusters of their own: those of the other measures keep no records."""
    made: dict[Path, Recorded] = {}
    others: list[System] = []
    try:
        for system in systems:
            binaries = system.cluster.binaries
            if binaries not in made:
                made[binaries] = Recorded(binaries, real=system.name == "real")
                made[binaries].record()
            other = copy.copy(system)
            other.command = made[binaries].command
            other.environment = {**system.environment, "SLURM_CONF": made[binaries].env["SLURM_CONF"]}
            other.job = made[binaries].job
            others.append(other)
        _in_turns(others, "sacct -j N", lambda system: system.call("sacct", "-j", "{job}"), options.rounds, table)
    finally:
        for cluster in made.values():
            cluster.stop()


def _measure(systems: list[System], options: argparse.Namespace) -> Table:
    table: Table = {}

    def ask(title: str, measure: Callable[[System], float], rounds: int = options.rounds) -> None:
        _in_turns(systems, title, measure, rounds, table)

    for system in _clusters(systems):
        system.held(1)
    for system in systems:
        system.job = system.cluster.run("squeue", "-h", "-o", "%i").split()[0]
    for words in (("squeue", "-j", "{job}"), ("sinfo",), ("scontrol", "show", "job", "{job}"), SBATCH):
        ask(" ".join(words[:3]).replace(" {job}", " N"), lambda system, words=words: system.call(*words))  # type: ignore[misc]
    for submitters in SUBMITTERS:
        title = f"submissions/s, {submitters} at once"
        _in_turns(_clusters(systems), title, lambda system, n=submitters: system.submissions_per_second(n), 2, table)  # type: ignore[misc]
    for system in _clusters(systems):
        system.clear()
    for submitters in SUBMITTERS:
        title = f"as these start, {submitters} at once"
        _in_turns(_clusters(systems), title, lambda system, n=submitters: system.starting_per_second(n), 2, table)  # type: ignore[misc]
    for words in (("srun", "-N1", "true"), ("srun", "-N4", "-n4", "hostname")):
        ask(" ".join(words), lambda system, words=words: system.call(*words))  # type: ignore[misc]
    for count in options.pending:
        for system in _clusters(systems):
            system.held(count)
        ask(f"squeue, {count:,} pending", lambda system: system.call("squeue"), max(3, options.rounds // 3))
        ask(f"squeue --json, {count:,} pending", lambda system: system.call("squeue", "--json"), 3)
    return table


def _clusters(systems: list[System]) -> list[System]:
    """One system for each cluster."""
    return [system for system in systems if not system.name.endswith("direct")] or systems


def _report(title: str, medians: dict[str, float], values: dict[str, list[float]]) -> None:
    line: dict[str, object] = {"measure": title, "median": {name: round(value, 3) for name, value in medians.items()}}
    if {"real", "ours"} <= medians.keys():
        line["ratio_ours_to_real"] = round(medians["ours"] / medians["real"], 3)
    line["values"] = {name: [round(value, 3) for value in found] for name, found in values.items()}
    print(json.dumps(line), flush=True)


def _print(table: dict[str, dict[str, float]], names: list[str]) -> None:
    both = {"real", "ours"} <= set(names)
    print(f"{'':32}" + "".join(f"{name:>14}" for name in names) + ("  ours/real" if both else ""), file=sys.stderr)
    for title, cells in table.items():
        line = f"{title:32}" + "".join(f"{cells[name]:14.2f}" if name in cells else f"{'-':>14}" for name in names)
        print(line + (f"{cells['ours'] / cells['real']:11.2f}" if both else ""), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
