"""Applies planted faults, one at a time, and has the simulator look for each.

    python -m tests.simulation.planted.plant --seeds 200 --jobs 2 --report planted.md

Each fault gets a tree of its own in a temporary directory, where changed files are written and all others are links,
and a campaign of `python -m spritz.sim.daemons` there, in a process of its own. The same seeds must be clean without a
fault. Exit status 0 if every fault was found, 1 if one was not, 2 if the seeds are not clean.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.planted.faults import AREAS, FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.simulation.planted.entry import Planted

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCE = REPOSITORY / "src" / "spritz"

#: Further options of the simulator: a violation is enough, and faults are searched for side by side.
OPTIONS = "--no-shrink --jobs 1"
#: Parts of a cluster that the simulator runs only if asked to.
PARTS = frozenset({"accounting", "standby"})

#: Seconds for a simulator to end by itself after the last seed that it may begin.
_GRACE_SECONDS = 60.0
#: Characters of the simulator's last words that are shown where it ended without a result.
_LAST_WORDS = 300


def changed_sources(fault: Planted, source: Path = SOURCE) -> dict[str, str]:
    """The files that the fault changes, below `source`, with their new contents. Raises ValueError for an edit whose
    old text does not occur exactly once.
    """
    contents: dict[str, str] = {}
    for edit in fault.edits:
        text = contents.get(edit.file) or (source / edit.file).read_text(encoding="utf-8")
        count = text.count(edit.old)
        if count != 1:
            raise ValueError(f"{fault.name}: {count} times in {edit.file}, not once: {edit.old!r}")
        contents[edit.file] = text.replace(edit.old, edit.new)
    return contents


def planted_tree(fault: Planted, directory: Path) -> Path:
    """Make `directory/spritz`, the package with the fault. Returns `directory`, which belongs on PYTHONPATH."""
    changed = {Path(name): text for name, text in changed_sources(fault).items()}
    _mirror(SOURCE, directory / "spritz", changed)
    return directory


def _mirror(source: Path, target: Path, changed: Mapping[Path, str]) -> None:
    """Make `target` like `source`, with these files (relative to it) changed and everything else linked."""
    target.mkdir(parents=True)
    below: dict[str, dict[Path, str]] = {}
    for path, text in changed.items():
        if len(path.parts) == 1:
            (target / path).write_text(text, encoding="utf-8")
        else:
            below.setdefault(path.parts[0], {})[path.relative_to(path.parts[0])] = text
    for entry in source.iterdir():
        name = entry.name
        # A link to the folder of compiled files would put those of the changed source into the original one.
        if name == "__pycache__" or Path(name) in changed:
            continue
        if name in below:
            _mirror(entry, target / name, below[name])
        else:
            (target / name).symlink_to(entry)


@dataclass(frozen=True, kw_only=True)
class Found:
    """How the search for a fault ended. `seeds`: until it was found, or all that were tried. `rule`, `text`: the
    violation; "" if there was none. `problem`: why there is no result.
    """

    fault: Planted
    seeds: int
    seconds: float
    rule: str = ""
    text: str = ""
    problem: str = ""

    @property
    def is_found(self) -> bool:
        return bool(self.rule)


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """Which seeds are tried for each fault, for how many seconds, and with which further options of the simulator."""

    first: int = 1
    seeds: int = 200
    seconds: float = 900.0
    options: str = OPTIONS


def search(fault: Planted, campaign: Campaign) -> Found:
    """Run the simulator with the fault, until it finds a violation, or the seeds or the time are used up."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="spritz-planted-") as name:
        directory = Path(name)
        tree = planted_tree(fault, directory / "tree")
        status, output, answer = _simulated(tree, directory / "result.json", fault.needs, campaign)
    took = time.monotonic() - began
    runs, rule, text = int(answer.get("runs") or 0), str(answer.get("rule") or ""), str(answer.get("text") or "")
    # A failure of the simulator itself, whose rule has no number, proves nothing.
    if status == 1 and rule[:1].isdigit():
        tried = int(answer["seed"]) - campaign.first + 1
        return Found(fault=fault, seeds=tried, seconds=took, rule=rule, text=text)
    problem = ""
    if status is None:
        problem = f"stopped after {campaign.seconds:g} s"
    elif status == 1 and rule:
        problem = f"seed {answer.get('seed')}: {rule}: {_last_words(text)}"
    elif status != 0:
        problem = f"exit status {status}: {_last_words(output)}"
    return Found(fault=fault, seeds=runs or (0 if problem else campaign.seeds), seconds=took, problem=problem)


