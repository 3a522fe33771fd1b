"""What a reading says about a job, in the terms of `job_model`.

Source: squeue(1) JOB STATE CODES, JOB REASON CODES.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from spritz.model.reasons import Reason
from spritz.model.states import JOB_STATE_COMPACT, JobState
from spritz_testing.daemons.checks.consistency.job_model import CANCELLED, COMPLETED, OTHER, Phase, State

_LONG = {code: state.value for state, code in JOB_STATE_COMPACT.items()}
_FLAGS = {"CG": "COMPLETING", "CF": "CONFIGURING", "RQ": "REQUEUED", "RH": "REQUEUE_HOLD", "SE": "SPECIAL_EXIT"}
_LIVE = {"PENDING": Phase.PENDING, "RUNNING": Phase.RUNNING, "SUSPENDED": Phase.SUSPENDED}
_OF_FLAG = {
    "COMPLETING": frozenset({Phase.ENDED, Phase.PENDING}),
    "CONFIGURING": frozenset({Phase.RUNNING}),
    "REQUEUED": frozenset({Phase.PENDING}),
    "REQUEUE_HOLD": frozenset({Phase.PENDING}),
    "SPECIAL_EXIT": frozenset({Phase.PENDING}),
}
_ANY = frozenset(Phase) - {Phase.ABSENT}

_HELD = frozenset({Reason.HELD_USER.value, Reason.HELD_ADMIN.value, Reason.HELD_MAX_REQUEUE.value})
#: Reasons that only a job without a hold has; of other texts nothing is concluded.
_NOT_HELD = frozenset(
    {
        Reason.NONE.value,
        Reason.PRIORITY.value,
        Reason.RESOURCES.value,
        Reason.DEPENDENCY.value,
        Reason.BEGIN_TIME.value,
        Reason.ARRAY_TASK_LIMIT.value,
        Reason.LICENSES.value,
        Reason.RESERVATION.value,
    }
)


class Observed(Struct, frozen=True, kw_only=True):
    """What was shown. None: it says nothing about that."""

    phases: frozenset[Phase] = _ANY
    held: bool | None = None
    end: str | None = None
    life: int | None = None
    fields: tuple[tuple[str, Any], ...] = ()

    def agrees(self, state: State) -> bool:
        """Whether this can be shown of a job in this state."""
        if state.phase not in self.phases or self.life not in (None, state.life):
            return False
        if state.phase is Phase.ENDED and self.end not in (None, state.end):
            return False
        if state.phase is Phase.PENDING and self.held not in (None, state.held):
            return False
        known = dict(state.fields)
        return all(known.get(name, value) == value for name, value in self.fields)

    def __str__(self) -> str:
        words = [" or ".join(sorted(phase.name for phase in self.phases))]
        if self.end is not None:
            words.append(f"({self.end})")
        if self.held is not None:
            words.append("with a hold" if self.held else "without a hold")
        if self.life is not None:
            words.append(f"in restart {self.life}")
        return " ".join(words + [f"{name}={value!r}" for name, value in self.fields])


def observed_by_row(row: tuple[Any, ...]) -> Observed:
    """Of (job id, state, reason) and perhaps fields. The state: a short or long name, as squeue's %t and %T show it."""
    observed = _observed(str(row[1]), str(row[2]))
    return replace(observed, fields=tuple(sorted(row[3].items()))) if len(row) > 3 else observed


@lru_cache(maxsize=1024)
def _observed(state: str, reason: str) -> Observed:
    word = state.partition("+")[0].split(" ")[0]
    word = _FLAGS.get(word, _LONG.get(word, word))
    if word in _OF_FLAG:
        return Observed(phases=_OF_FLAG[word])
    if word in _LIVE:
        return Observed(phases=frozenset({_LIVE[word]}), held=_held(reason) if word == "PENDING" else None)
    if word in JobState.__members__:
        return Observed(phases=frozenset({Phase.ENDED}), end=end_of(word))
    return Observed()


def observed_record(state: JobState, life: int, *, held: bool) -> Observed:
    """Of a record of the controller."""
    if state.ended:
        return Observed(phases=frozenset({Phase.ENDED}), end=end_of(state.value), life=life)
    return Observed(phases=frozenset({_LIVE[state.value]}), held=held if state is JobState.PENDING else None, life=life)


def end_of(state: str) -> str:
    """The end that `job_model` makes of a state's long name."""
    return state if state in (COMPLETED, CANCELLED) else OTHER


def _held(reason: str) -> bool | None:
    reason = reason.strip("()")
    if reason in _HELD or "held" in reason.lower():
        return True
    return False if reason in _NOT_HELD else None
