"""strigger: triggers are set, pulled, fired and cleared. `controller.programs.triggers` watches for their events.

Source: strigger(1); order of refusals and their words as 22.05 has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.core.decision import DecisionContext, Refused
from spritz.model.commands.job import Done
from spritz.model.events.trigger import TriggersCleared, TriggerSet, TriggersFired, TriggersPulled
from spritz.model.triggers import EVENTS, NODE_EVENTS, OFFSET_MAX, Trigger
from spritz.notation import hostlist
from spritz.notation.errors import NotationError

if TYPE_CHECKING:
    from spritz.model.triggers import ClearTriggers, FireTriggers, PullTriggers, SetTrigger

_OF_JOBS = frozenset({*NODE_EVENTS, "fini", "time"})


def set_trigger(context: DecisionContext, command: SetTrigger) -> Done:
    """Set a trigger. The controller has checked the right to do so: the program runs there."""
    state = context.state
    if not context.caller.admin and len(state.triggers) >= state.settings.max_job_count:
        raise Refused("ESLURM_MAX_JOB_COUNT")
    if command.job_id:
        job = state.jobs.get(command.job_id)
        if job is None:
            raise Refused("ESLURM_INVALID_JOB_ID")
        if job.state.ended:
            raise Refused("ESLURM_ALREADY_DONE")
    elif command.nodes != "*":
        try:
            names = hostlist.expand(command.nodes)
        except NotationError as error:
            raise Refused("ESLURM_INVALID_NODE_NAME", hint=str(error)) from error
        if not names or any(name not in state.nodes for name in names):
            raise Refused("ESLURM_INVALID_NODE_NAME")
    events = set(command.events)
    fit = events <= _OF_JOBS if command.job_id else not events & {"fini", "time"}
    if not events or not events <= EVENTS or not fit or not command.program.startswith("/"):
        raise Refused(
            "ESLURM_NOT_SUPPORTED",
            hint="there is no such event for this kind of resource, or the program is not an absolute path",
        )
    if abs(command.offset_seconds) > OFFSET_MAX:
        raise Refused("ESLURM_INVALID_TIME_VALUE", hint=f"the offset may be at most {OFFSET_MAX} seconds")
    trigger = Trigger(
        id=state.next_trigger_id,
        events=command.events,
        program=command.program,
        uid=context.caller.uid,
        user=context.caller.user,
        job_id=command.job_id,
        nodes=command.nodes,
        offset_seconds=command.offset_seconds,
        permanent=command.permanent,
    )
    if any(replace(other, id=trigger.id, pulls=()) == trigger for other in state.triggers.values()):
        raise Refused("ESLURM_TRIGGER_DUP")
    context.record(TriggerSet(at=context.now, trigger=trigger))
    return Done()


def clear_triggers(context: DecisionContext, command: ClearTriggers) -> Done:
    """Clear triggers; only root clears those of other users."""
    if not (command.id or command.job_id or command.uid >= 0):
        raise Refused("ESLURM_NOT_SUPPORTED", hint="name a trigger, a job or a user")
    matching = [
        trigger
        for trigger in context.state.triggers.values()
        if command.id in (0, trigger.id) and command.job_id in (0, trigger.job_id) and command.uid in (-1, trigger.uid)
    ]
    permitted = [trigger.id for trigger in matching if context.caller.admin or trigger.uid == context.caller.uid]
    if matching and not permitted:
        raise Refused("ESLURM_ACCESS_DENIED")
    if not permitted:
        raise Refused("ESRCH", "No such process")
    context.record(TriggersCleared(at=context.now, ids=tuple(permitted)))
    return Done()


def pull_triggers(context: DecisionContext, command: PullTriggers) -> Done:
    """Mark triggers as pulled; those cleared in the meantime are skipped."""
    pulls = tuple(pull for pull in command.pulls if pull.id in context.state.triggers)
    gone = tuple(number for number in command.gone if number in context.state.triggers)
    if pulls:
        context.record(TriggersPulled(at=context.now, pulls=pulls))
    if gone:
        context.record(TriggersCleared(at=context.now, ids=gone))
    return Done()


def fire_triggers(context: DecisionContext, command: FireTriggers) -> Done:
    """Mark triggers as fired. Refused as a whole if one was cleared in the meantime: its program must not run."""
    for pull in command.pulls:
        trigger = context.state.triggers.get(pull.id)
        if trigger is None or pull not in trigger.pulls:
            raise Refused("ESRCH", "No such process")
    context.record(TriggersFired(at=context.now, pulls=command.pulls))
    return Done()