def baseline(needs: Iterable[str], campaign: Campaign) -> str:
    """What the simulator finds in these seeds without a fault; "" if nothing. Else no search would prove anything."""
    with tempfile.TemporaryDirectory(prefix="spritz-planted-") as name:
        status, output, answer = _simulated(SOURCE.parent, Path(name) / "result.json", needs, campaign)
    if status in (0, None):
        return ""
    found = f"seed {answer['seed']}: {answer.get('rule')}: {answer.get('text')}" if "seed" in answer else output
    return _last_words(found)


def _simulated(
    tree: Path, result: Path, needs: Iterable[str], campaign: Campaign
) -> tuple[int | None, str, dict[str, Any]]:
    """Exit status and output of the simulator, and what it wrote to `result`."""
    last = campaign.first + campaign.seeds - 1
    command = [
        *(sys.executable, "-m", "spritz.sim.daemons"),
        *("--seeds", f"{campaign.first}-{last}", "--stop-at-first", "--json", str(result)),
        *("--seconds", f"{campaign.seconds:g}"),
        *campaign.options.split(),
    ]
    if parts := sorted(PARTS.intersection(needs)):
        command += ["--parts", ",".join(parts)]
    status, output = _run(command, environment_of(tree), campaign.seconds)
    try:
        return status, output, json.loads(result.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return status, output, {}


def _last_words(text: str) -> str:
    return " ".join(text.split())[-_LAST_WORDS:]


def environment_of(tree: Path) -> dict[str, str]:
    """The environment in which Python imports the package in this tree."""
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}


