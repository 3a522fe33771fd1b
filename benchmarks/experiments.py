"""What the experiments layer costs, on a cluster of ours made for it.

    python -m benchmarks.experiments [--rounds 5] [--files 50000] [--runs 100000]

`first line`: from the start of `spritz run` (and of `srun`) to the first line of output, in turns. `snapshot`: of a git
repository with a number of files, the first time and again. `runs`: `spritz runs` as a process over a number of runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from spritz.experiments.code import snapshot
from spritz.experiments.records.store import Store

SPRITZ = [sys.executable, "-c", "from spritz.cli.spritz import entry; entry()"]


def first_line(command: list[str], directory: Path, environment: dict[str, str]) -> float:
    """Seconds until the first line."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    taken = time.perf_counter() - begun
    process.communicate()
    return taken


def measure_first_line(base: Path, rounds: int) -> dict[str, float]:
    """Medians of `srun` and `spritz run`."""
    project = base / "project"
    project.mkdir()
    (project / "hello.py").write_text("print('hello')\n")
    subprocess.run(["git", "init", "-q", "."], cwd=project, check=True)
    lab = base / "lab"
    subprocess.run([*SPRITZ, "up", "--dir", str(lab), "--nodes", "2"], check=True, stdout=subprocess.DEVNULL)
    environment = {
        **os.environ,
        "SLURM_CONF": str(lab / "etc" / "slurm.conf"),
        "SPRITZ_HOME": str(base / "home"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    found: dict[str, list[float]] = {"srun": [], "spritz run": []}
    try:
        for turn in range(rounds + 1):
            times = {
                "srun": first_line(["srun", "python3", "hello.py"], project, environment),
                "spritz run": first_line(["spritz", "run", "--", "python3", "hello.py"], project, environment),
            }
            if turn:  # the first fills caches
                for name, value in times.items():
                    found[name].append(value)
    finally:
        subprocess.run([*SPRITZ, "down", "--dir", str(lab)], check=True, stdout=subprocess.DEVNULL)
    return {name: statistics.median(values) for name, values in found.items()}


def measure_snapshot(base: Path, files: int) -> dict[str, float]:
    """The first snapshot of a committed repository, one after nothing changed, and one after ten files changed."""
    project, store = base / "large", base / "store" / "snapshots.git"
    for number in range(files):
        path = project / f"d{number // 500}" / f"f{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"x = {number}\n" * 20)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0")
    for words in (("init", "-q", "."), ("add", "-A"), ("commit", "-q", "-m", "x"), ("gc", "-q")):
        subprocess.run(["git", *identity, *words], cwd=project, check=True)
    found = {}
    for name in ("first", "again", "changed"):
        if name == "changed":
            for number in range(0, files, max(1, files // 10)):
                (project / f"d{number // 500}" / f"f{number}.py").write_text("changed\n")
        begun = time.perf_counter()
        snapshot.take(project, store)
        found[f"snapshot of {files} files, {name}"] = time.perf_counter() - begun
    return found


def measure_runs(base: Path, count: int, rounds: int) -> dict[str, float]:
    """`spritz runs` over a number of finished runs: the newest twenty, and a search by metric."""
    home = base / "index"
    home.mkdir()
    store = Store(home)
    store.reserve("train", "me", 1.0, home / "runs", "python train.py")
    import sqlite3
    from getpass import getuser

    database = sqlite3.connect(home / "runs.db")
    columns = [row[1] for row in database.execute("PRAGMA table_info(runs)")]
    rows = [
        {
            "name": f"train-{n}", "owner": getuser(), "created_at": float(n),
            "job_id": str(n), "state": "COMPLETED",
            "exit_code": 0, "started_at": float(n), "ended_at": n + 60.0, "branch": f"b{n % 7}",
            "commit_id": f"{n:040x}",
            "tree": f"{n:040x}", "parent": "", "run_group": "",
            "command": f"python train.py --lr {n}", "tags": "[]",
            "metrics": json.dumps({"acc": n % 1000 / 1000}), "directory": str(home / "runs" / f"train-{n}"),
        }
        for n in range(2, count + 2)
    ]  # fmt: skip
    names = [name for name in columns if name in rows[0]]
    database.executemany(
        f"INSERT INTO runs ({', '.join(names)}) VALUES ({', '.join('?' for _ in names)})",
        [[row[name] for name in names] for row in rows],
    )
    database.commit()
    database.close()
    environment = {**os.environ, "SPRITZ_HOME": str(home)}
    found = {}
    for label, words in (("newest", ()), ("by text", ("lr 77777",)), ("by metric", ("--metric", "acc>0.998"))):
        times = []
        for _ in range(rounds):
            begun = time.perf_counter()
            subprocess.run([*SPRITZ, "runs", *words], env=environment, check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - begun)
        found[f"runs over {count}, {label}"] = statistics.median(times)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=100_000)
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="spritz-bench-"))
    try:
        figures = measure_first_line(base, arguments.rounds)
        figures |= measure_snapshot(base, arguments.files)
        figures |= measure_runs(base, arguments.runs, arguments.rounds)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(f"load average {os.getloadavg()[0]:.1f}")
    for name, value in figures.items():
        print(f"{name:40} {value:7.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
