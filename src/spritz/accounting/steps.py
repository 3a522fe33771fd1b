"""What events say of steps. Pure; used by `ledger`.

A batch script's step begins with its job; every other one opens by an event of its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from spritz.accounting import usage
from spritz.model import job_tres
from spritz.model.accounting import StepRecord
from spritz.model.ids import STEP_BATCH, step_name
from spritz.notation import hostlist, tres

if TYPE_CHECKING:
    from spritz.accounting.ledger import Ledger
    from spritz.model.accounting import JobRecord
    from spritz.model.events import job as job_events
    from spritz.model.events import step as events
    from spritz.model.step import Step

_NAME_LENGTH = 255


@lru_cache(8192)
def tres_text(pairs: tuple[tuple[str, int], ...]) -> str:
    """`cpu=4,mem=8G,node=1`: most jobs are like others."""
    return tres.format(pairs)


def begin_batch(ledger: Ledger, job: JobRecord, event: job_events.JobStarted) -> None:
    """The batch script's step, on the job's first node."""
    first = event.allocation.nodes[0]
    given = job_tres.pairs_of((first,))
    ledger.begin_step(
        StepRecord(
            number=job.number,
            step_id=STEP_BATCH,
            job_id=job.job_id,
            name="batch",
            started_at=event.at,
            tasks=1,
            cpus=given[0][1],
            nodes=first.node,
            node_count=1,
            tres_allocated=tres_text(tuple([pair for pair in given if pair[0] != "billing"])),
        )
    )


def record_of(number: int, step: Step) -> StepRecord:
    """A whole step as a record."""
    spec = step.spec
    shares = tuple(node.allocation for node in step.nodes)
    given = job_tres.pairs_of(shares)
    return StepRecord(
        number=number,
        step_id=step.step_id,
        job_id=step.job_id,
        name=_text(spec.name or step_name(step.step_id))[:_NAME_LENGTH],
        state=step.state.value,
        started_at=step.started_at,
        ended_at=step.ended_at,
        exit_status=step.exit_status,
        oom=step.oom,
        tasks=step.tasks,
        cpus=given[0][1],
        nodes=hostlist.compress(step.node_names),
        node_count=len(shares),
        tres_allocated=tres_text(tuple([pair for pair in given if pair[0] != "billing"])),
        layout=_text(spec.distribution)[:_NAME_LENGTH],
        submit_line=_text(spec.submit_line),
        work_dir=_text(spec.work_dir),
        stdin=_text(spec.stdin),
        stdout=_text(spec.stdout),
        stderr=_text(spec.stderr),
    )


def opened(ledger: Ledger, place: int, event: events.StepOpened) -> None:
    """A step was laid out."""
    job = ledger.jobs.get(event.step.job_id)
    if job is not None:
        ledger.begin_step(record_of(job.number, event.step))


def launched(ledger: Ledger, place: int, event: events.StepLaunched) -> None:
    """All tasks of one node run: nothing of it is kept."""


def cancelled(ledger: Ledger, place: int, event: events.StepCancelled) -> None:
    """Somebody asked for its end."""
    step = ledger.open_step(event.job_id, event.step_id)
    if step is not None:
        step.cancelled_by = event.by_uid


def node_ended(ledger: Ledger, place: int, event: events.StepNodeEnded) -> None:
    """One of its nodes is done."""
    step = ledger.open_step(event.job_id, event.step_id)
    if step is not None:
        usage.add(step, event.node, event.usage)
        step.oom = step.oom or event.oom


def ended(ledger: Ledger, place: int, event: events.StepEnded) -> None:
    """The last one is."""
    step = ledger.open_step(event.job_id, event.step_id)
    if step is None:
        return
    if event.node:
        usage.add(step, event.node, event.usage)
    step.state, step.ended_at = event.state.value, event.at
    step.exit_status = event.exit_status
    step.oom = step.oom or event.oom
    if step.state == "CANCELLED" and step.cancelled_by < 0:
        job = ledger.jobs[event.job_id]
        assert job is not None, "it has an open step"
        step.cancelled_by = job.cancelled_by
    usage.average(step)
    del ledger.steps[ledger.jobs[event.job_id].number][event.step_id]  # type: ignore[union-attr]  # as above


def _text(value: str) -> str:
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in value else value
