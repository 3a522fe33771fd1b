"""Golden transcripts of Slurm's commands: the format, how a line is matched, how a case is run.

Owns the grammar that README.md describes. It knows nothing of the cluster behind the commands: it is handed a
directory of commands, a `slurm.conf` and a scratch directory, so the same case runs on Slurm itself and on Spritz.
"""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

#: What an unnamed placeholder stands for; such a placeholder is matched and forgotten.
FREE = {
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d",
    "ctime": r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}",
    "elapsed": r"(?:\d+-)?(?:\d+:)?\d+:\d\d",
    "n": r"-?\d+",
    "x": r"0x[0-9a-fA-F]+",
    "float": r"\d+\.\d+",
    "word": r"\S+",
    "any": r".*",
    "node": r"node\d",
    #: `gres:gpu:2` in 22.05, `gres/gpu:2` since 23.11.
    "gres": r"gres[:/]",
    #: Several slurmd on one host name their supervisors after the node.
    "stepd": r"slurmstepd(?:-[\w.-]+)?",
}
#: Placeholders that keep their value for the rest of the case: `{job}`, `{job2}`, `{pid}` ...
BOUND = re.compile(r"(?:job|pid|port|id)\d*\Z")
_PLACE = re.compile(r"(?<!\$)\{([a-z_]+\d*)(?:([<>])(\d+))?\}")
_QUEUED = re.compile(r"srun: job \d+ (?:queued and waiting for|has been allocated) resources")
_HINT = re.compile(r"(?:sbatch|srun|salloc): (?!error|fatal|Warning|[jJ]ob |Force |[Nn]o )[a-z\[-]")
_COMMAND = re.compile(r"(?:@(\w+) )?\$([~%+]*) (.*)\Z")
SECONDS_PER_COMMAND = 100.0
#: Begins a template whose line may be missing.
OPTIONAL = "\0"


@dataclass
class Expected:
    """One command of a case and what it must print; `lines` are templates."""

    command: str
    user: str | None = None
    poll: bool = False
    unordered: bool = False
    at_least: bool = False
    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)
    exit_code: int = 0


@dataclass
class Case:
    """One named session: files to lay down first, then commands in order."""

    name: str
    source: Path
    line: int
    notes: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    seconds: float = SECONDS_PER_COMMAND
    slow: bool = False
    files: dict[str, str] = field(default_factory=dict)
    steps: list[Expected] = field(default_factory=list)


@dataclass
class Ran:
    """What a command really did."""

    stdout: list[str]
    stderr: list[str]
    exit_code: int


@dataclass(frozen=True)
class Place:
    """Where the commands of a case run. `directory` must be writable by every user named in the case."""

    binaries: Path
    conf: Path
    directory: Path
    known: dict[str, str]
    #: Whether a command that fails may add what would help: `sbatch: there is no partition gpux`, after Slurm's line.
    hints: bool = False


class Mismatch(AssertionError):
    """A command did not do what was recorded."""


def parse(path: Path) -> list[Case]:
    """Read every case of a transcript file. Raises ValueError naming file and line for a line of no known form."""
    cases: list[Case] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        text = lines[at]
        at += 1
        if text.startswith("=== "):
            cases.append(Case(name=text[4:].strip(), source=path, line=at))
        elif not text.strip() or text.startswith("#"):
            continue
        elif not cases:
            raise ValueError(f"{path}:{at}: text before the first case: {text!r}")
        elif text.startswith("<<< "):
            end = lines.index(">>>", at)
            cases[-1].files[text[4:].strip()] = "\n".join(lines[at:end]) + "\n"
            at = end + 1
        else:
            _read_line(cases[-1], text, at)
    return cases


def _read_line(case: Case, text: str, number: int) -> None:
    command = _COMMAND.match(text)
    if command:
        user, flags, line = command.groups()
        case.steps.append(Expected(line, user=user, poll="~" in flags, unordered="%" in flags, at_least="+" in flags))
    elif text.startswith(":"):
        case.notes.append(text[1:].strip())
    elif text.startswith("! needs "):
        case.needs += text.split()[2:]
    elif text == "! slow":
        case.slow = True
    elif text.startswith("! seconds "):
        case.seconds = float(text.split()[2])
    elif text.startswith(("1|", "2|", "1?|", "2?|")) and case.steps:
        mark, _, line = text.partition("|")
        lines = case.steps[-1].stdout if mark[0] == "1" else case.steps[-1].stderr
        lines.append((OPTIONAL if mark.endswith("?") else "") + line[1:])
    elif text.startswith("? ") and case.steps:
        case.steps[-1].exit_code = int(text[2:])
    else:
        raise ValueError(f"{case.source}:{number}: not a line of a transcript: {text!r}")


