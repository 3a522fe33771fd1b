"""Run the cases of a transcript on a real Slurm and write what it did into the file.

    SLURM_BIN=/usr/bin SLURM_CONF=… python -m tests.conformance.record golden/sbatch.txt [words of case names]

Notes, files and commands of the transcript are kept; every expected line is replaced. Ids, times, paths and names
of this machine become placeholders. Lines that hold a hand-written `{any}`, `{word}` or `...` are kept as they are
where the command still matches them.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from pathlib import Path

from .cluster import known_values
from .transcript import OPTIONAL, Case, Expected, Mismatch, Place, Ran, check, leave, parse, prepare, run

_ID_SOURCES = (
    re.compile(r"(?:Submitted batch job|[Jj]ob allocation|srun: job|salloc: job) (\d+)"),
    re.compile(r"\ASubmitted batch job (\d+)"),
    re.compile(r"\b(?:StepId=|JobId=|STEP |JOB |SLURM_JOB_?ID=)(\d+)|Job (\d+) to start at"),
)
_TIMES = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\b"), "time"),
    (re.compile(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\b"), "ctime"),
    (re.compile(r"(?<=RunTime=)[\d:-]+"), "elapsed"),
    (re.compile(r"\b42949\d{5}\b"), "n"),
    (re.compile(r"(?<=AccrueTime=)\S+|(?<=Sid=)\S+|(?<=Scheduler=)\w+|(?<=LastSchedEval=)\S+"), "word"),
    (re.compile(r"(?<=^SLURM_WORKING_CLUSTER=).*|(?<=^SLURM_TOPOLOGY_ADDR=).*"), "any"),
    (re.compile(r"(?<=^SLURM_TASK_PID=)\d+|(?<=_PORT=)\d+|(?<=^SLURM_PRIO_PROCESS=)-?\d+|(?<=^PMI_FD=)\d+"), "n"),
    (re.compile(r"\bslurmstepd-node\d\b"), "stepd"),
    (re.compile(r"(?<=CPULoad=|FreeMem=)[\d.]+"), "word"),
    (re.compile(r"(?<=OS=Linux ).*?(?= \Z)"), "any"),
    (re.compile(r"(?<=^M: )[\d:]+|(?<=^L: )[\d:]+"), "elapsed"),
    (re.compile(r"(?<= )0:\d\d(?= )"), "elapsed"),
)
#: A case that took longer than this on Slurm is left out of the default test run.
SLOW_SECONDS = 3.0


def main(arguments: list[str]) -> int:
    path, words = Path(arguments[0]), arguments[1:]
    binaries, conf = Path(os.environ["SLURM_BIN"]), Path(os.environ["SLURM_CONF"])
    known = known_values(conf)
    cases = parse(path)
    for case in reversed(cases):
        if words and not any(word in case.name for word in words):
            continue
        with tempfile.TemporaryDirectory(prefix="golden-") as name:
            directory = Path(name)
            directory.chmod(0o777)
            place = Place(binaries, conf, directory, {**known, "cwd": name})
            began = time.monotonic()
            record_case(case, place)
            case.slow = time.monotonic() - began > SLOW_SECONDS
        # Read again: someone may have edited another case meanwhile.
        text = replace_case(path.read_text(encoding="utf-8"), case)
        path.write_text(text, encoding="utf-8")
    return 0


def record_case(case: Case, place: Place) -> None:
    """Run the case and put templates of what happened into its steps."""
    print("===", case.name, flush=True)
    values = dict(place.known)
    prepare(case, place)
    try:
        for step in case.steps:
            _record_step(case, step, place, values)
    finally:
        leave(place, values)


def _record_step(case: Case, step: Expected, place: Place, values: dict[str, str]) -> None:
    deadline = time.monotonic() + case.seconds
    try:
        while True:
            ran = run(step, place, values, case.seconds)
            if check(step, ran, values):
                return
            if not step.poll or time.monotonic() > deadline:
                break
            time.sleep(0.2)
    except Mismatch as late:
        print("TIMEOUT", late, flush=True)
        ran = Ran([], ["TIMEOUT"], 124)
    learn(step, ran, values)
    if step.poll and (step.stdout or step.stderr):
        # What is waited for is the author's to say: a wrong guess is reported, never overwritten.
        print("NEVER CAME", case.name, step.command, ran, flush=True)
        return
    if ran.exit_code == step.exit_code:
        step.stdout = keep(step, step.stdout, ran.stdout, values)
        step.stderr = keep(step, step.stderr, ran.stderr, values)
    else:
        step.stdout = [template(line, step, values) for line in ran.stdout]
        step.stderr = [template(line, step, values) for line in ran.stderr]
    step.exit_code = ran.exit_code


def keep(step: Expected, old: list[str], lines: list[str], values: dict[str, str]) -> list[str]:
    """The old templates where they still match, else new ones."""
    probe = Expected(step.command, unordered=step.unordered, at_least=step.at_least, stdout=old)
    if old and check(probe, Ran(lines, [], 0), dict(values)):
        return old
    fresh = [template(line, step, values) for line in lines]
    return sorted(fresh) if step.unordered else fresh


def learn(step: Expected, ran: Ran, values: dict[str, str]) -> None:
    """Name the ids that the output gives away: job, job2, …"""
    for line in ran.stdout + ran.stderr:
        found = [next(filter(None, m.groups())) for p in _ID_SOURCES for m in p.finditer(line)]
        bare = re.fullmatch(r"(\d{5,})(?:;\w+)?", line)
        if bare and "--pars" in step.command:
            found.append(bare.group(1))
        for number in found:
            if number not in values.values():
                count = sum(1 for name in values if name.startswith("job"))
                values[f"job{count + 1 if count else ''}"] = number


def template(line: str, step: Expected, values: dict[str, str]) -> str:
    """The line with what differs from run to run made a placeholder."""
    line = line.replace(values["cwd"], "{cwd}")
    line = re.sub(rf"(?<![\w/]){re.escape(values['conf'])}", "{conf}", line)
    for pattern, name in _TIMES:
        line = pattern.sub(lambda m, name=name: aligned(m, name), line)  # type: ignore[misc]
    for name, value in values.items():
        if name.startswith("job"):
            line = re.sub(rf"(?<![\d.]){value}(?!\d)", lambda m, name=name: aligned(m, name), line)  # type: ignore[misc]
    line = re.sub(rf"\b{re.escape(values['host'])}\b", lambda m: aligned(m, "host"), line)
    line = re.sub(r"(UserId=)\w+\(\d+\)", r"\1{user}({uid})", line) if f"={values['user']}(" in line else line
    line = re.sub(r"(GroupId=)\w+\(\d+\)", r"\1{group}({gid})", line) if f"={values['group']}(" in line else line
    if step.command.startswith(("squeue", "sinfo -R")):
        line = re.sub(rf"(?<= ){re.escape(values['user'])}(?= )", lambda m: aligned(m, "user"), line)
    return line


def aligned(match: re.Match[str], name: str) -> str:
    """The placeholder, with the field's width where blanks show that it is one; `squeeze` takes the blanks away."""
    before = len(match.string[: match.start()]) - len(match.string[: match.start()].rstrip(" "))
    if before >= 2 or (match.start() == before and before):
        return f"\x00{{{name}>{before + len(match.group(0))}}}"
    return f"{{{name}}}"


def squeeze(line: str) -> str:
    return re.sub(r" *\x00", "", line)


def replace_case(text: str, case: Case) -> str:
    """The transcript's text with this case recorded again."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if line.rstrip() == f"=== {case.name}")
    end = next((i for i in range(start + 1, len(lines)) if lines[i].startswith("=== ")), len(lines))
    old = [line for line in lines[start:end] if line != "! slow" and not re.match(r"[12]\??\||\? \d", line)]
    if case.slow:
        old.insert(1, "! slow")
    steps = iter(case.steps)
    new: list[str] = []
    inside_file = False
    for line in old:
        new.append(line)
        inside_file = line.startswith("<<< ") or (inside_file and line != ">>>")
        if not inside_file and re.match(r"(?:@\w+ )?\$[~%+]* ", line):
            new += written(next(steps))
    return "\n".join(lines[:start] + new + lines[end:])


def written(step: Expected) -> list[str]:
    out = []
    for mark, lines in (("1", step.stdout), ("2", step.stderr)):
        for line in lines:
            plain = line.removeprefix(OPTIONAL)
            out.append(f"{mark}{'' if plain == line else '?'}| {squeeze(plain)}")
    return out + ([f"? {step.exit_code}"] if step.exit_code else [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
