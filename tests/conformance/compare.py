"""Run a transcript's commands on a real Slurm and on ours, and print what differs.

    python -m tests.conformance.compare [--meant] REAL/slurm.conf OURS/slurm.conf FILE.txt [words of case names]

FILE.txt is in the format of README.md; expected lines are needed only where a command waits (`$~`). What is meant to
differ is in `meant.txt`, with its reason, and is counted apart; with --meant it is printed as well. Nothing is written:
`record` keeps what is worth keeping.
"""

from __future__ import annotations

import difflib
import re
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from .cluster import known_values
from .meant import Meant, read
from .record import _TIMES, learn
from .transcript import BOUND, Case, Expected, Mismatch, Place, Ran, check, leave, parse, prepare, run, substitute

#: What differs between two clusters, or two moments of one, in addition to `record`'s times.
_CHANCE = (
    (re.compile(r"(?<= )0:\d\d(?= |\Z)|\b00:0\d:\d\d(?:\.\d+)?\b"), "elapsed"),
    (re.compile(r"\b29:[345]\d\b"), "left"),
    (re.compile(r"\bPort=\d+|\bPID=\d+|(?<=pid )\d+"), "n"),
    (
        re.compile(
            r"(?<=Submitted batch job )\d+|(?<=[Jj]ob allocation )\d+|(?<=srun: [Jj]ob )\d+|(?<=salloc: job )\d+"
        ),
        "new",
    ),
    (re.compile(r"\(1[78]\d{8}\)"), "(epoch)"),
    (re.compile(r"\b1[78]\d{8}\b"), "epoch"),
)


@dataclass
class Answer:
    """What one command said on one cluster, without what is chance."""

    command: str
    out: list[str]
    err: list[str]
    exit_code: int

    def lines(self, meant: Meant) -> list[str]:
        """All of it in one form, without what is meant to differ."""
        out = [f"1| {line}" for line in meant.kept(self.command, self.out)]
        err = sorted(f"2| {line}" for line in meant.kept(self.command, self.err))
        return [*out, *err, f"? {self.exit_code}"]


def main(arguments: list[str]) -> int:
    shows_meant = arguments[0] == "--meant"
    real, ours, path, *words = arguments[int(shows_meant) :]
    meant, nothing = read(), Meant()
    counts = {"the same": 0, "meant": 0, "open": 0}
    for case in parse(Path(path)):
        if words and not any(word in case.name for word in words):
            continue
        print("===", case.name, flush=True)
        theirs = _session(case, Path("/usr/bin"), Path(real), real=True)
        # What real Slurm says is no hint of ours.
        said = [line for one in theirs for line in one.err]
        mine = _session(case, Path(sys.executable).parent, Path(ours), real=False, said=said)
        for one, other in zip(theirs, mine, strict=True):
            if one.lines(nothing) == other.lines(nothing):
                counts["the same"] += 1
                continue
            if one.lines(meant) == other.lines(meant):
                counts["meant"] += 1
                continue
            reason = meant.covers(one.command, other.err, other.exit_code)
            counts["meant" if reason else "open"] += 1
            if not reason or shows_meant:
                print(*([f"[{reason}]"] if reason else []), "$", one.command)
                for line in difflib.unified_diff(one.lines(meant), other.lines(meant), n=0, lineterm=""):
                    if not line.startswith(("---", "+++", "@@")):
                        print(line)
    print(f"{sum(counts.values())} commands:", ", ".join(f"{count} {name}" for name, count in counts.items()))
    return 1 if counts["open"] else 0


def _session(case: Case, binaries: Path, conf: Path, *, real: bool, said: list[str] | None = None) -> list[Answer]:
    """The case's commands played on one cluster. `said`: lines on standard error that are kept, hint or not."""
    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        directory = Path(name)
        directory.chmod(0o777)
        values = {**known_values(conf), "cwd": name}
        place = Place(binaries, conf, directory, values, hints=not real)
        prepare(case, place)
        values = dict(values)
        try:
            steps = [step if step.poll or said is None else replace(step, stderr=said) for step in case.steps]
            return [_answer(case, step, place, values) for step in steps]
        finally:
            leave(place, values)


def _answer(case: Case, step: Expected, place: Place, values: dict[str, str]) -> Answer:
    deadline = time.monotonic() + case.seconds
    unknown = re.findall(r"\{((?:job|pid|port|id)\d*)\}", step.command)
    if any(BOUND.match(name) and name not in values for name in unknown):
        return Answer(step.command, ["was not run: an earlier command did not give its id"], [], -1)
    try:
        while True:
            ran = run(step, place, values, case.seconds)
            good = check(step, ran, values)
            if good or not step.poll or time.monotonic() > deadline:
                break
            time.sleep(0.1)
    except Mismatch as late:
        ran, good = Ran(str(late).splitlines(), [], 124), False
    learn(step, ran, values)
    if step.poll and (step.stdout or step.stderr):
        # What it waits for may leave parts open; that it came is what counts.
        return Answer(step.command, ["came"] if good else ["NEVER CAME", *ran.stdout], ran.stderr, ran.exit_code)
    out = [_without_chance(line, values) for line in ran.stdout]
    err = [_without_chance(line, values) for line in ran.stderr]
    return Answer(substitute(step.command, {}), sorted(out) if step.unordered else out, err, ran.exit_code)


def _without_chance(line: str, values: dict[str, str]) -> str:
    line = line.replace(values["cwd"], "{cwd}").replace(str(Path(values["conf"]).parent), "{directory}")
    for pattern, name in (*_TIMES, *_CHANCE):
        line = pattern.sub(f"{{{name}}}", line)
    for name, value in values.items():
        if name.startswith("job") and len(value) > 4:
            line = re.sub(rf"(?<!\d){value}(?!\d)", f"{{{name}}}", line)
    return line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
