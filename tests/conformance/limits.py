"""Limits on a real Slurm and on Spritz, side by side: the same accounts, QOS and jobs, and what became of them.

    python -m tests.conformance.limits REAL_CONF [--only WORDS] [--cases FILE] [--verbose]

REAL_CONF is the slurm.conf of a running cluster (`tests.conformance.real` starts one); ours is started here; as root.
Its slurmctld is restarted when a case needs other lines of slurm.conf, and is stopped in the end.
What differs is printed. Cases are in limits.txt, which says how they are written.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from .cluster import ACCOUNTED, ask, started

_SUBMITTER = "mail"
_PLACE = re.compile(r"\{(\w+)\}")
_SHOWN = "%i|%T|%r|%l"
_SETTLED_SECONDS, _PATIENCE_SECONDS = 1.3, 8.0
_NOISE = re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+")
#: what backfill gives a job without a time limit, if it starts it before the main scheduler does
_A_YEAR = "365-00:00:00"
#: of both, so that neither looks seldom
_BASE = {
    "SchedulerParameters": "default_queue_depth=1000,sched_interval=1,bf_interval=1",
    "PriorityType": "priority/multifactor",
    "PriorityWeightAge": "10",
    "AccountingStorageTRES": "gres/gpu",
}


@dataclass
class Case:
    """Its name, what slurm.conf says for it, and its lines."""

    name: str
    conf: tuple[str, ...] = ()
    lines: list[str] = field(default_factory=list)
    meant: str = ""


def read(path: Path) -> list[Case]:
    """All cases of a file."""
    found: list[Case] = []
    conf: tuple[str, ...] = ()
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("### "):
            conf = tuple(line.removeprefix("### ").split())
        elif line.startswith("=== "):
            assert conf, f"{line}: no slurm.conf above it"
            found.append(Case(line.removeprefix("=== "), conf))
        elif line.startswith("! "):
            found[-1].meant = line.removeprefix("! ")
        elif line and not line.startswith("#"):
            found[-1].lines.append(line)
    return found


class Side:
    """One cluster."""

    def __init__(self, binaries: Path, conf: Path) -> None:
        self.binaries, self.conf = binaries, conf
        self._plain = conf.read_text(encoding="utf-8")
        self._controller: subprocess.Popen[bytes] | None = None
        self.jobs: list[str] = []
        self._names: dict[str, str] = {}
        self._had: tuple[str, ...] | None = None

    def configure(self, conf: tuple[str, ...]) -> None:
        """Run slurmctld with these lines, last ones of the same key."""
        if conf == self._had:
            return
        self._had = conf
        lines = {**_BASE, **dict(one.split("=", 1) for one in conf if not one.startswith("PartitionName"))}
        text = "\n".join(line for line in self._plain.splitlines() if line.split("=")[0] not in lines)
        partitions = {one.split("|")[0]: one.replace("|", " ") for one in conf if one.startswith("PartitionName")}
        text += "".join(f"\n{key}={value}" for key, value in lines.items())
        text += "".join(f"\n{line}" for line in partitions.values()) + "\n"
        self._stop()
        self.conf.write_text(text, encoding="utf-8")
        env = {**os.environ, "SLURM_CONF": str(self.conf)}
        name = self.binaries / "slurmctld"
        program = name if name.exists() else Path("/usr/sbin/slurmctld")
        with (self.conf.parent / "slurmctld.again").open("ab") as log:
            self._controller = subprocess.Popen([program, "-D"], env=env, stdout=log, stderr=log)
        for _ in range(300):
            states = ask(self.binaries, self.conf, "sinfo", "-h", "-N", "-p", "debug", "-o", "%t").split()
            if states and set(states) == {"idle"}:
                break
            time.sleep(0.2)
        else:
            raise RuntimeError(f"{self.binaries}: nodes {states}")
        time.sleep(1.0)

    def _stop(self) -> None:
        pid = self.conf.parent / "slurmctld.pid"
        if self._controller is not None:
            self._controller.terminate()
            self._controller.wait(30)
        elif pid.exists():
            number = int(pid.read_text())
            try:
                os.kill(number, signal.SIGTERM)
            except ProcessLookupError:
                return
            for _ in range(200):
                if not Path(f"/proc/{number}").exists() or "Z" in Path(f"/proc/{number}/stat").read_text().split()[2]:
                    break
                time.sleep(0.1)

    def close(self) -> None:
        """End the controller that we have started; slurm.conf is as it was."""
        if self._controller is not None:
            self._stop()
            self.conf.write_text(self._plain, encoding="utf-8")

    def play(self, case: Case, number: int) -> list[str]:
        """Everything that the case's lines have said."""
        self.configure(case.conf)
        names = {letter: f"{letter}{number}" for letter in "tabq"} | {"z": f"z{number}", "r": f"r{number}"}
        self._names, self.jobs = names, []
        said: list[str] = []
        self.sacctmgr("add qos {q},{z}")
        self.sacctmgr("add account {t}")
        self.sacctmgr("add account {a},{b} parent={t}")
        self.sacctmgr("add user mail,news,root account={a},{b} qos=normal,{q},{z} defaultaccount={a}")
        try:
            for line in case.lines:
                verb, _, rest = line.partition(" ")
                rest = self._named(rest)
                said.append(f"  > {line}")
                said += self._do(verb, rest)
        finally:
            self._clear()
        return said

    def _do(self, verb: str, rest: str) -> list[str]:
        verb, _, user = verb.partition("@")
        if verb == "=":
            return self._settled()
        if verb == "w":
            time.sleep(float(rest))
            return []
        if verb == "m":
            return self.sacctmgr(rest)
        if verb == "s":
            return self._submit(rest, user or _SUBMITTER)
        if verb == "r":
            return self._run(shlex.split(rest), user)
        raise ValueError(verb)

    def _named(self, text: str) -> str:
        def put(found: re.Match[str]) -> str:
            word = found[1]
            return (
                (self.jobs[int(word)] if int(word) < len(self.jobs) else "999")
                if word.isdigit()
                else self._names.get(word, found[0])
            )

        return _PLACE.sub(put, text)

    def _plainly(self, text: str) -> list[str]:
        for number, job in reversed(list(enumerate(self.jobs))):
            text = re.sub(rf"(?<!\d){job}(?!\d)", f"J{number}", text)
        for letter, name in self._names.items():
            text = re.sub(rf"\b{name}\b", f"{{{letter}}}", text)
        return [line.rstrip() for line in _NOISE.sub("TIME", text).replace(_A_YEAR, "UNLIMITED").splitlines()]

    def _run(self, argv: list[str], user: str = "", *, words: bool = True) -> list[str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        env |= {"SLURM_CONF": str(self.conf), "PATH": f"{self.binaries}:{os.environ['PATH']}", "HOME": "/tmp"}
        argv = [self._which(argv[0]), *argv[1:]]
        done = subprocess.run(
            [*_becoming(user), *argv],
            env=env,
            cwd="/tmp",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self._last = done.stdout
        if argv[0].endswith("sbatch") and (found := re.search(r"\d+", done.stdout)):
            self.jobs.append(found[0])
        out = self._plainly(done.stdout) + sorted(self._plainly(done.stderr))
        return [*(out if words else ()), *([f"status {done.returncode}"] if done.returncode else [])]

    def _which(self, name: str) -> str:
        return str(self.binaries / name) if (self.binaries / name).exists() else name

    def sacctmgr(self, rest: str) -> list[str]:
        said = self._run(["sacctmgr", "-i", *shlex.split(self._named(rest))])
        time.sleep(0.3)
        return said if said and said[-1].startswith("status") else []

    def _submit(self, rest: str, user: str) -> list[str]:
        before = len(self.jobs)
        words = shlex.split(rest)
        own = [] if any(word.startswith(("-A", "--account")) for word in words) else ["-A", self._names["a"]]
        own += [] if "--mem" in rest or "-M-" in words else ["--mem=10"]
        own += [] if "--wrap" in rest else ["--wrap", "sleep 300"]
        argv = [
            "sbatch",
            "--parsable",
            "-o",
            "/dev/null",
            *own,
            *[word for word in words if word not in ("-A-", "-M-")],
        ]
        said = self._run(argv, user)
        return said if len(self.jobs) == before else [line for line in said if line != f"J{before}"]

    def _settled(self) -> list[str]:
        """What the jobs are, once it has been the same for a while."""
        begun, since, seen = time.monotonic(), time.monotonic(), [""]
        while self.jobs:
            now = self._run(
                ["squeue", "-h", "-a", "-r", "-t", "all", "-S", "i", "-j", ",".join(self.jobs), "-o", _SHOWN]
            )
            if now != seen or any("COMPLETING" in line or "CONFIGURING" in line for line in now):
                seen, since = now, time.monotonic()
            if time.monotonic() - since > _SETTLED_SECONDS or time.monotonic() - begun > _PATIENCE_SECONDS:
                return [f"      {line}" for line in seen]
            time.sleep(0.3)
        return []

    def _clear(self) -> None:
        if self.jobs:
            self._run(["scancel", "-f", "-Q", *self.jobs])
            for _ in range(100):
                argv = ["squeue", "-h", "-j", ",".join(self.jobs), "-o", "%i"]
                if not self._run(argv) or "Invalid job id" in self._last:
                    break
                time.sleep(0.1)
        self.sacctmgr("delete user mail,news,root account={a},{b}")


def _becoming(user: str) -> list[str]:
    """Run as this user, who may read what root has installed."""
    if not user:
        return []
    who = pwd.getpwnam(user)
    capability = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    return ["setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--init-groups", *capability]


def main(arguments: list[str]) -> int:
    """How many cases differ that are not meant to, 100 at most."""
    parser = argparse.ArgumentParser(description="limits on a real Slurm and on Spritz")
    parser.add_argument("conf", type=Path)
    parser.add_argument("--bin", type=Path, default=Path("/usr/bin"))
    parser.add_argument("--cases", type=Path, default=Path(__file__).with_suffix(".txt"))
    parser.add_argument("--only", default="")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args(arguments)
    cases = [case for case in read(given.cases) if re.search(given.only, case.name)]
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="limits-") as base, ThreadPoolExecutor(2) as pool:
        Path(base).chmod(0o755)
        with started(Path(sys.executable).parent, Path(base), ACCOUNTED) as cluster:
            sides = [Side(given.bin, given.conf.resolve()), Side(cluster.binaries, cluster.conf)]
            first = int(time.time()) % 100_000
            try:
                for side in sides:
                    side.sacctmgr("add qos partq")
                for number, case in enumerate(cases, first):
                    # Both at once: it is waiting that takes the time.
                    real, ours = pool.map(lambda side, case=case, number=number: side.play(case, number), sides)
                    wrong += real != ours and not case.meant
                    _tell(case, real, ours, verbose=given.verbose)
            finally:
                for side in sides:
                    side.close()
    print(f"{wrong} of {len(cases)} differ")
    return min(wrong, 100)


def _tell(case: Case, real: list[str], ours: list[str], *, verbose: bool) -> None:
    same = "equal" if real == ours else f"differs ({case.meant})" if case.meant else "DIFFERS"
    print(f"=== {case.name}: {same}", flush=True)
    if real == ours and not verbose:
        return
    for mine, theirs in _aligned(real, ours):
        if mine == theirs:
            print("\n".join(mine))
        else:
            print("\n".join((mine or [""])[:1]))
            print("\n".join([f"  real | {line}" for line in mine[1:]] + [f"  ours | {line}" for line in theirs[1:]]))
    sys.stdout.flush()


def _aligned(real: list[str], ours: list[str]) -> list[tuple[list[str], list[str]]]:
    """By the lines of the case that they answer."""

    def parts(lines: list[str]) -> list[list[str]]:
        found: list[list[str]] = []
        for line in lines:
            if line.startswith("  > "):
                found.append([])
            found[-1].append(line)
        return found

    return list(zip(parts(real), parts(ours), strict=False))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
