"""What does a sweep cost the controller, compared with a job array of as many tasks? How long is its submission?

python -m benchmarks.sweep [--trials 1000] [--held]

A cluster of ours by `spritz up`; the array's tasks each start one step with srun, as trials do. Processor time is
slurmctld's, from submission to the end of the last task; with --held only the submission is measured. A trial takes
longer than a task of the array, as it checks out its code, so the same work reaches the controller in smaller groups:
`long array` has tasks that wait until they are as long as the trials, and the last line compares the sweep with both.
`requests` (of sdiag) says whether the work was the same. JSON lines on standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPRITZ = [sys.executable, "-c", "from spritz.cli.spritz import entry; entry()"]
#: a question costs the controller as much as part of a task
_LOOK_SECONDS = 5.0
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    """0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--held", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        base = Path(text)
        lab, project = base / "lab", base / "project"
        project.mkdir()
        subprocess.run([*SPRITZ, "up", "--dir", str(lab), "--nodes", "2"], check=True, stdout=subprocess.DEVNULL)
        environment = {
            **os.environ, "SLURM_CONF": str(lab / "etc/slurm.conf"), "SPRITZ_HOME": str(base / "home"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }  # fmt: skip
        try:
            controller = int((lab / "run/slurmctld.pid").read_text())
            slots = _slots(environment)
            spent: dict[str, list[float]] = {}
            for _ in range(2):
                took: dict[str, float] = {}
                for system in ("array", "sweep") if arguments.held else ("array", "sweep", "long array"):
                    longer = (
                        max(0.0, took["sweep"] - took["array"]) * slots / arguments.trials if len(took) > 1 else 0.0
                    )
                    measured = _measure(
                        system, arguments.trials, arguments.held, project, controller, environment, longer
                    )
                    took[system] = measured["all_seconds"]
                    spent.setdefault(system, []).append(measured["controller_processor_seconds"])
                    print(json.dumps({"question": "sweep", "system": system, "trials": arguments.trials, **measured}))
            means = {system: sum(values) / len(values) for system, values in spent.items()}
            ratios = {f"of {system}": round(means["sweep"] / means[system], 2) for system in means if system != "sweep"}
            print(json.dumps({"question": "sweep", "controller_processor_of_sweep": ratios}))
        finally:
            subprocess.run([*SPRITZ, "down", "--dir", str(lab)], check=True, stdout=subprocess.DEVNULL)
    return 0


def _measure(
    system: str,
    trials: int,
    held: bool,
    project: Path,
    controller: int,
    environment: dict[str, str],
    longer_seconds: float,
) -> dict[str, float]:
    """`longer_seconds`: how long a task waits after its step."""
    hold = ["--hold"] if held else []
    if system != "sweep":
        (project / "job.sh").write_text(f"#!/bin/bash\nsrun true\nsleep {longer_seconds:.3f}\n")
        command = ["sbatch", "-o", "/dev/null", f"--array=1-{trials}", *hold, "job.sh"]
    else:
        plan = {"command": "true", "parameters": {"x": {"min": 1, "max": trials}}, "run": {"slurm": hold}}
        (project / "sweep.yaml").write_text(json.dumps(plan))
        command = [*SPRITZ, "sweep", "sweep.yaml"]
    subprocess.run(["sdiag", "-r"], env=environment, check=True, stdout=subprocess.DEVNULL)
    before, began = _processor_seconds(controller), time.monotonic()
    subprocess.run(command, cwd=project, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    submitted = time.monotonic() - began
    while (
        not held
        and subprocess.run(["squeue", "-h", "-o", "%i"], env=environment, check=True, capture_output=True).stdout
    ):
        time.sleep(_LOOK_SECONDS)
    spent = _processor_seconds(controller) - before
    told = subprocess.run(["sdiag"], env=environment, check=True, capture_output=True, text=True).stdout
    requests = {
        name: int(count)
        for name, count in re.findall(
            r"^\s+(REQUEST_\w+)\s+\(.*?count:(\d+)", told.partition("by message type")[2], re.M
        )
    }
    subprocess.run(["scancel", "--me"], env=environment, check=True)
    return {
        "submission_seconds": round(submitted, 3),
        "all_seconds": round(time.monotonic() - began, 1),
        "controller_processor_seconds": round(spent, 2),
        "requests": sum(count for name, count in requests.items() if name != "REQUEST_JOB_INFO"),
    }


def _slots(environment: dict[str, str]) -> int:
    """CPUs of the cluster: as many tasks run at once."""
    told = subprocess.run(["sinfo", "-h", "-o", "%C"], env=environment, check=True, capture_output=True, text=True)
    return int(told.stdout.split("/")[-1])


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    raise SystemExit(main())
