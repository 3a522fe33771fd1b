"""Applies planted faults, one at a time, and has the simulator look for each.

    python -m tests.simulation.planted.plant --seeds 200 --jobs 2 --report planted.md

Each fault gets a tree of its own in a temporary directory, where changed files are written and all others are links,
and a campaign of `python -m spritz_testing.daemons` there, in a process of its own. The same seeds must be clean
without a fault. Exit status 0 if every fault was found, 1 if one was not, 2 if the seeds are not clean.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import structs

from tests.simulation.planted import warm
from tests.simulation.planted.faults import AREAS, FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spritz_testing.daemons.plan import Plan
    from spritz_testing.daemons.runs.run import Result
    from tests.simulation.planted.entry import Planted

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCE = REPOSITORY / "src" / "spritz"

#: Further options of the simulator: a violation is enough, and faults are searched for side by side.
OPTIONS = "--brief --jobs 1 --run-seconds 60"
#: Parts of a cluster that the simulator runs only if asked to.
PARTS = frozenset({"accounting", "standby"})

#: Seconds for a simulator to end by itself after the last seed that it may begin.
_GRACE_SECONDS = 60.0
#: Characters of the simulator's last words that are shown where it ended without a result.
_LAST_WORDS = 300
#: Fields of `Found` that a file of results keeps.
_KEPT = ("seeds", "seconds", "rule", "text", "problem")


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
    """Run the simulator in a tree with the fault, until it finds a violation or seeds or time are used up."""
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="spritz-planted-") as name:
        directory = Path(name)
        tree = planted_tree(fault, directory / "tree")
        status, output, answer = _simulated(tree, directory / "result.json", fault.needs, campaign)
    took = monotonic() - began
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


class WarmSearch:
    """Searches in forked children of this process, which has imported the production code once.

    A seed that does not execute a changed line is what it is without the fault, so it counts as tried and is not run.
    """

    def __init__(self, faults: Sequence[Planted], campaign: Campaign, reach: Path | None, *, targeted: bool) -> None:
        from spritz_testing.daemons import accounting, main, seam  # noqa: F401 - accounting: for its imports

        seam.load_all()
        self._campaign = campaign
        functions = warm.Functions(sorted({edit.file for fault in faults for edit in fault.edits}))
        self._patches: dict[str, warm.Patch] = {}
        for fault in faults:
            try:
                self._patches[fault.name] = warm.Patch(fault, changed_sources(fault), functions)
            except warm.Unfit as error:
                print(f"in a tree of its own: {error}", flush=True)
        #: runs have the kinds of faults that each planted fault needs
        self._targeted = targeted
        self._options = main.parser().parse_args(campaign.options.split())
        self._reach_file = reach
        #: (seed, scale, parts) -> names of faults
        self._reached: dict[str, list[str]] = {}
        if reach is not None and reach.exists():
            self._reached = json.loads(reach.read_text(encoding="utf-8"))
        gc.freeze()

    def search(self, faults: Sequence[Planted], known: dict[str, Found], told: Callable[[Found], None]) -> None:
        """Look for all of them in the first seed, then for what is left in the next one, and so on.

        `known`: what is known of each, to which this adds; `told` hears of each run.
        """
        for number in range(1, self._campaign.seeds + 1):
            for fault in faults:
                before = known.get(fault.name) or Found(fault=fault, seeds=0, seconds=0.0)
                if before.is_found or before.seeds >= number:
                    continue
                patch = self._patches.get(fault.name)
                if patch is None:
                    known[fault.name] = search(fault, self._campaign)
                    told(known[fault.name])
                    continue
                plan = self._plan(self._campaign.first + number - 1, fault)
                if self._targeted or fault.name in self._reaches(plan):
                    known[fault.name] = self._looked(patch, plan, before, number)
                    told(known[fault.name])
                else:
                    known[fault.name] = replace(before, seeds=number)

    def _looked(self, patch: warm.Patch, plan: Plan, before: Found, number: int) -> Found:
        result = self._run(plan, patch.apply)
        took = before.seconds + result.cpu_seconds
        for rule, _, text in result.violations:
            if rule[:1].isdigit():
                if self._targeted and self._run(plan, lambda: None).violations:
                    break  # nor is it clean without the fault
                return replace(before, seeds=number, seconds=took, rule=rule, text=text)
        problems = [f"seed {plan.seed}: {rule}: {_last_words(text)}" for rule, _, text in result.violations]
        return replace(before, seeds=number, seconds=took, problem=problems[0] if problems else before.problem)

    def _plan(self, seed: int, fault: Planted) -> Plan:
        from spritz_testing.daemons.plan import scale_of
        from spritz_testing.daemons.runs.campaign import plan_of

        parts = PARTS.intersection(fault.needs) or self._options.parts or frozenset()
        scale = scale_of(self._options.scale, seed, frozenset(parts))
        if self._targeted:
            scale = structs.replace(scale, faults=24, unusual=2.0, kinds=frozenset(fault.kinds))
        return plan_of(seed, scale)

    def _run(self, plan: Plan, before: Callable[[], None]) -> Result:
        from spritz_testing.daemons.runs.campaign import results
        from spritz_testing.daemons.runs.run import run

        def changed(plan: Plan, root: Path) -> Result:
            before()
            result = run(plan, root, ends_early=True)
            result.story, result.history, result.transcript = [], [], []
            return result

        return next(
            result for _, result in results([plan], jobs=1, run_seconds_max=self._options.run_seconds, run=changed)
        )

    def _reaches(self, plan: Plan) -> list[str]:
        """Names of the faults whose lines this plan executes."""
        key = f"{plan.seed} {self._options.scale} {','.join(sorted(plan.scale.parts))}"
        if key not in self._reached:
            from spritz_testing.daemons.runs.campaign import results
            from spritz_testing.daemons.runs.run import run

            def noted(plan: Plan, root: Path) -> Result:
                reach = warm.Reach(FAULTS)
                reach.watch()
                result = run(plan, root)
                names = dict.fromkeys(sorted(reach.reached), 1)
                result.story, result.history, result.transcript = [], [], []
                result.counts = names
                return result

            result = next(result for _, result in results([plan], jobs=1, run=noted))
            for rule, _, text in result.violations[:1]:
                print(f"seed {plan.seed} proves nothing: without a fault {rule}: {_last_words(text)}", flush=True)
            # A seed that is not clean without a fault is not tried with one.
            self._reached[key] = [] if result.violations else sorted(result.counts)
            if self._reach_file is not None:
                self._reach_file.write_text(json.dumps(self._reached), encoding="utf-8")
        return self._reached[key]


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
        *(sys.executable, "-m", "spritz_testing.daemons"),
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
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1", "PYTHONHASHSEED": "0"}


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


# Results that outlast an interruption


def append_result(path: Path, found: Found) -> None:
    """Add a line of JSON to the file."""
    fields = {name: getattr(found, name) for name in _KEPT}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"fault": found.fault.name, **fields}) + "\n")


def read_results(path: Path) -> dict[str, Found]:
    """What the file has: by the fault's name, the last of each. Faults that are planted no more are left out."""
    faults = {fault.name: fault for fault in FAULTS}
    results: dict[str, Found] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        fields = json.loads(line)
        if fault := faults.get(fields["fault"]):
            results[fault.name] = Found(fault=fault, **{name: fields[name] for name in _KEPT})
    return results


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
    faults = [fault for fault in faults if options.needs_no not in fault.needs]
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
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="keep results as JSON lines; what is there is not tried"
    )
    parser.add_argument("--warm", action="store_true", help="plant faults in forked children of one process")
    parser.add_argument("--targeted", action="store_true", help="with --warm: many faults of the kinds that each needs")
    parser.add_argument("--reach", type=Path, metavar="FILE", help="with --warm: keep which seeds reach which faults")
    parser.add_argument("--needs-no", default="", metavar="PART", help="leave out faults that need this part")
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

    known = read_results(options.results) if options.results else {}

    def told(found: Found) -> None:
        if options.results:
            append_result(options.results, found)
        print(_line(row_of(found)), flush=True)

    def searched(fault: Planted) -> Found:
        if fault.name not in known:
            known[fault.name] = search(fault, campaign)
            told(known[fault.name])
        return known[fault.name]

    print(_line(("fault", "rule", "seeds", "found by", "seconds", "first violation")))
    if options.warm:
        WarmSearch(faults, campaign, options.reach, targeted=options.targeted).search(faults, known, told)
    else:
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(searched, faults))
    results = [known[fault.name] for fault in faults]
    print(f"\n{summary(results)}")
    if options.report:
        options.report.write_text(markdown(results, seeds=options.seeds), encoding="utf-8")
    return 0 if all(result.is_found for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