def substitute(text: str, values: dict[str, str]) -> str:
    """Put known values into a command; an unknown placeholder stays as it is."""

    def one(match: re.Match[str]) -> str:
        name, align, width = match.groups()
        if name not in values:
            return match.group(0)
        value = values[name]
        return value if not align else format(value, f"{align}{width}")

    return _PLACE.sub(one, text)


def matches(template: str, actual: str, values: dict[str, str]) -> dict[str, str] | None:
    """The values that `actual` gives to new placeholders of `template`, or None where it does not match."""
    pattern, end = "", 0
    fresh: dict[str, str] = {}
    for place in _PLACE.finditer(template):
        name, align, width = place.groups()
        if name not in values and name.rstrip("0123456789") not in FREE and not BOUND.match(name):
            continue
        pattern += re.escape(template[end : place.start()])
        end = place.end()
        if name in values:
            value = values[name]
            pattern += re.escape(value if not align else format(value, f"{align}{width}"))
            continue
        core = FREE.get(name.rstrip("0123456789"), r"\d+")
        group = f"g{len(fresh)}"
        if BOUND.match(name):
            fresh[group] = name
            core = f"(?P<{group}>{core})"
        if align:
            padded = f" *{core}" if align == ">" else f"{core} *"
            core = f"(?=.{{{width}}})(?:{padded})"
        pattern += core
    found = re.fullmatch(pattern + re.escape(template[end:]), actual)
    return {name: found.group(group) for group, name in fresh.items()} if found else None


def match_lines(templates: list[str], actual: list[str], values: dict[str, str], *, unordered: bool) -> bool:
    """Whether the lines match, learning placeholders into `values`. A template `...` stands for any lines."""
    if unordered:
        return _match_unordered(templates, actual, values)
    if not templates:
        return not actual
    if templates[0] == "...":
        rest = templates[1:]
        for skip in range(len(actual) + 1):
            attempt = dict(values)
            if match_lines(rest, actual[skip:], attempt, unordered=False):
                values.update(attempt)
                return True
        return False
    first = templates[0].removeprefix(OPTIONAL)
    learnt = matches(first, actual[0], values) if actual else None
    if learnt is None:
        return first != templates[0] and match_lines(templates[1:], actual, values, unordered=False)
    values.update(learnt)
    return match_lines(templates[1:], actual[1:], values, unordered=False)


def _match_unordered(templates: list[str], actual: list[str], values: dict[str, str]) -> bool:
    left = list(actual)
    for template in templates:
        wanted = template.removeprefix(OPTIONAL)
        for at, line in enumerate(left):
            learnt = matches(wanted, line, values)
            if learnt is not None:
                values.update(learnt)
                del left[at]
                break
        else:
            if wanted == template:
                return False
    return not left


def match_output(step: Expected, ran: Ran, values: dict[str, str]) -> bool:
    """Whether the standard output is as the step's flags ask: in order, in any order, or with more lines besides."""
    if not step.at_least:
        return match_lines(step.stdout, ran.stdout, values, unordered=step.unordered)
    for template in (line for line in step.stdout if not line.startswith(OPTIONAL)):
        hit = next((learnt for line in ran.stdout if (learnt := matches(template, line, values)) is not None), None)
        if hit is None:
            return False
        values.update(hit)
    return True


def run(step: Expected, place: Place, values: dict[str, str], seconds: float) -> Ran:
    """Run one command as its user, in the case's directory. Raises Mismatch when it does not end in time."""
    command = substitute(step.command, values)
    env = {
        "PATH": f"{place.binaries}:{Path(__file__).parent / 'bin'}:{os.environ['PATH']}",
        "SLURM_CONF": str(place.conf),
        "HOME": str(place.directory),
        "LANG": "C.UTF-8",
        "TZ": os.environ.get("TZ", "UTC"),
    }
    ids: dict[str, int | list[int]] = {}
    if step.user:
        user = pwd.getpwnam(step.user)
        ids = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [user.pw_gid]}
        env["USER"] = env["LOGNAME"] = step.user
        env["SPRITZ_NO_SERVER"] = "1"  # that user's would outlive the run
    else:
        env["USER"] = env["LOGNAME"] = pwd.getpwuid(os.getuid()).pw_name
        env["XDG_RUNTIME_DIR"] = os.environ.get("XDG_RUNTIME_DIR", str(place.directory))
    child = subprocess.Popen(
        ["bash", "-c", command],
        cwd=place.directory,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **ids,  # type: ignore[call-overload]
    )
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as late:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        raise Mismatch(f"$ {command}\ndid not end within {seconds:g} s; it had printed\n{out!r}\n{err!r}") from late
    errors = _text(err)
    # Nodes stay busy for a moment after a job; a command that comes meanwhile says that its job is queued.
    if not any("queued and waiting" in line for line in step.stderr):
        errors = [line for line in errors if not _QUEUED.fullmatch(line)]
    if place.hints and child.returncode and any(": error: " in line for line in errors):
        errors = [line for line in errors if not _HINT.match(line) or _is_expected(step, line, values)]
    return Ran(_text(out), errors, child.returncode)


