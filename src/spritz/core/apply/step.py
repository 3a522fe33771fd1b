"""How events about steps change the state.

An ended step's record goes; the worst exit status of the steps stays with the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spritz.core.job.exit_status import OOM_STATUS
from spritz.model.events import step as events
from spritz.model.ids import STEP_BATCH, STEP_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.core.state import State
    from spritz.model.events import Event


def _opened(state: State, event: events.StepOpened) -> None:
    step = event.step
    state.put_step(step)
    job = state.jobs[step.job_id]
    if job.next_step_id <= step.step_id <= STEP_MAX:
        state.put_job(replace(job, next_step_id=step.step_id + 1))


def _launched(state: State, event: events.StepLaunched) -> None:
    step = state.steps[event.job_id][event.step_id]
    state.put_step(replace(step, unstarted_nodes=tuple(name for name in step.unstarted_nodes if name != event.node)))


def _cancelled(state: State, event: events.StepCancelled) -> None:
    step = state.steps[event.job_id][event.step_id]
    state.put_step(replace(step, cancelled=True))


def _node_ended(state: State, event: events.StepNodeEnded) -> None:
    step = state.steps[event.job_id][event.step_id]
    state.put_step(
        replace(
            step,
            running_nodes=tuple(name for name in step.running_nodes if name != event.node),
            unstarted_nodes=tuple(name for name in step.unstarted_nodes if name != event.node),
            exit_status=max(step.exit_status, event.exit_status),
            oom=step.oom or event.oom,
        )
    )


def _ended(state: State, event: events.StepEnded) -> None:
    state.drop_step(event.job_id, event.step_id)
    job = state.jobs.get(event.job_id)
    if job is None or not event.exit_status:
        return
    if event.step_id == STEP_BATCH:
        if job.state.ended and not job.exit_status:
            # The script of a job that was told to end reports its own exit status.
            state.put_job(replace(job, exit_status=event.exit_status))
    elif event.step_id <= STEP_MAX:
        # Also if the job ended before its step, or was queued again. Accounting keeps what JobEnded said, as in Slurm.
        worst = (
            event.exit_status if event.exit_status == OOM_STATUS else max(job.derived_exit_status, event.exit_status)
        )
        state.put_job(replace(job, derived_exit_status=worst))


# Any: each function takes its own kind of event.
APPLIERS: dict[type[Event], Callable[[State, Any], None]] = {
    events.StepOpened: _opened,
    events.StepLaunched: _launched,
    events.StepCancelled: _cancelled,
    events.StepNodeEnded: _node_ended,
    events.StepEnded: _ended,
}
