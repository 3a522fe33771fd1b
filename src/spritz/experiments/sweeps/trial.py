"""A program in a trial's job: `python -P -E -m spritz.experiments.sweeps.trial VERB SWEEP-DIRECTORY INDEX …`

ask                        draw the trial's parameters, from the reports of the other trials
watch … RESTART PROCESS    stop PROCESS once early stopping decides against the trial
notify … EVENT             send a notification about the sweep's end, or about an event of the trial

They write only into the trial's own directory. A restarted trial keeps its parameters.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from spritz.experiments import notify
from spritz.experiments.errors import ExperimentError
from spritz.experiments.records import record
from spritz.experiments.sweeps import sampler, space, stopping, trials
from spritz.experiments.sweeps import sweep as sweeps
from spritz.experiments.sweeps.sweep import Sweep
from spritz.process_identity import Process, identify, lives, send

_LOOK_SECONDS = 0.5
#: Seconds until srun gets a second signal, and until it is killed.
_ASK_AGAIN_SECONDS = 5.0
_KILL_SECONDS = 20.0


def main(words: list[str]) -> int:
    """0, or 1 with a line on standard error."""
    try:
        verb, directory, index, *following = words
        path = Path(directory)
        sweep = sweeps.read(path.parent.parent, path.name)
        if verb == "ask":
            ask(sweep, int(index))
        elif verb == "notify":
            return tell(sweep, int(index), following[0])
        else:
            watch(sweep, int(index), int(following[0]), int(following[1]))
    except ExperimentError as error:
        sys.stderr.write(f"spritz: {error.message}{f' ({error.hint})' if error.hint else ''}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"spritz: {error}\n")
        return 1
    return 0


def ask(sweep: Sweep, index: int) -> None:
    """Draw the parameters and store them."""
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
    """0 if all addresses in $SPRITZ_NOTIFY were notified."""
    if event == "ended":
        title, text = summary(sweep)
    else:
        title, text = notify.message(sweep.runs / trials.name_of(sweep.name, index), event)
    missing = notify.send(notify.addresses((), os.environ), title, text)
    for line in missing:
        print(f"{os.uname().nodename}: {line}")
    return 1 if missing else 0


def summary(sweep: Sweep) -> tuple[str, str]:
    """Title and text of the notification about a sweep's end."""
    trials = sweep.read_trials()
    count = Counter(trial.state for trial in trials)
    lines = [", ".join(f"{number} {state.lower()}" for state, number in sorted(count.items()))]
    values = [(trial.value, trial) for trial in trials if trial.state == "COMPLETED" and trial.value is not None]
    if values:
        value, best = (max if sweep.plan.maximize else min)(values, key=lambda item: item[0])
        point = " ".join(f"{name}={space.written(setting)}" for name, setting in best.parameters.items())
        lines.append(f"best: {best.directory.name}  {sweep.plan.metric} {value:g}  {point}")
    lines.append(f"spritz sweep --status {sweep.name}")
    return f"{sweep.name} ended", "\n".join(lines)


def watch(sweep: Sweep, index: int, restart: int, process: int) -> None:
    """Watch the trial's reports until the policy stops it or its command ends."""
    plan, parent, command = sweep.plan, os.getppid(), identify(process)
    trial_reports = trials.Reports(sweep.runs / trials.name_of(sweep.name, index), plan.metric)
    # Reports from before the last restart were judged before it.
    judged = max(trial_reports.read(), default=-1) if restart else -1
    files = {
        other: trials.Reports(sweep.runs / trials.name_of(sweep.name, other), plan.metric)
        for other in sweep.indices
        if other != index
    }
    while os.getppid() == parent and lives(command):
        reports = trial_reports.read()
        if reports and max(reports) > judged:
            why = stopping.stop(
                plan.early_stopping, reports, _peers(sweep, files), maximize=plan.maximize, judged=judged
            )
            judged = max(reports)
            if why:
                directory = sweep.runs / trials.name_of(sweep.name, index)
                record.append(directory, "pruned", time.time(), restart=restart, step=judged, reason=why, **_life())
                _end(command)
                return
        time.sleep(_LOOK_SECONDS)


def _life() -> dict[str, int]:
    number = os.environ.get("SPRITZ_LIFE", "")
    return {"life": int(number)} if number.isdecimal() else {}


def _peers(sweep: Sweep, files: dict[int, trials.Reports]) -> list[stopping.Peer]:
    peers = []
    for index, reports in files.items():
        values = reports.read()
        if not values:
            continue
        complete = False
        if sweep.plan.early_stopping.method == "median":
            complete = trials.read(sweep.runs, sweep.name, index, sweep.plan.metric).state == "COMPLETED"
        peers.append(stopping.Peer(values, complete))
    return peers


def _end(process: Process) -> None:
    """End srun, which ends its tasks and frees their GPUs."""
    begin = asked_at = time.monotonic()
    send(process, signal.SIGTERM)
    while lives(process):
        now = time.monotonic()
        if now - begin > _KILL_SECONDS:
            send(process, signal.SIGKILL)
            return
        if now - asked_at > _ASK_AGAIN_SECONDS:
            asked_at = now
            send(process, signal.SIGTERM)
        time.sleep(0.1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
