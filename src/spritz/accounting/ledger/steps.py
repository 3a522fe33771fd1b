"""Step events as records. Pure; used by `ledger`.

A batch script's step begins with its job; every other step has an event of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spritz.model.accounting import step_usage as usage
from spritz.model.accounting.accounting_of import step_record_of, tres_text
from spritz.model.accounting.records import StepRecord
from spritz.model.ids import STEP_BATCH
from spritz.model.rules import job_tres

if TYPE_CHECKING:
    from spritz.model.accounting.records import JobRecord
    from spritz.model.events import job as job_events
    from spritz.model.events import step as events


class StepBook(Protocol):
    """The records of jobs and their steps (`ledger.Ledger`)."""

    @property
    def jobs(self) -> dict[int, JobRecord | None]: ...

    @property
    def steps(self) -> dict[int, dict[int, StepRecord]]: ...

    def begin_step(self, record: StepRecord) -> None: ...

    def open_step(self, job_id: int, step_id: int) -> StepRecord | None: ...


def begin_batch(ledger: StepBook, job: JobRecord, event: job_events.JobStarted) -> None:
    """Open the batch script's step, on the job's first node."""
    first = event.allocation.nodes[0]
    pairs = job_tres.pairs_of((first,))
    ledger.begin_step(
        StepRecord(
            number=job.number,
            step_id=STEP_BATCH,
            job_id=job.job_id,
            name="batch",
            started_at=event.at,
            tasks=1,
            cpus=pairs[0][1],
            nodes=first.node,
            node_count=1,
            container=job.container,
            tres_allocated=tres_text(tuple([pair for pair in pairs if pair[0] != "billing"])),
        )
    )


def opened(ledger: StepBook, place: int, event: events.StepOpened) -> None:
    job = ledger.jobs.get(event.step.job_id)
    if job is not None:
        ledger.begin_step(step_record_of(job.number, event.step))


def launched(ledger: StepBook, place: int, event: events.StepLaunched) -> None:
    """Nothing to record: all tasks of one node have started."""


def cancelled(ledger: StepBook, place: int, event: events.StepCancelled) -> None:
    step = ledger.open_step(event.job_id, event.step_id)
    if step is not None:
        step.cancelled_by = event.by_uid


def node_ended(ledger: StepBook, place: int, event: events.StepNodeEnded) -> None:
    """Add what one of its nodes reported."""
    step = ledger.open_step(event.job_id, event.step_id)
    if step is not None:
        usage.add(step, event.node, event.usage)
        step.oom = step.oom or event.oom


def ended(ledger: StepBook, place: int, event: events.StepEnded) -> None:
    """Close the step with its state and usage; without effect if it is not open."""
    step = ledger.open_step(event.job_id, event.step_id)
    if step is None:
        return
    if event.node:
        usage.add(step, event.node, event.usage)
    step.state, step.ended_at = event.state.value, event.at
    step.started_at = min(step.started_at, event.at)  # the same for its job
    step.exit_status = event.exit_status
    step.oom = step.oom or event.oom
    if step.state == "FAILED" and event.exit_status & 0x7F and not step.oom:
        step.state = "CANCELLED"  # slurmdbd's state for a step that ended by any signal
    usage.average(step)
    del ledger.steps[ledger.jobs[event.job_id].number][event.step_id]  # type: ignore[union-attr]  # as above
