"""A small sequential model of what a user can see of one job: the specification that rule 2 holds histories against.

A state changes by requests of users, one at a time, and between these by the cluster: a job starts, ends, is queued
again. What the cluster may do depends on what nodes have shown so far (`Seen`): a batch job cannot have COMPLETED
before its script ended with 0. Moments of starts and ends that
controller or accounting report at the end bound when these happened.

Source: scontrol(1) hold, release, requeue, suspend, top; scancel(1); squeue(1) JOB STATE CODES.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

from msgspec import Struct

from spritz.model.job.duties import updatable


class Phase(IntEnum):
    """What a job is doing; ABSENT: it was not submitted yet."""

    ABSENT = 0
    PENDING = 1
    RUNNING = 2
    SUSPENDED = 3
    ENDED = 4


LIVE = frozenset({Phase.PENDING, Phase.RUNNING, Phase.SUSPENDED})
ACTIVE = frozenset({Phase.RUNNING, Phase.SUSPENDED})

#: Ends that the model tells apart; all others are OTHER.
COMPLETED, CANCELLED, OTHER = "COMPLETED", "CANCELLED", "another end"


class State(NamedTuple):
    """One job as its user can know it."""

    phase: Phase = Phase.ABSENT
    #: restart count
    life: int = 0
    held: bool = False
    #: how it ended, and whether it had started in this life
    end: str = ""
    ran: bool = False
    #: values that updates have set, by name
    fields: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        words = [self.phase.name if self.phase is not Phase.ENDED else self.end]
        if self.held:
            words.append("held")
        if self.life:
            words.append(f"restart {self.life}")
        return " ".join(words + [f"{name}={value}" for name, value in self.fields])


class Permits(Struct, frozen=True, kw_only=True):
    """What the cluster may do to this job by itself, whenever it likes."""

    #: it may be queued again up to this restart count
    lives: int = 0
    #: it may suspend and resume it
    suspends: bool = False
    #: it may end it before its start: a dependency failed, its client went away, its deadline passed
    ends_waiting: bool = False
    #: it may hold it: its reservation ended
    holds: bool = False


START, AGAIN = "start", "again"

#: (restart count, what may happen to the job by now): START, AGAIN (it is queued again), COMPLETED, CANCELLED, OTHER
Seen = frozenset[tuple[int, str]]


def steps(state: State, seen: Seen, permits: Permits) -> list[State]:
    """States that the cluster may put the job into next, without a request."""
    life = state.life
    ends = [end for end in (COMPLETED, CANCELLED, OTHER) if (life, end) in seen]
    after = []
    if state.phase in ACTIVE:
        after = [_ended(state, end) for end in ends]
        if permits.suspends:
            after.append(state._replace(phase=_OTHER_PHASE[state.phase]))
        if life < permits.lives and (life, AGAIN) in seen:
            # a failed node, a preemption or a failed launch; the latter may hold it
            after += [queued_again(state, held=state.held), queued_again(state, held=True)]
    elif state.phase is Phase.PENDING:
        if not state.held and (life, START) in seen:
            after.append(state._replace(phase=Phase.RUNNING))
        if permits.ends_waiting:
            after += [_ended(state, end) for end in ends]
        if permits.holds and not state.held:
            after.append(state._replace(held=True))
    return after


#: fields of an update that may change when the job has ended
NOTES = updatable("always")

_OTHER_PHASE = {Phase.RUNNING: Phase.SUSPENDED, Phase.SUSPENDED: Phase.RUNNING}


def reachable(state: State, seen: Seen, permits: Permits) -> tuple[State, ...]:
    """The state, and all that the cluster may make of it before the next request."""
    states = {state: None}
    queue = [state]
    while queue:
        for after in steps(queue.pop(), seen, permits):
            if after not in states:
                states[after] = None
                queue.append(after)
    return tuple(states)


def _ended(state: State, end: str) -> State:
    return state._replace(phase=Phase.ENDED, end=end, ran=state.phase in ACTIVE)


def queued_again(state: State, *, held: bool) -> State:
    """The next life of the job, waiting."""
    return state._replace(phase=Phase.PENDING, life=state.life + 1, held=held, end="", ran=False)


class Request(NamedTuple):
    """A request on one job. `alone`: it named this job only; else it may have been for others, and changes nothing."""

    kind: str
    alone: bool = True
    held: bool = False
    fields: tuple[tuple[str, Any], ...] = ()


def carried_out(request: Request, state: State) -> State | None:
    """The state after a request that was not refused; None: it would have been refused in this state."""
    after = _AFTER[request.kind](request, state)
    return state if after is None and not request.alone and state.phase is not Phase.ABSENT else after


def _submit(request: Request, state: State) -> State | None:
    if state.phase is not Phase.ABSENT:
        return None
    return State(phase=Phase.PENDING, held=request.held, fields=request.fields)


def _cancel(_request: Request, state: State) -> State | None:
    if state.phase is Phase.ABSENT:
        return None
    return _ended(state, CANCELLED) if state.phase in LIVE else state


def _hold(_request: Request, state: State) -> State | None:
    return state._replace(held=True) if state.phase in LIVE else None


def _release(_request: Request, state: State) -> State | None:
    return state._replace(held=False) if state.phase in LIVE else None


def _update(request: Request, state: State) -> State | None:
    """`hold=False` is no part of it: it does nothing if an administrator holds the job (`linearizable._requests`)."""
    if state.phase is Phase.ABSENT:
        return None
    if state.phase is Phase.ENDED and not request.alone:
        # Others have not ended, so this part stays as it is; or all have, and then only notes can be changed.
        notes = dict(request.fields).keys() & NOTES
        return state._replace(fields=tuple(field for field in state.fields if field[0] not in notes))
    fields = dict(state.fields) | dict(request.fields)
    held = fields.pop("hold", False) is True and state.phase is Phase.PENDING
    held = held or (dict(request.fields).get("priority") == 0 and state.phase in LIVE)
    return state._replace(fields=tuple(sorted(fields.items())), held=state.held or held)


def _requeue(request: Request, state: State) -> State | None:
    if state.phase not in ACTIVE and state.phase is not Phase.ENDED:
        return None
    return queued_again(state, held=state.held or request.held)


def _suspend(_request: Request, state: State) -> State | None:
    return state._replace(phase=Phase.SUSPENDED) if state.phase in ACTIVE else None


def _resume(_request: Request, state: State) -> State | None:
    return state._replace(phase=Phase.RUNNING) if state.phase is Phase.SUSPENDED else None


def _top(_request: Request, state: State) -> State | None:
    return state if state.phase is Phase.PENDING and not state.held else None


_AFTER = {
    "submit": _submit,
    "cancel": _cancel,
    "hold": _hold,
    "release": _release,
    "update": _update,
    "requeue": _requeue,
    "suspend": _suspend,
    "resume": _resume,
    "top": _top,
}

REQUESTS = frozenset(_AFTER)

#: (kind, code of a refusal) -> what must have been so when it was refused. Kind "": of every request.
REFUSED_BECAUSE: dict[tuple[str, str], Callable[[State], bool]] = {
    ("", "ESLURM_INVALID_JOB_ID"): lambda state: state.phase in (Phase.ABSENT, Phase.ENDED),
    ("cancel", "ESLURM_ALREADY_DONE"): lambda state: state.phase is Phase.ENDED,
    ("", "ESLURM_JOB_FINISHED"): lambda state: state.phase is Phase.ENDED,
    ("requeue", "ESLURM_JOB_PENDING"): lambda state: state.phase is Phase.PENDING,
    ("suspend", "ESLURM_JOB_PENDING"): lambda state: state.phase is Phase.PENDING,
    ("suspend", "ESLURM_ALREADY_DONE"): lambda state: state.phase is Phase.ENDED,
    ("suspend", "ESLURM_JOB_SUSPENDED"): lambda state: state.phase is not Phase.RUNNING,
    ("resume", "ESLURM_JOB_PENDING"): lambda state: state.phase is Phase.PENDING,
    ("resume", "ESLURM_ALREADY_DONE"): lambda state: state.phase is Phase.ENDED,
    ("resume", "ESLURM_JOB_NOT_SUSPENDED"): lambda state: state.phase is not Phase.SUSPENDED,
    ("top", "ESLURM_JOB_NOT_PENDING"): lambda state: state.phase is not Phase.PENDING,
    ("top", "ESLURM_JOB_HELD"): lambda state: state.held,
}
