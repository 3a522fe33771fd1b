"""What does a sweep cost the controller, compared with a job array of as many tasks? How long is its submission?

python -m benchmarks.sweep [--trials 1000] [--held]

A cluster of ours by `spritz up`; the array's tasks each start one step with srun, as trials do. Processor time is
slurmctld's, from submission to the end of the last task; with --held only the submission is measured. A trial takes
longer than a task of the array, as it checks out its code, so the same work reaches the controller in smaller groups:
`requests` (of sdiag) says whether it was the same. JSON lines on standard output.
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
            for system in ("array", "sweep") * 2:
                measured = _measure(system, arguments.trials, arguments.held, project, controller, environment)
                print(json.dumps({"question": "sweep", "system": system, "trials": arguments.trials, **measured}))
        finally:
            subprocess.run([*SPRITZ, "down", "--dir", str(lab)], check=True, stdout=subprocess.DEVNULL)
    return 0


def _measure(
    system: str, trials: int, held: bool, project: Path, controller: int, environment: dict[str, str]
) -> dict[str, float]:
    hold = ["--hold"] if held else []
    if system == "array":
        (project / "job.sh").write_text("#!/bin/bash\nsrun true\n")
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


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    raise SystemExit(main())