def _run(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> tuple[int | None, str]:
    """Exit status (None: it was stopped after `seconds`) and output of a command."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds + _GRACE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        return None, (expired.output or b"").decode("utf-8", "replace")
    return done.returncode, done.stdout.decode("utf-8", "replace")


def import_problem(fault: Planted) -> str:
    """Why the changed modules cannot be imported; "" if they can."""
    modules = [".".join(("spritz", *Path(edit.file).with_suffix("").parts)) for edit in fault.edits]
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[2:]:\n"
        "    module = importlib.import_module(name)\n"
        "    assert module.__file__.startswith(sys.argv[1]), module.__file__\n"
    )
    with tempfile.TemporaryDirectory(prefix="spritz-planted-") as name:
        tree = planted_tree(fault, Path(name) / "tree")
        status, output = _run([sys.executable, "-c", program, str(tree), *modules], environment_of(tree), 60.0)
    return "" if status == 0 else _last_words(output)


# Reports


def row_of(found: Found) -> tuple[str, ...]:
    """Fault, its rule, seeds until it was found, the rule that found it, seconds, and what else is to be said."""
    fault = found.fault
    name = f"{fault.name} ({fault.defect})" if fault.defect else fault.name
    seeds = str(found.seeds) if found.is_found else "-"
    said = found.text or found.problem or f"not in {found.seeds} seeds"
    return name, str(fault.rule), seeds, found.rule or "-", f"{found.seconds:.0f}", said


def summary(results: Sequence[Found]) -> str:
    """How many were found, and in how many seeds."""
    found = sorted(result.seeds for result in results if result.is_found)
    lines = [f"{len(found)} of {len(results)} planted faults found"]
    if found:
        lines.append(f"seeds until found: median {statistics.median(found):g}, most {found[-1]}")
    lost = [result.fault.name for result in results if not result.is_found]
    if lost:
        lines.append(f"not found: {', '.join(sorted(lost))}")
    return "\n".join(lines)


def markdown(results: Sequence[Found], *, seeds: int) -> str:
    """The report."""
    lines = ["# Planted faults", ""]
    lines += [f"{line}.  " for line in summary(results).splitlines()]
    lines += [
        "",
        f"At most {seeds} seeds each.",
        "",
        "| fault | rule | seeds | found by rule | seconds | first violation |",
    ]
    lines += ["|---|---|---|---|---|---|"]
    for result in results:
        cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in row_of(result)]
        lines.append(f"| {' | '.join((*cells[:5], cells[5][:160]))} |")
    lines += ["", "What each fault breaks:", ""]
    lines += [f"- `{result.fault.name}`: {result.fault.why}" for result in results]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    name, rule, seeds, found_by, seconds, said = cells
    return f"{name:45} {rule:>4} {seeds:>6} {found_by:>8} {seconds:>7}  {said[:100]}"


def _chosen(options: argparse.Namespace) -> list[Planted]:
    known = {fault.name: fault for fault in FAULTS}
    unknown = [name for name in options.fault if name not in known]
    if unknown:
        raise SystemExit(f"no planted fault {', '.join(unknown)}")
    faults: Iterable[Planted] = [known[name] for name in options.fault] if options.fault else FAULTS
    if options.area:
        faults = [fault for fault in faults if fault in AREAS[options.area]]
    return [fault for fault in faults if not options.rule or fault.rule == options.rule]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.simulation.planted.plant", description=__doc__.partition("\n")[0])
    parser.add_argument("--fault", nargs="+", default=[], metavar="NAME", help="these faults alone")
    parser.add_argument("--area", choices=sorted(AREAS), help="faults of one area alone")
    parser.add_argument("--rule", type=int, default=0, help="faults of one rule alone")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--seeds", type=int, default=200, help="most seeds for each fault")
    parser.add_argument("--seconds", type=float, default=900.0, help="most seconds for each fault")
    parser.add_argument("--jobs", type=int, default=2, help="faults that are searched for at once")
    parser.add_argument("--options", default=OPTIONS, help=f"further options of the simulator (default: {OPTIONS})")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a report in Markdown")
    parser.add_argument("--no-baseline", action="store_true", help="do not try the seeds without a fault first")
    parser.add_argument("--list", action="store_true", help="list the faults, and search for none")
    parser.add_argument("--imports", action="store_true", help="only import the changed modules")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: see above."""
    options = _options(arguments)
    faults = _chosen(options)
    if options.list:
        for fault in faults:
            print(f"{fault.rule}  {fault.name:45} {fault.defect:4} {', '.join(fault.needs)}\n   {fault.why}")
        return 0
    if options.imports:
        with ThreadPoolExecutor(options.jobs) as pool:
            problems = list(pool.map(import_problem, faults))
        for fault, problem in zip(faults, problems, strict=True):
            if problem:
                print(f"{fault.name}: {problem}")
        print(f"{len(faults) - sum(map(bool, problems))} of {len(faults)} can be imported")
        return 1 if any(problems) else 0

    campaign = Campaign(first=options.first, seeds=options.seeds, seconds=options.seconds, options=options.options)
    if not options.no_baseline:
        needs = {part for fault in faults for part in fault.needs}
        for parts in (frozenset[str](), *([needs] if PARTS & needs else ())):
            if found := baseline(parts, campaign):
                print(f"without any fault: {found}")
                return 2

    def searched(fault: Planted) -> Found:
        found = search(fault, campaign)
        print(_line(row_of(found)), flush=True)
        return found

    print(_line(("fault", "rule", "seeds", "found by", "seconds", "first violation")))
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(searched, faults))
    print(f"\n{summary(results)}")
    if options.report:
        options.report.write_text(markdown(results, seeds=options.seeds), encoding="utf-8")
    return 0 if all(result.is_found for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
