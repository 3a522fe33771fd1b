"""`python -m spritz_testing.daemons`: run seeds, make the first that fails smaller, and replay what was found.

Exits with 0 if no rule was violated, 1 if one was, 2 for a mistake in the command line.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import msgspec.json
import msgspec.structs

import spritz
from spritz_testing.daemons import coverage, seam
from spritz_testing.daemons.accounting.database import template
from spritz_testing.daemons.plan import MIXED, PARTS, SCALES, Plan, scale_of
from spritz_testing.daemons.runs import shrink
from spritz_testing.daemons.runs.campaign import RUN_SECONDS_MAX, Totals, campaign, plan_of, results
from spritz_testing.daemons.runs.run import Result, run

#: Where a run that failed is written, to be replayed.
_REPLAY_FILE = "build/simulate-{seed}.json"


def main(arguments: Sequence[str]) -> int:
    """Run the command. Returns its exit status."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets would differ from run to run
        os.environ["PYTHONHASHSEED"] = "0"
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, "-m", "spritz_testing.daemons", *arguments])
    options = parser().parse_args(arguments)
    return _replay(options) if options.replay is not None else _campaign(options)


# The command line


def parser() -> argparse.ArgumentParser:
    """Of the options."""
    parser = argparse.ArgumentParser(
        prog="python -m spritz_testing.daemons",
        description="Run the real daemons on virtual time under faults drawn from a seed, and check what users saw.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seeds", type=_seeds, metavar="N|FIRST-LAST", help="seeds 1 to N, or a range (default: 10)")
    what.add_argument("--seed", type=int, metavar="S", help="this one alone")
    what.add_argument("--replay", type=Path, metavar="FILE", help="repeat a run that was written to a file")
    parser.add_argument(
        "--scale", choices=(MIXED, *SCALES), default=MIXED, help="size of each run (default: another one for each seed)"
    )
    parser.add_argument(
        "--parts", type=_parts, metavar="PART,…", help=f"optional parts of the cluster: {', '.join(sorted(PARTS))}"
    )
    parser.add_argument("--jobs", type=_positive, default=0, metavar="N", help="runs at a time (default: one a CPU)")
    parser.add_argument("--seconds", type=float, default=0.0, metavar="LIMIT", help="begin no run after these seconds")
    parser.add_argument(
        "--run-seconds", type=float, default=RUN_SECONDS_MAX, metavar="LIMIT", help="take a run to be stuck after these"
    )
    parser.add_argument("--stop-at-first", action="store_true", help="stop when a rule is violated")
    parser.add_argument("--no-shrink", action="store_true", help="do not make the first failure smaller")
    parser.add_argument("--brief", action="store_true", help="tell no story of the first failure; write no replay")
    parser.add_argument("--story", action="store_true", help="print what happened, of --seed and --replay")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to a file")
    return parser


def _seeds(text: str) -> range:
    first, dash, last = text.partition("-")
    try:
        found = range(int(first), int(last) + 1) if dash else range(1, int(first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number, or FIRST-LAST: {text}") from None
    if not found:
        raise argparse.ArgumentTypeError(f"no seed is in {text}")
    return found


def _parts(text: str) -> frozenset[str]:
    parts = frozenset(part for part in text.split(",") if part)
    if unknown := parts - PARTS:
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: not one of {', '.join(sorted(PARTS))}")
    return parts


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"at least 1: {text}")
    return number


# Many seeds


def _warm(parts: frozenset[str]) -> None:
    """Load and make all that children will use, which they share."""
    seam.load_all()
    if "accounting" in parts:
        template()
    gc.freeze()


def _campaign(options: argparse.Namespace) -> int:
    _warm(scale_of(options.scale, 0, options.parts).parts)

    def plan(seed: int) -> Plan:
        return plan_of(seed, scale_of(options.scale, seed, options.parts))

    seeds = [options.seed] if options.seed is not None else options.seeds or range(1, 11)
    totals = campaign(
        (plan(seed) for seed in seeds),
        jobs=options.jobs,
        stop_at_first=options.stop_at_first,
        seconds_max=options.seconds,
        run_seconds_max=options.run_seconds,
        told=_Progress(len(seeds)),
    )
    print("\n".join(summary(totals)))
    first = totals.failures[0] if totals.failures else None
    replay = None
    if first is not None and not options.brief:
        replay, runs = _explain(plan(first.seed), first, options)
        totals.runs = totals.seeds + runs
    elif options.story and options.seed is not None:
        print("\n".join(_once(plan(options.seed)).transcript))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode(report(totals, replay)))
    return 1 if totals.failures else 0


def _explain(plan: Plan, failure: Result, options: argparse.Namespace) -> tuple[shrink.Replay, int]:
    """Print the first violation, made smaller, and write the file that replays it."""
    rule, at, text = failure.violations[0]
    print(f"\nseed {failure.seed}, commit {commit()}: after {at:.3f} s violated: {rule}\n  {_first_line(text)}")
    runs = 0
    if not options.no_shrink:
        progress = _Line()
        found = shrink.shrink(
            plan, rule, at, _run_all(options.jobs), at_once=_at_once(options.jobs), told=progress.show
        )
        progress.end()
        plan, runs = found.plan, found.runs
    result = _once(plan)
    replay = _replay_of(plan, rule, result)
    print(f"\n# seed {plan.seed}, {len(plan.actions)} actions, {plan.scale.nodes} nodes; commit {replay.commit}")
    print("\n".join(replay.story))
    path = Path(_REPLAY_FILE.format(seed=plan.seed))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(replay), indent=1) + b"\n")
    print(f"\nRepeat it: python -m spritz_testing.daemons --replay {path}")
    return replay, runs


