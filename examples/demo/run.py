"""The demonstration: a cluster of four virtual nodes, on it a training job, an array, a dependent job and one that is
cancelled; then a training that is tracked, paused, resumed and swept.

Everything is done with the commands that a user would type; each is shown before it runs. Ctrl-C (or SIGTERM, or the
terminal closing) stops the cluster and removes its directory.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
LIMIT_SECONDS = 400.0
#: what a researcher needs
RESEARCH = (
    ("spritz run --gpus 1 --track -- python digits.py", "a job from a snapshot of the code, its output here"),
    ("spritz run --nodes 2 --template torchrun -- python YOURS.py", "or accelerate, deepspeed, lightning, ray, mpi"),
    ("spritz runs; spritz show RUN; spritz logs -f RUN", "what ran, with which code, and what it said"),
    ("spritz diff A B; spritz rerun RUN --set lr=1e-2", "what differs; the same code again, changed"),
    ("spritz pause RUN; spritz resume RUN", "after --resumable: without lost progress"),
    ("spritz sweep sweep.yaml; spritz sweeps", "many trials, the best, early stopping"),
    ("spritz track; spritz dev --gpus 1", "MLflow's address; a shell, JupyterLab or VS Code on a node"),
)


class Demo:
    """One run in a directory of its own."""

    def __init__(self, root: Path) -> None:
        self.cluster = root / "cluster"
        self.work = root / "work"
        self.work.mkdir()
        for name in ("train.sh", "train.py", "digits.py", "sweep.yaml"):
            shutil.copy(HERE / name, self.work)
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        self.environ["PATH"] = f"{BIN}{os.pathsep}{self.environ.get('PATH', os.defpath)}"
        self.environ["SLURM_CONF"] = str(self.cluster / "etc" / "slurm.conf")
        self.environ["SPRITZ_HOME"] = str(root / "runs")
        # Without bytecode each of the trainings compiles what it imports.
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "PYTHONDONTWRITEBYTECODE"):
            self.environ.pop(name, None)
        self.colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.deadline = time.monotonic() + LIMIT_SECONDS

    def say(self, text: str) -> None:
        """A line of the narrator's."""
        print(f"\n\033[1m{text}\033[0m" if self.colour else f"\n== {text}", flush=True)

    def show(self, *words: str) -> str:
        """Type a command, show what it prints, and return that. A failing command ends the demonstration."""
        self.prompt(words)
        status, output = self.typed(words)
        sys.stdout.write(output)
        sys.stdout.flush()
        if status != 0:
            raise SystemExit(f"demo: {words[0]} ended with status {status}")
        return output

    def prompt(self, words: tuple[str, ...]) -> None:
        """The command as one would type it."""
        print(f"\033[32m$\033[0m {shlex.join(words)}" if self.colour else f"$ {shlex.join(words)}", flush=True)

    def typed(self, words: tuple[str, ...], errors: int = subprocess.STDOUT) -> tuple[int, str]:
        """Status and output of a command. An interrupted one is waited for: it puts in order what it has begun."""
        with subprocess.Popen(
            words, cwd=self.work, env=self.environ, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace"
        ) as command:
            try:
                output, _ = command.communicate()
            except KeyboardInterrupt:
                command.send_signal(signal.SIGINT)  # the terminal may not have sent it one
                command.communicate()
                raise
            return command.returncode, output

    def submit(self, *words: str) -> str:
        """sbatch; returns the job's number."""
        return self.show("sbatch", *words).split()[-1]

    def quietly(self, *words: str) -> str:
        """A command whose output only the demonstration looks at."""
        return self.typed(words, subprocess.DEVNULL)[1]

    def follow(self, job: str) -> None:
        """Print the job's output as it grows, until the job has ended."""
        path = self.work / f"train-{job}.out"
        self.prompt(("tail", "-f", path.name))
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
        self.say(f"{self.accuracy(train):.1%} test accuracy, trained on two nodes")
        self.experiments()
        self.say(f"All took {time.monotonic() - started_at:.0f} s")

    def experiments(self) -> None:
        """The researcher's half: a training tracked by MLflow, paused and resumed, then swept."""
        self.say("The researcher's way: one command, code frozen, tracked by MLflow; paused, and its GPU given back")
        train = ("--gpus", "1", "--resumable", "--track", "--", "python", "digits.py", "--epochs", "20")
        run = self.show("spritz", "run", "--detach", *train).split()[0]
        self.until_logged(run, "epoch  3")
        self.show("spritz", "pause", run)
        self.show("spritz", "resume", run)
        shown = self.show("spritz", "logs", "--follow", run)
        if "epoch 20" not in shown or "goes on at epoch" not in shown:
            raise SystemExit(f"demo: {run} did not go on after its pause")
        self.say("A sweep over the learning rate; trials that fall behind are stopped early")
        self.show("cat", "sweep.yaml")
        sweep = self.show("spritz", "sweep", "sweep.yaml", "--wait")
        if "best:" not in sweep:
            raise SystemExit("demo: the sweep found no best trial")
        self.show("spritz", "runs")
        self.show("spritz", "show", run)

    def until_logged(self, run: str, text: str) -> None:
        """Wait until the run has printed this."""
        self.prompt(("spritz", "logs", "--follow", run))
        printed = 0
        while True:
            output = self.quietly("spritz", "logs", run)
            sys.stdout.write(output[printed:])
            sys.stdout.flush()
            printed = len(output)
            if text in output:
                return
            self.in_time(f"{run} has not printed {text!r}")
            time.sleep(0.3)

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

    def stop(self) -> bool:
        """End whatever runs; False if that fails, and something still does."""
        self.typed(("spritz", "track", "stop", "--force"))
        command = ["spritz", "down", "--quiet", "--dir", str(self.cluster), "--timeout", "60"]
        return subprocess.run(command, env=self.environ, check=False).returncode == 0


def main() -> int:
    """0 when everything went as told, 130 when it was interrupted."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    root = Path(tempfile.mkdtemp(prefix="spritz-demo-"))
    demo = Demo(root)
    status = 0
    try:
        demo.run()
    except KeyboardInterrupt:
        print("\nstopping the cluster …", flush=True)
        status = 130
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if demo.stop():
            shutil.rmtree(root, ignore_errors=True)
        else:
            print(f"demo: the cluster in {demo.cluster} could not be stopped", file=sys.stderr)
            status = status or 1
    if status == 0:
        demo.say("What to type next")
        print(f"  source {shlex.quote(os.path.relpath(BIN))}/activate")
        print("  spritz up --nodes 4 --gpus 2     # a cluster like this one; without options, this machine as it is")
        print(f"  cd {shlex.quote(os.path.relpath(HERE))} && sbatch train.sh")
        print("  squeue, sinfo, scancel, srun …   # as on every Slurm; `spritz --help` for the rest")
        print()
        for command, meaning in RESEARCH:
            print(f"  {command:<59} # {meaning}")
        sys.stdout.flush()
    return status


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
