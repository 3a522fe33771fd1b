"""Random command lines on a real Slurm and on Spritz, side by side: what they print and return must be the same.

    python -m tests.conformance.differential REAL_CONF [--seed N] [--count N] [--only squeue,sinfo]

REAL_CONF is the slurm.conf of a running cluster (`tests.conformance.real` starts one); ours is started here. Every
command is run on both, and what differs is printed; numbers of jobs are told apart by their order. A difference is
something to look at, and not always a mistake: docs/compatibility/differences.md and golden/differences.txt say which
are meant.
"""

from __future__ import annotations

import argparse
import difflib
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from .cluster import ACCOUNTED, started

_PATIENCE_SECONDS = 60
_SUBMITTED = re.compile(r"Submitted batch job (\d+)|^(\d+)(?:;\w+)?$|Job (\d+) to start")
_TIMES = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\b"), "CTIME"),
    (re.compile(r"(?<=AccrueTime=)\S+|(?<=Sid=)\S+|(?<=Scheduler=)\w+|(?<=LastSchedEval=)\S+"), "WORD"),
    (re.compile(r"\bslurm(-wlm)? \d+\.\d+\.\d+"), "VERSION"),
)


class Side:
    """One cluster, with the numbers of its jobs in the order of their submission."""

    def __init__(self, binaries: Path, conf: Path, directory: Path) -> None:
        self._binaries = binaries
        self._directory = directory
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "SQUEUE"))},
            "SLURM_CONF": str(conf),
            "PATH": f"{binaries}:{os.environ['PATH']}",
        }
        self.jobs: list[str] = []

    def run(self, words: list[str]) -> tuple[int, list[str], list[str]]:
        """Status, lines of output and of errors, with what must differ taken out."""
        argv = [words[0], *(self._named(word) for word in words[1:])]
        try:
            done = subprocess.run(
                argv,
                executable=self._binaries / words[0],
                env=self._environment,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return -1, ["it did not end"], []
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        if words[0] == "sbatch" and (found := _SUBMITTED.search(out)):
            self.jobs.append(next(filter(None, found.groups())))
        # What several processes write comes in any order.
        return done.returncode, self._plain(out), sorted(self._plain(err))

    def _named(self, word: str) -> str:
        return re.sub(r"\{(\d+)\}", lambda found: self.jobs[int(found[1]) % len(self.jobs)] if self.jobs else "1", word)

    def _plain(self, text: str) -> list[str]:
        for pattern, name in _TIMES:
            text = pattern.sub(name, text)
        text = text.replace(str(self._directory), "HERE")
        for number, job in reversed(list(enumerate(self.jobs))):
            text = re.sub(rf"(?<!\d){job}(?!\d)", f"J{number:04}", text)
        return text.splitlines()


Maker = Callable[[random.Random], list[str]]


def _some(chance: random.Random, options: list[str], most: int) -> list[str]:
    found: list[str] = []
    for option in chance.sample(options, chance.randrange(most + 1)):
        found += option.split(" ", 1) if option.startswith("-") and " " in option else [option]
    return found


def _read_lists() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("[") and line.endswith("]"):
            current = found.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            current.append(line)
    return found


_LISTS = _read_lists()
_LETTERS = "aABcCdDeEfFgGhHiIjJklLmMnNoOpPqQrRsStTuUvVxXyYzZ"


def _format(chance: random.Random, letters: str) -> str:
    parts = []
    for _ in range(chance.randrange(1, 6)):
        width = chance.choice(("", "10", ".7", ".", "20", "0"))
        parts.append(f"%{width}{chance.choice(letters)}{chance.choice(('', ' ', '|', '  x'))}")
    return "".join(parts)


def _names(chance: random.Random, names: list[str]) -> str:
    found = []
    for name in chance.sample(names, chance.randrange(1, 5)):
        found.append(name + chance.choice(("", "", ":.8", ":12", ":30", ":", ":x", ":.0")))
    return ",".join(found)


def _sbatch(chance: random.Random) -> list[str]:
    return ["sbatch", "-H", *_some(chance, _LISTS["sbatch"], 4), "--wrap", "true"]


def _squeue(chance: random.Random) -> list[str]:
    shown = chance.choice(
        (
            ["-o", _format(chance, _LETTERS)],
            ["-O", _names(chance, _LISTS["squeue names"])],
            [],
            ["-l"],
            ["-s"],
            ["--start"],
        )
    )
    return ["squeue", *shown, *_some(chance, _LISTS["squeue"], 3)]


def _sinfo(chance: random.Random) -> list[str]:
    formats = ["-o", _format(chance, _LETTERS + "wW")], ["-O", _names(chance, _LISTS["sinfo names"])]
    shown = chance.choice((*formats, [], ["-l"], ["-s"], ["-N"], ["-Nl"], ["-R"], ["-Rl"]))
    return ["sinfo", *shown, *_some(chance, _LISTS["sinfo"], 3)]


def _scontrol(chance: random.Random) -> list[str]:
    return ["scontrol", *chance.choice(_LISTS["scontrol"]).split()]


def _scancel(chance: random.Random) -> list[str]:
    return ["scancel", *chance.choice(_LISTS["scancel"]).split()]


_MAKERS: dict[str, tuple[Maker, int]] = {
    "sbatch": (_sbatch, 8),
    "squeue": (_squeue, 6),
    "sinfo": (_sinfo, 4),
    "scontrol": (_scontrol, 6),
    "scancel": (_scancel, 2),
}


def main(arguments: list[str]) -> int:
    """How many commands differed, 100 at most."""
    parser = argparse.ArgumentParser(description="random command lines on a real Slurm and on Spritz")
    parser.add_argument("conf", type=Path)
    parser.add_argument("--bin", type=Path, default=Path("/usr/bin"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", default=",".join(_MAKERS))
    given = parser.parse_args(arguments)
    chance = random.Random(given.seed)
    makers = [_MAKERS[name] for name in given.only.split(",")]
    differing = 0
    with tempfile.TemporaryDirectory(prefix="differential-") as base:
        places = [Path(base) / name for name in ("real", "ours", "cluster")]
        for place in places:
            place.mkdir(mode=0o755)
        with started(Path(sys.executable).parent, places[2], ACCOUNTED) as cluster:
            real, ours = Side(given.bin, given.conf, places[0]), Side(cluster.binaries, cluster.conf, places[1])
            for side in (real, ours):
                side.run(["sbatch", "-H", "--wrap", "true"])
                side.run(["sbatch", "-H", "-N2", "-a", "0-3", "--wrap", "true"])
            for _ in range(given.count):
                make = chance.choices([make for make, _ in makers], [weight for _, weight in makers])[0]
                words = make(chance)
                found = real.run(words), ours.run(words)
                if found[0] != found[1]:
                    differing += 1
                    _tell(words, *found)
                _keep_together(real, ours)
            real.run(["scancel", "-u", "root"])
    print(f"{differing} of {given.count} commands differ")
    return min(differing, 100)


def _keep_together(real: Side, ours: Side) -> None:
    """A job that only one of them took is none."""
    for one, other in ((real, ours), (ours, real)):
        while len(one.jobs) > len(other.jobs):
            one.run(["scancel", one.jobs.pop()])


def _tell(words: list[str], real: tuple[int, list[str], list[str]], ours: tuple[int, list[str], list[str]]) -> None:
    print("$", " ".join(words))
    if real[0] != ours[0]:
        print(f"  status {real[0]}, ours {ours[0]}")
    for name, one, other in (("out", real[1], ours[1]), ("err", real[2], ours[2])):
        lines = list(difflib.unified_diff(one, other, lineterm="", n=0))[2:]
        print("\n".join(f"  {name} {line}" for line in lines if not line.startswith("@@")), end="\n" if lines else "")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
