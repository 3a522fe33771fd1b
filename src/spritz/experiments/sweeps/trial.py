"""A program next to a trial, in its job: `python -P -E -m spritz.experiments.sweeps.trial VERB SWEEP-DIRECTORY INDEX …`

ask                        draw the trial's parameters from what the others have reported
watch … RESTART PROCESS    stop PROCESS when the trial is not worth going on
notify … EVENT             tell somebody that the sweep has ended, or what happened to the trial

They write into the trial's own directory alone. A trial that is started again keeps its parameters.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from spritz.experiments import notify, record
from spritz.experiments.errors import ExperimentError
from spritz.experiments.sweeps import sampler, space, stopping, trials
from spritz.experiments.sweeps import sweep as sweeps
from spritz.experiments.sweeps.sweep import Sweep

_LOOK_SECONDS = 0.5
#: srun is asked again, then killed
_ASK_AGAIN_SECONDS = 5.0
_KILL_SECONDS = 20.0


def main(words: list[str]) -> int:
    """0, or 1 with a line on standard error."""
    try:
        verb, directory, index, *rest = words
        path = Path(directory)
        sweep = sweeps.read(path.parent.parent, path.name)
        if verb == "ask":
            ask(sweep, int(index))
        elif verb == "notify":
            return tell(sweep, int(index), rest[0])
        else:
            watch(sweep, int(index), int(rest[0]), int(rest[1]))
    except ExperimentError as error:
        sys.stderr.write(f"spritz: {error.message}{f' ({error.hint})' if error.hint else ''}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"spritz: {error}\n")
        return 1
    return 0


def ask(sweep: Sweep, index: int) -> None:
    """Draw the parameters and write them down."""
    directory = sweep.runs / trials.name_of(sweep.name, index)
    point = next(trials.lines(directory / "params.json"), None)
    if point is None:
        others = [trial for trial in sweep.read_trials() if trial.index != index and trial.parameters]
        complete = [trial for trial in others if trial.state == "COMPLETED"]
        if complete and all(trial.value is None for trial in complete):
            sys.stderr.write(f"spritz: none of {len(complete)} complete trials has reported {sweep.plan.metric}\n")
        point = sampler.ask(sweep.plan, others, index)
    run = record.read(directory)
    run.parameters, run.command = dict(point), sweep.plan.command_of(point)
    record.write(directory, run)
    trials.write_parameters(directory, point, sweeps.assignments(sweep.plan, point))


def tell(sweep: Sweep, index: int, event: str) -> int:
    """0 if everybody with an address in $SPRITZ_NOTIFY was told."""
    if event == "ended":
        title, text = summary(sweep)
    else:
        title, text = notify.message(sweep.runs / trials.name_of(sweep.name, index), event)
    missing = notify.send(notify.addresses((), os.environ), title, text)
    for line in missing:
        print(f"{os.uname().nodename}: {line}")
    return 1 if missing else 0


def summary(sweep: Sweep) -> tuple[str, str]:
    """Title and text of a sweep whose trials have all ended."""
    found = sweep.read_trials()
    count = Counter(trial.state for trial in found)
    lines = [", ".join(f"{number} {state.lower()}" for state, number in sorted(count.items()))]
    values = [(trial.value, trial) for trial in found if trial.state == "COMPLETED" and trial.value is not None]
    if values:
        value, best = (max if sweep.plan.maximize else min)(values, key=lambda item: item[0])
        point = " ".join(f"{name}={space.written(each)}" for name, each in best.parameters.items())
        lines.append(f"best: {best.directory.name}  {sweep.plan.metric} {value:g}  {point}")
    lines.append(f"spritz sweep --status {sweep.name}")
    return f"{sweep.name} ended", "\n".join(lines)


def watch(sweep: Sweep, index: int, restart: int, process: int) -> None:
    """Look at the trial's reports until the policy stops it or its command ends."""
    plan, parent = sweep.plan, os.getppid()
    own = trials.Reports(sweep.runs / trials.name_of(sweep.name, index) / "metrics.jsonl", plan.metric)
    # What an earlier life of the trial has reported was judged then.
    judged = max(own.read(), default=-1) if restart else -1
    files = {
        other: trials.Reports(sweep.runs / trials.name_of(sweep.name, other) / "metrics.jsonl", plan.metric)
        for other in sweep.indices
        if other != index
    }
    while os.getppid() == parent and _alive(process):
        reports = own.read()
        if reports and max(reports) > judged:
            why = stopping.stop(
                plan.early_stopping, reports, _peers(sweep, files), maximize=plan.maximize, judged=judged
            )
            judged = max(reports)
            if why:
                directory = sweep.runs / trials.name_of(sweep.name, index)
                record.append(directory, "pruned", time.time(), restart=restart, step=judged, reason=why)
                _end(process)
                return
        time.sleep(_LOOK_SECONDS)


def _peers(sweep: Sweep, files: dict[int, trials.Reports]) -> list[stopping.Peer]:
    found = []
    for index, reports in files.items():
        values = reports.read()
        if not values:
            continue
        complete = False
        if sweep.plan.early_stopping.method == "median":
            complete = trials.read(sweep.runs, sweep.name, index, sweep.plan.metric).state == "COMPLETED"
        found.append(stopping.Peer(values, complete))
    return found


def _end(process: int) -> None:
    """End srun, which takes its tasks with it; its GPUs are free then."""
    begin = asked_at = time.monotonic()
    _send(process, signal.SIGTERM)
    while _alive(process):
        now = time.monotonic()
        if now - begin > _KILL_SECONDS:
            _send(process, signal.SIGKILL)
            return
        if now - asked_at > _ASK_AGAIN_SECONDS:
            asked_at = now
            _send(process, signal.SIGTERM)
        time.sleep(0.1)


def _send(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def _alive(process: int) -> bool:
    """Whether it runs; a process that has ended but not been waited for does not."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
