"""The demonstration: a cluster of four virtual nodes, and on it a training job, an array, a dependent job and one that
is cancelled.

Everything is done with the commands that a user would type; each is shown before it runs. Ctrl-C stops the cluster and
removes its directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
LIMIT_SECONDS = 170.0


class Demo:
    """One run in a directory of its own."""

    def __init__(self, root: Path) -> None:
        self.cluster = root / "cluster"
        self.work = root / "work"
        self.work.mkdir()
        for name in ("train.sh", "train.py"):
            shutil.copy(HERE / name, self.work)
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        self.environ["PATH"] = f"{BIN}{os.pathsep}{self.environ.get('PATH', os.defpath)}"
        self.environ["SLURM_CONF"] = str(self.cluster / "etc" / "slurm.conf")
        self.colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.deadline = time.monotonic() + LIMIT_SECONDS

    def say(self, text: str) -> None:
        """A line of the narrator's."""
        print(f"\n\033[1m{text}\033[0m" if self.colour else f"\n== {text}", flush=True)

    def show(self, *words: str) -> str:
        """Type a command, show what it prints, and return that. A failing command ends the demonstration."""
        print(f"\033[32m$\033[0m {' '.join(words)}" if self.colour else f"$ {' '.join(words)}", flush=True)
        done = subprocess.run(words, cwd=self.work, env=self.environ, capture_output=True, text=True, check=False)
        sys.stdout.write(done.stdout + done.stderr)
        sys.stdout.flush()
        if done.returncode != 0:
            raise SystemExit(f"demo: {words[0]} ended with status {done.returncode}")
        return done.stdout

    def submit(self, *words: str) -> str:
        """sbatch; returns the job's number."""
        return self.show("sbatch", *words).split()[-1]

    def quietly(self, *words: str) -> str:
        """A command whose output only the demonstration looks at."""
        done = subprocess.run(words, cwd=self.work, env=self.environ, capture_output=True, text=True, check=False)
        return done.stdout

    def follow(self, job: str) -> None:
        """Print the job's output as it grows, until the job has ended."""
        path = self.work / f"train-{job}.out"
        print(f"\033[32m$\033[0m tail -f {path.name}" if self.colour else f"$ tail -f {path.name}", flush=True)
        position = 0
        while True:
            ended = not self.quietly("squeue", "-h", "-j", job, "-t", "PD,R,CG,CF").strip()
            if path.exists():
                with path.open(encoding="utf-8", errors="replace") as file:
                    file.seek(position)
                    sys.stdout.write(file.read())
                    position = file.tell()
                sys.stdout.flush()
            if ended:
                return
            self.in_time(f"job {job} has not ended")
            time.sleep(0.2)

    def until_empty(self) -> None:
        """Wait for the queue to empty."""
        while self.quietly("squeue", "-h").strip():
            self.in_time("the queue is not empty")
            time.sleep(0.2)

    def in_time(self, complaint: str) -> None:
        """Fail, with the queue as it is, once the limit has passed."""
        if time.monotonic() > self.deadline:
            self.show("squeue", "-t", "all")
            raise SystemExit(f"demo: {complaint} after {LIMIT_SECONDS:.0f} s")

    def run(self) -> None:
        """The story."""
        started_at = time.monotonic()
        self.say("A cluster of four virtual nodes with two GPUs each, with no root and no configuration needed")
        self.show(
            "spritz", "up", "--dir", str(self.cluster), "--nodes", "4", "--cpus", "4", "--memory", "4G", "--gpus", "2"
        )
        self.show("sinfo", "-o", "%P %D %t %c %m %G %N")
        self.say("A training job on two nodes, an array that runs two tasks at a time, a job after both, a mistake")
        train = self.submit("train.sh")
        array = self.submit(
            "--array=0-5%2",
            "--job-name=sweep",
            "--output=sweep-%A_%a.out",
            "--wrap",
            "echo task $SLURM_ARRAY_TASK_ID; sleep 1",
        )
        after = f"--dependency=afterok:{train}:{array}"
        report = self.submit(
            after,
            "--job-name=report",
            "--output=report.out",
            "--wrap",
            "grep -h accuracy train-*.out; cat sweep-*.out | sort",
        )
        mistake = self.submit("--job-name=mistake", "--nodes=4", "--exclusive", "--wrap", "sleep 600")
        self.show("squeue")
        self.show("scancel", mistake)
        self.say("The training job's output, live")
        self.follow(train)
        self.until_empty()
        self.say("The queue is empty; every job's record is kept")
        self.show("squeue", "-t", "all", "-o", "%.10i %.9j %.4t %.10M %.5D %.14N %r")
        self.show("cat", "report.out")
        self.check(train, report, mistake)
        accuracy = self.accuracy(train)
        self.say(f"{accuracy:.1%} test accuracy, trained on two nodes; all took {time.monotonic() - started_at:.0f} s")

    def accuracy(self, train: str) -> float:
        """What the training printed last."""
        lines = (self.work / f"train-{train}.out").read_text(errors="replace").splitlines()
        found = [float(line.split()[-1]) for line in lines if line.startswith("test accuracy")]
        if not found:
            raise SystemExit("demo: the training job printed no accuracy")
        return found[-1]

    def check(self, train: str, report: str, mistake: str) -> None:
        """The records say what was to happen."""
        for job, expected in ((train, "CD"), (report, "CD"), (mistake, "CA")):
            states = set(self.quietly("squeue", "-h", "-t", "all", "-j", job, "-o", "%t").split())
            if states != {expected}:
                raise SystemExit(f"demo: job {job} ended as {states or 'nothing'}, not {expected}")

    def stop(self) -> None:
        """End whatever runs."""
        subprocess.run(
            ["spritz", "down", "--quiet", "--dir", str(self.cluster), "--timeout", "20"], env=self.environ, check=False
        )


def main() -> int:
    """0 when everything went as told."""
    root = Path(tempfile.mkdtemp(prefix="spritz-demo-"))
    demo = Demo(root)
    try:
        demo.run()
    except KeyboardInterrupt:
        print("\nstopping …", flush=True)
        return 130
    finally:
        demo.stop()
        shutil.rmtree(root, ignore_errors=True)
    demo.say("What to type next")
    print("  source .venv/bin/activate")
    print("  spritz up                        # this machine as a cluster; add `--nodes 4` for virtual nodes")
    print("  sbatch examples/demo/train.sh    # or any script of yours")
    print("  squeue, sinfo, scancel, srun …   # as on every Slurm; `spritz --help` for the rest", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