def _replay_of(plan: Plan, rule: str, result: Result) -> shrink.Replay:
    """Of the run's violations, the one of that rule; or the first, if the smaller run has another one."""
    violations = [found for found in result.violations if found[0] == rule] or result.violations
    name, _, text = violations[0] if violations else (rule, 0.0, "did not happen again: the run is not repeatable")
    return shrink.Replay(
        commit=commit(), plan=plan, rule=name, text=text, digest=result.digest, story=result.transcript
    )


def _run_all(jobs: int) -> shrink.RunAll:
    def run_all(plans: Sequence[Plan]) -> list[Result]:
        ended = {id(plan): result for plan, result in results(plans, jobs=jobs)}
        return [ended[id(plan)] for plan in plans]

    return run_all


def _at_once(jobs: int) -> int:
    return jobs or len(os.sched_getaffinity(0))


def _once(plan: Plan) -> Result:
    """One run, with its transcript."""

    def told(plan: Plan, root: Path) -> Result:
        result = run(plan, root)
        result.story, result.history = [], []
        return result

    return next(result for _, result in results([plan], jobs=1, run=told))


# One run again


def _replay(options: argparse.Namespace) -> int:
    """Repeat a run, and say whether the same happened."""
    try:
        replay = msgspec.json.decode(options.replay.read_bytes(), type=shrink.Replay)
    except (OSError, msgspec.DecodeError) as error:
        print(f"{options.replay}: {error}", file=sys.stderr)
        return 2
    _warm(replay.plan.scale.parts)
    result = _once(replay.plan)
    print("\n".join(result.transcript))
    if result.digest == replay.digest:
        print("\nThe same, to the byte.")
    elif result.transcript == replay.story:
        print("\nThe same story; the daemons did something else in between.")
    else:
        print(f"\nNot the same as then (commit {replay.commit}; now {commit()}):")
        print("\n".join(_first_difference(replay.story, result.transcript)))
    return 1 if result.violations else 0


def _first_difference(then: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    ends = "(the story ends)"
    for before, after in zip([*then, ends], [*now, ends], strict=False):
        if before != after:
            yield f"  then: {before}"
            yield f"  now:  {after}"
            return


# What is printed


def commit() -> str:
    """Of the repository that this code is in; its version where there is none."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        where = Path(spritz.__file__).parent
        command = ["git", "-C", str(where), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
        if text:
            return text
    return f"spritz {spritz.__version__}"


def summary(totals: Totals) -> list[str]:
    """Sums for a reader."""
    injected = coverage.kinds(totals.counts, "fault")
    hit, of = coverage.awaits_hit(totals.counts)
    lines = [
        f"{totals.seeds} seeds, {len(totals.failures)} with a violation; commit {commit()}",
        f"{totals.virtual_seconds / 86_400:.2f} days of virtual time in {totals.cpu_seconds:.1f} s of CPU time"
        f" ({totals.ratio:,.0f} : 1), {totals.events:,} events",
        f"{totals.faults:,} faults: " + ", ".join(f"{name} {count}" for name, count in injected.items()),
        f"{len(coverage.kinds(totals.counts, 'message'))} kinds of messages",
        f"killed at {hit} of {of} await points",
    ]
    for result in totals.failures[:20]:
        rule, at, text = result.violations[0]
        lines.append(f"seed {result.seed}: {rule} (after {at:.3f} s): {_first_line(text)}")
    return lines


def report(totals: Totals, replay: shrink.Replay | None) -> dict[str, Any]:
    """As `--json` writes it. `seed`, `rule` and `text` are of the first violation, or null."""
    first = totals.failures[0] if totals.failures else None
    hit, of = coverage.awaits_hit(totals.counts)
    return {
        "commit": commit(),
        "seed": first.seed if first is not None else None,
        "rule": first.violations[0][0] if first is not None else None,
        "text": first.violations[0][2] if first is not None else None,
        "runs": totals.runs or totals.seeds,
        "seeds": totals.seeds,
        "failures": [{"seed": one.seed, "rule": one.violations[0][0]} for one in totals.failures],
        "counts": dict(sorted(totals.counts.items())),
        "faults": totals.faults,
        "events": totals.events,
        "await_points": {"killed_at": hit, "of": of},
        "virtual_seconds": totals.virtual_seconds,
        "cpu_seconds": totals.cpu_seconds,
        "replay": replay,
    }


def _first_line(text: str) -> str:
    """The line that says what is wrong: of a traceback the last."""
    lines = text.strip().splitlines() or [""]
    return lines[-1] if "Traceback" in text else lines[0]


class _Line:
    """A line on a terminal that is written again and again; nothing elsewhere."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()

    def show(self, text: str) -> None:
        if self._is_terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


class _Progress:
    """Shows how far a campaign is."""

    def __init__(self, seeds: int) -> None:
        self._seeds = seeds
        self._line = _Line()
        self._began = monotonic()

    def __call__(self, totals: Totals) -> None:
        seconds = monotonic() - self._began
        self._line.show(
            f"{totals.seeds}/{self._seeds} seeds, {totals.faults:,} faults, {len(totals.failures)} violations,"
            f" {totals.virtual_seconds / 3600:,.0f} virtual hours in {seconds:.0f} s"
        )
        if totals.seeds == self._seeds:
            self._line.end()