def _is_expected(step: Expected, line: str, values: dict[str, str]) -> bool:
    return any(matches(template.removeprefix(OPTIONAL), line, values) is not None for template in step.stderr)


def _text(data: bytes) -> list[str]:
    lines = data.decode("utf-8", "backslashreplace").replace("\r", "\\r").split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + "\\c"]


def check(step: Expected, ran: Ran, values: dict[str, str]) -> bool:
    """Whether the command did what is recorded; learns placeholders into `values` only if it did."""
    learnt = dict(values)
    good = (
        ran.exit_code == step.exit_code
        and match_output(step, ran, learnt)
        and match_lines(step.stderr, ran.stderr, learnt, unordered="..." not in step.stderr)
    )
    if good:
        values.update(learnt)
    return good


def prepare(case: Case, place: Place) -> None:
    """Lay down the case's files, executable, with the known values put in."""
    for name, text in case.files.items():
        target = place.directory / name
        target.write_text(substitute(text, place.known), encoding="utf-8")
        target.chmod(0o755)


def play(case: Case, place: Place) -> None:
    """Run a whole case and cancel what it left behind. Raises Mismatch with every command that did something else."""
    values = dict(place.known)
    prepare(case, place)
    wrong = []
    try:
        for step in case.steps:
            unknown = [m.group(0) for m in _PLACE.finditer(step.command) if BOUND.match(m.group(1))]
            if any(substitute(one, values) == one for one in unknown):
                break  # An earlier command did not give the id that this one needs.
            try:
                _play_step(case, step, place, values)
            except Mismatch as mismatch:
                wrong.append(str(mismatch))
    finally:
        leave(place, values)
    if wrong:
        notes = [f": {note}" for note in case.notes]
        raise Mismatch("\n".join([f"{case.source.name}:{case.line}: {case.name}", *wrong, *notes]))


def _play_step(case: Case, step: Expected, place: Place, values: dict[str, str]) -> None:
    deadline = time.monotonic() + case.seconds
    while True:
        ran = run(step, place, values, case.seconds)
        if check(step, ran, values):
            return
        if not step.poll or time.monotonic() > deadline:
            learn_what_matches(step, ran, values)
            raise Mismatch(describe(step, ran, values))
        time.sleep(0.1)


def learn_what_matches(step: Expected, ran: Ran, values: dict[str, str]) -> None:
    """Take ids from the lines that do match, so that one wrong line does not spoil the commands after it."""
    for templates, actual in ((step.stdout, ran.stdout), (step.stderr, ran.stderr)):
        for template in templates:
            for line in actual:
                values.update(matches(template.removeprefix(OPTIONAL), line, values) or {})


def leave(place: Place, values: dict[str, str]) -> None:
    """Cancel every job that a case left behind, and wait until its nodes are free again."""
    named = {value for name, value in values.items() if name.startswith("job")}
    deadline = time.monotonic() + SECONDS_PER_COMMAND
    while True:
        listing = run(Expected("squeue -h -o '%A %Z'"), place, values, SECONDS_PER_COMMAND).stdout
        rows = [line.split(None, 1) for line in listing if " " in line]
        left = sorted({row[0] for row in rows if row[0] in named or row[1] == str(place.directory)})
        if not left or time.monotonic() > deadline:
            return
        run(Expected("scancel -f -Q " + " ".join(left)), place, values, SECONDS_PER_COMMAND)
        time.sleep(0.2)


def describe(step: Expected, ran: Ran, values: dict[str, str]) -> str:
    """Expected and actual lines next to each other, without the lines that agree."""
    lines = [f"$ {substitute(step.command, values)}"]
    for mark, templates, actual in (("1", step.stdout, ran.stdout), ("2", step.stderr, ran.stderr)):
        wanted = [template.removeprefix(OPTIONAL) for template in templates]
        left = [line for line in actual if all(matches(template, line, values) is None for template in wanted)]
        missing = [t for t in wanted if t != "..." and all(matches(t, line, values) is None for line in actual)]
        lines += [f"- {mark}| {substitute(template, values)}" for template in missing]
        lines += [f"+ {mark}| {line}" for line in left if not (step.at_least and mark == "1")]
        if not missing and not left and templates != actual:
            lines.append(f"  {mark}| the lines are those recorded, in another order or number:")
            lines += [f"  {mark}| {line}" for line in actual]
    if ran.exit_code != step.exit_code:
        lines.append(f"- exit {step.exit_code}\n+ exit {ran.exit_code}")
    return "\n".join(lines)
