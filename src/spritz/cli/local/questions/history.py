"""Show what happened to jobs since their submission: why they waited, where they ran, how they ended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.cli.listings.acct.conditions import picks_of
from spritz.cli.listings.acct.connect import connected
from spritz.cli.local.questions.runs import job_numbers
from spritz.model.accounting.records import AskHistory, Histories
from spritz.model.ids import STEP_BATCH, step_name
from spritz.notation.duration import format_duration
from spritz.notation.oneline import one_line
from spritz.notation.times import format_time
from spritz.presentation.accounting.accounting_row import Row

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from spritz.model.accounting.records import JobHistory


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="ids as squeue prints them: 7, 12_3; or names of runs")
    parser.add_argument("--json", action="store_true", help="all details as JSON")


def run(arguments: Namespace, context: Context) -> int:
    """0; 1 if accounting knows no such job, or no daemon answers."""
    try:
        text = ",".join(job_numbers(arguments.jobs, context))
        histories = _asked(text, context)
    except AlreadyReported as silent:
        return silent.exit_code
    if not histories.lives:
        context.error(f"accounting knows no job {text}")
        return 1
    if arguments.json:
        context.out(json.dumps(msgspec.to_builtins(histories), indent=2) + "\n")
        return 0
    blocks = ["".join(line + "\n" for line in text_lines(life, histories.now)) for life in histories.lives]
    context.out("\n".join(blocks))
    return 0


def _asked(text: str, context: Context) -> Histories:
    picks = picks_of(text)
    connection, cluster = connected(context)
    with connection:
        return connection.call(AskHistory(clusters=(cluster,), picks=picks), Histories, timeout=60.0)


def text_lines(life: JobHistory, now: float) -> list[str]:
    """The events of a job from its submission (or requeue) to its end, a line each, in order of time."""
    job = life.job
    again = f", restart {job.restart_count}" if job.restart_count else ""
    title = f"Job {Row(job, None, [], now, (0.0, 0.0)).job_name()} ({job.name}) of {job.user}{again}"
    moments = sorted(_moments(life, now), key=lambda moment: moment[:2])
    return [one_line(title), *(f"  {format_time(at)}  {one_line(words)}" for at, _, words in moments)]


def _moments(life: JobHistory, now: float) -> Iterator[tuple[float, int, str]]:
    """(seconds since the epoch, rank among events of the same second, text)."""
    job = life.job
    line = " ".join(job.submit_line.split())
    how = "requeued" if job.restart_count else f"submitted: {line}" if line else "submitted"
    yield job.submitted_at, 0, how
    if job.eligible_at > job.submitted_at:
        yield job.eligible_at, 1, "may start from now on"
    ends = [reason.at for reason in life.reasons[1:]] + [job.started_at or job.ended_at or now]
    for reason, end in zip(life.reasons, ends, strict=False):  # `ends` has one item more if there are no reasons
        if reason.reason != "None":
            detail = f" ({reason.detail})" if reason.detail else ""
            yield reason.at, 2, f"waits: {reason.reason}{detail}, for {_span(reason.at, end)}"
    if job.nodes:
        yield job.started_at, 3, f"started on {job.nodes} with {job.tres_allocated}"
    for step in life.steps:
        name = step_name(step.step_id) + (f" ({step.name})" if step.name not in ("", "batch", "extern") else "")
        if step.step_id != STEP_BATCH:
            yield step.started_at, 4, f"step {name} started: {step.tasks} task{'s' * (step.tasks > 1)} on {step.nodes}"
        if step.ended_at and step.step_id != STEP_BATCH:
            memory = " out of memory" if step.oom else ""
            yield step.ended_at, 6, f"step {name} ended: {step.state}{memory} {_exit(step.exit_status)}"
    for pause in life.suspensions:
        yield pause.started_at, 5, "suspended"
        if pause.ended_at:
            yield pause.ended_at, 5, f"resumed after {_span(pause.started_at, pause.ended_at)}"
    if job.ended_at:
        failed = f", {job.failed_node} failed" if job.failed_node else ""
        ran = f" after {_span(job.started_at, job.ended_at)}" if job.nodes else ""
        state = Row(job, None, [], now, (0.0, 0.0)).state
        yield job.ended_at, 7, f"ended{ran}: {state} {_exit(job.exit_status)}{failed}"
    elif job.started_at:
        yield now, 8, f"runs since {_span(job.started_at, now)}"


def _exit(status: int) -> str:
    return f"{status >> 8}:{status & 0x7F}"


def _span(since: float, until: float) -> str:
    """The difference of the two times rounded down to seconds, as in sacct's Elapsed."""
    return format_duration(max(0, int(until) - int(since)))
