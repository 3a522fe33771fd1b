"""Users: threads that run the real commands, and write down what was asked and answered."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter

from spritz_testing.daemons.history import History, Operation, Outcome, Reading
from spritz_testing.daemons.wanted import Change, Wanted
from tests.endurance import ran
from tests.endurance.site import Site

#: What commands print when nobody knows what became of the request.
_LOST = ("answer was lost", "Unable to contact", "connection", "timed out", "Socket timed out", "Zero Bytes")


class User:
    """One user. `jobs`: numbers that it was told."""

    def __init__(self, site: Site, history: History, number: int, seed: int, pause_seconds: float) -> None:
        self._site = site
        self._history = history
        self._name = f"user{number}"
        self._chance = random.Random(f"{seed} {number}")
        self._pause = pause_seconds
        self._over = threading.Event()
        self._lines = site.work / "lines"
        self._submitted = 0
        self._held: set[int] = set()
        self.jobs: list[int] = []
        self.scripts: dict[str, str] = {}
        self.memory_mib: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._live, name=self._name, daemon=True)

    def start(self, scripts: dict[str, str], memory_mib: dict[str, int]) -> None:
        """`scripts` and `memory_mib` are shared with `ran.Ran`, by tag."""
        self.scripts, self.memory_mib = scripts, memory_mib
        self._thread.start()

    def stop(self) -> None:
        """End it, and release what it holds."""
        self._over.set()
        self._thread.join()
        for job_id in sorted(self._held):
            self._change("release", job_id, "scontrol", "release", str(job_id))

    def _live(self) -> None:
        while not self._over.wait(self._chance.uniform(0, 2 * self._pause)):
            kind = self._chance.choices(("submit", "cancel", "hold", "release", "read"), (6, 1, 1, 1, 3))[0]
            if kind == "submit":
                self._submit()
            elif kind == "read":
                self._read()
            elif self.jobs:
                self._act(kind, self._chance.choice(self.jobs[-12:]))

    def _act(self, kind: str, job_id: int) -> None:
        command = {"cancel": ("scancel",), "hold": ("scontrol", "hold"), "release": ("scontrol", "release")}[kind]
        self._change(kind, job_id, *command, str(job_id))

    def _submit(self) -> None:
        self._submitted += 1
        tag = f"{self._name}.{self._submitted}"
        chance = self._chance
        text = ran.script(self._lines, chance.choice([0.1, 0.5, 2.0, 8.0]), chance.choice([0, 0, 0, 3]))
        memory, gpus = chance.choice([100, 500, 1500]), chance.choice([0, 0, 1, 2])
        self.scripts[tag], self.memory_mib[tag] = text, memory
        path = self._site.work / f"{tag}.sh"
        path.write_text(text)
        command = ["sbatch", "--parsable", "-J", tag, "--comment", tag, "-t", "30", f"--mem={memory}"]
        command += [f"-n{chance.choice([1, 1, 2])}", "-N1", "-o", "/dev/null", f"--export=ALL,ENDURANCE_TAG={tag}"]
        command += [f"--gres=gpu:{gpus}"] if gpus else []
        wanted = Wanted(tag=tag, script=text, environment={"ENDURANCE_TAG": tag}, time_limit_minutes=30)
        operation = self._begin("submit", 0, wanted)
        done = self._run(*command, str(path))
        if self._answered(operation, done) and done is not None:
            operation.job_id = int(done.stdout.split(";")[0])
            self.jobs.append(operation.job_id)

    def _change(self, kind: str, job_id: int, *command: str) -> None:
        operation = self._begin(kind, job_id, Change())
        if self._answered(operation, self._run(*command)):
            if kind == "hold":
                self._held.add(job_id)
            if kind in ("release", "cancel"):
                self._held.discard(job_id)
        elif kind == "hold" and operation.outcome is Outcome.UNKNOWN:
            self._held.add(job_id)

    def _read(self) -> None:
        called_at = time.time()
        done = self._run("squeue", "-h", "-a", "-o", "%A|%T|%r")
        if done is not None and done.returncode == 0:
            rows = [tuple(line.split("|")) for line in done.stdout.splitlines()]
            told = [(int(job), state, reason) for job, state, reason in rows]
            self._history.add(
                Reading(client=self._name, kind="squeue", called_at=called_at, answered_at=time.time(), rows=told)
            )
        self.counts["read"] += 1

    def _begin(self, kind: str, job_id: int, wanted: object) -> Operation:
        self.counts[kind] += 1
        return self._history.begin(self._name, 0, kind, time.time(), job_id=job_id, wanted=wanted)

    def _run(self, *command: str) -> subprocess.CompletedProcess[str] | None:
        try:
            return self._site.login_run(*command, seconds=120)
        except subprocess.TimeoutExpired:
            return None

    def _answered(self, operation: Operation, done: subprocess.CompletedProcess[str] | None) -> bool:
        """Enter how it ended. Returns whether it was done."""
        if done is None or (done.returncode and any(word in done.stderr for word in _LOST)):
            self.counts[f"{operation.kind} unknown"] += 1
            return False
        operation.answered_at = time.time()
        if done.returncode:
            operation.outcome, operation.answer = Outcome.REFUSED, done.stderr.strip()
            return False
        operation.outcome = Outcome.DONE
        return True
