"""When scheduling passes run: a pure policy, without a clock, a loop or a projection.

A *quick pass* runs in the loop, tests a few jobs and is over within milliseconds. A *full pass* runs in a forked child,
tests all jobs and renews expected starts; its plan is then applied in the loop. The shell (`scheduler.driver`)
reports what happens (`Pacer.note`), asks at the end of each turn of the loop (`Pacer.next`), runs the passes that are
answered, and asks again at the latest at the moment that `WaitUntil` names.

What events do to the state (moments are `now` unless given):

    event                             quick pass                            full pass
    --------------------------------  ------------------------------------  -----------------------------------------
    Submission(batch)    with defer   -                                     -
                  batch, defer_batch  -                                     -
             batch, batch_sched_delay wanted after that delay               -
                              batch   wanted now; may prolong a burst       -
                        interactive   wanted now, not held by a burst       -
    PassWanted                        wanted now                            -
    LookAgain(at)                     wanted at that moment, too            -
    ClockSet                          wanted now                            wanted
    ParametersChanged                 paced by the new parameters           paced by the new parameters
    answered with Quick               IDLE -> RUNNING; nothing wanted more  -
    QuickEnded           APPLIED      RUNNING -> IDLE, then a pause; wanted wanted if it was cut off, or asks for it
                                      now if its time was up
                       DISCARDED      RUNNING -> IDLE, a pause; wanted now  -
                          FAILED      RUNNING -> IDLE, RETRY_SECONDS;       -
                                      wanted now
    answered with Full                -                                     IDLE -> PLANNING; not wanted any more
    FullPlanned                       blocked                               PLANNING -> APPLYING
    FullEnded            APPLIED      -                                     -> IDLE, then a pause
                       DISCARDED      wanted now                            -> IDLE, a pause; wanted
                          FAILED      -                                     -> IDLE, RETRY_SECONDS; wanted
    a turn without pending jobs       not wanted any more                   -

What `next` answers, the first line that holds:

    scheduling is paused, or no job waits             WaitUntil(NEVER): a later turn brings the change
    a plan is being applied                           WaitUntil(NEVER): QuickEnded or FullEnded follows
    a quick pass is due, the last one was slow, and   WaitUntil(now), once: the answers of this turn leave first
      this turn's events have not left for the disk
    a quick pass is due                               Quick
    a full pass is due                                Full
    else                                              WaitUntil(the time at which the earlier of them is due)

A quick pass is due when it is wanted, or sched_interval after the last one, but not before its pause and the burst of
submissions are over. A full pass is due bf_interval after the last one began, or when it is wanted and its pause is
over. No pass begins while a plan is being applied: it would give away resources that the rest of the plan gives to
higher-ranked jobs.

Bursts: a batch job that comes within `BURST_GAP_SECONDS` of the one before belongs to a burst. While the burst goes on
quick passes wait, at most `burst_seconds_max` after it began or the last pass looked at it (docs/decisions/0151).

Source: slurm.conf(5) SchedulerParameters: batch_sched_delay, bf_interval, defer, defer_batch, sched_interval,
sched_min_interval; docs/decisions/0158.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from msgspec import Struct

from spritz.scheduling.view.parameters import Parameters

#: Share of the loop's time that quick passes may take.
SHARE = 0.33

#: Time limit of a quick pass, seconds: after that it tests no more jobs, and the next one continues there, since
#: requests that failed need not be tested again.
QUICK_SECONDS = 0.008

#: After a quick pass longer than this, the next one waits until the events of its turn have left for the disk.
INLINE_SECONDS = 0.002

#: Pause, seconds, between a full pass and a requested one; the length of the pass if that is longer.
FULL_PAUSE_SECONDS = 1.0

#: Longest pause derived from the length of a pass: anything longer comes from a jump of the clock.
PAUSE_SECONDS_MAX = 60.0

#: Pause after a pass that failed.
RETRY_SECONDS = 5.0

#: Batch submissions no further apart than this belong to one burst.
BURST_GAP_SECONDS = 0.02

NEVER = float("inf")
_LONG_AGO = float("-inf")


class Outcome(Enum):
    """How a scheduling pass ended, its plan included."""

    #: its plan was applied, except for stale items
    APPLIED = auto()
    #: its plan, or the rest of it, no longer matches the state
    DISCARDED = auto()
    #: it ended with an error, without a plan or while applying it
    FAILED = auto()


# Events


class Submission(Struct, frozen=True, gc=False):
    """A job that may start has joined the queue. `batch`: no user waits for it at a terminal."""

    batch: bool


class PassWanted(Struct, frozen=True, gc=False):
    """A job may be able to start that could not before."""


class LookAgain(Struct, frozen=True, gc=False):
    """According to the last plan, a job may be able to start at that time."""

    at: float


class ClockSet(Struct, frozen=True, gc=False):
    """The time of day was set: begin times and expected starts have moved."""


class ParametersChanged(Struct, frozen=True):
    parameters: Parameters


class QuickEnded(Struct, frozen=True, kw_only=True, gc=False):
    """The quick pass is over, and its plan was applied or dropped.

    `seconds`: loop time that it took, including applying. `cut_off`: it left jobs untested. `progressed`: it tested
    some. `full_wanted`: it leaves work to a full pass for another reason.
    """

    outcome: Outcome
    seconds: float = 0.0
    cut_off: bool = False
    progressed: bool = False
    full_wanted: bool = False


class FullPlanned(Struct, frozen=True, gc=False):
    """The child has sent its plan, which is being applied from now on."""


class FullEnded(Struct, frozen=True, gc=False):
    outcome: Outcome


Event = Submission | PassWanted | LookAgain | ClockSet | ParametersChanged | QuickEnded | FullPlanned | FullEnded


# Questions and answers


class QueueState(Struct, frozen=True, gc=False):
    """The facts that decide about a pass besides events. `waiting`: jobs are pending; `paused`: PauseScheduling."""

    waiting: bool
    paused: bool = False


class Quick(Struct, frozen=True, gc=False):
    """Run a quick pass now, then report `QuickEnded`."""


class Full(Struct, frozen=True, gc=False):
    """Begin a full pass now, then report `FullPlanned` and `FullEnded`, or `FullEnded` alone."""


class WaitUntil(Struct, frozen=True, gc=False):
    """Ask again after the next event, or at this time, whichever comes first (NEVER: only after an event)."""

    at: float


Action = Quick | Full | WaitUntil


# State


class FullPass(Enum):
    IDLE = auto()
    PLANNING = auto()
    APPLYING = auto()


class Pacer(Struct):
    """The policy's state. Times are seconds of the clock passed to `next`."""

    parameters: Parameters
    #: time of the last call
    now: float = _LONG_AGO

    #: earliest time for which a quick pass is wanted (NEVER: none)
    wanted_at: float = NEVER
    #: the same, requested by the last plan; an earlier pass does not replace it
    look_again_at: float = NEVER
    #: a user waits at a terminal: the pass is not delayed by bursts of batch submissions
    interactive: bool = False
    #: time of the last batch submission; time when its burst began or was last processed
    submitted_at: float = _LONG_AGO
    burst_began_at: float = _LONG_AGO
    in_burst: bool = False

    quick_running: bool = False
    quick_ended_at: float = _LONG_AGO
    #: end of the pause after it
    quick_not_before: float = _LONG_AGO
    #: it took more than INLINE_SECONDS
    quick_slow: bool = False
    #: a pass that is due has let the events of one turn leave first
    gave_way: bool = False

    full: FullPass = FullPass.IDLE
    full_wanted: bool = False
    full_began_at: float = _LONG_AGO
    #: end of the pause after it, for a requested pass
    full_not_before: float = _LONG_AGO

    def note(self, event: Event, now: float) -> None:
        """Record an event. Its consequences are answered at the end of the turn."""
        self._at(now)
        _HANDLERS[type(event)](self, event, now)

    def next(self, queue: QueueState, now: float) -> Action:
        """The action at the end of this turn. Call it again after Quick or Full: the other pass may be due too."""
        self._at(now)
        if not queue.waiting:
            self._nothing_wanted(now)
        if queue.paused or not queue.waiting or self.applying:
            return WaitUntil(NEVER)
        quick_at, full_at = self._quick_due_at(), self._full_due_at()
        if quick_at <= now:
            if self.quick_slow and not self.gave_way:
                self.gave_way = True
                return WaitUntil(now)
            self._begin_quick(now)
            return Quick()
        if full_at <= now:
            self._begin_full(now)
            return Full()
        return WaitUntil(min(quick_at, full_at))

    def _at(self, now: float) -> None:
        """If the clock went back, shift all remembered times with it, so that no wait becomes longer."""
        if now < self.now:
            for name in _MOMENTS:
                setattr(self, name, getattr(self, name) + now - self.now)
        self.now = now

    @property
    def applying(self) -> bool:
        """Whether a plan is being applied: no pass may begin."""
        return self.quick_running or self.full is FullPass.APPLYING

    def _quick_due_at(self) -> float:
        periodic = self.quick_ended_at + self.parameters.quick_interval_seconds
        due = min(self.wanted_at, self.look_again_at, periodic)
        return max(due, self.quick_not_before, _LONG_AGO if self.interactive else self._burst_ends_at())

    def _burst_ends_at(self) -> float:
        if not self.in_burst:
            return _LONG_AGO
        return min(self.submitted_at + BURST_GAP_SECONDS, self.burst_began_at + self.parameters.burst_seconds_max)

    def _full_due_at(self) -> float:
        if self.full is not FullPass.IDLE:
            return NEVER
        periodic = self.full_began_at + self.parameters.full_interval_seconds
        return min(periodic, self.full_not_before) if self.full_wanted else periodic

    def _begin_quick(self, now: float) -> None:
        self.quick_running = True
        self.gave_way = False
        self.burst_began_at = now
        self._nothing_wanted(now)

    def _nothing_wanted(self, now: float) -> None:
        """Everything that could start a job by now has been tested."""
        self.wanted_at, self.interactive = NEVER, False
        if self.look_again_at <= now:
            self.look_again_at = NEVER

    def _begin_full(self, now: float) -> None:
        self.full = FullPass.PLANNING
        self.full_wanted = False
        self.full_began_at = now

    def _want(self, at: float) -> None:
        self.wanted_at = min(self.wanted_at, at)

    # Events

    def _on_submission(self, event: Submission, now: float) -> None:
        parameters = self.parameters
        if parameters.defer or (parameters.defer_batch and event.batch):
            return
        if not event.batch:
            self.interactive = True
            self._want(now)
        elif parameters.batch_delay_seconds:
            self._want(now + parameters.batch_delay_seconds)
        else:
            self.in_burst = now - self.submitted_at < BURST_GAP_SECONDS
            if not self.in_burst:
                self.burst_began_at = now
            self.submitted_at = now
            self._want(now)

    def _on_pass_wanted(self, _event: PassWanted, now: float) -> None:
        self._want(now)

    def _on_look_again(self, event: LookAgain, now: float) -> None:
        if self.look_again_at <= now:
            self._want(now)
            self.look_again_at = NEVER
        self.look_again_at = min(self.look_again_at, event.at)

    def _on_clock_set(self, _event: ClockSet, now: float) -> None:
        self._want(now)
        self.full_wanted = True

    def _on_parameters(self, event: ParametersChanged, _now: float) -> None:
        self.parameters = event.parameters

    def _on_quick_ended(self, event: QuickEnded, now: float) -> None:
        self.quick_running = False
        self.quick_ended_at = now
        self.quick_slow = event.seconds > INLINE_SECONDS
        earned = min(event.seconds * (1 - SHARE) / SHARE, PAUSE_SECONDS_MAX)
        pause = max(earned, self.parameters.quick_pause_seconds)
        time_was_up = event.cut_off and event.progressed and event.seconds > QUICK_SECONDS
        if event.outcome is Outcome.FAILED:
            pause = max(pause, RETRY_SECONDS)
        if event.outcome is not Outcome.APPLIED or time_was_up:
            self._want(now)
        self.quick_not_before = now + pause
        self.full_wanted = self.full_wanted or event.cut_off or event.full_wanted

    def _on_full_planned(self, _event: FullPlanned, now: float) -> None:
        self.full = FullPass.APPLYING
        self._pause_full(now, FULL_PAUSE_SECONDS)

    def _on_full_ended(self, event: FullEnded, now: float) -> None:
        if self.full is FullPass.PLANNING or event.outcome is Outcome.FAILED:
            self._pause_full(now, RETRY_SECONDS if event.outcome is Outcome.FAILED else FULL_PAUSE_SECONDS)
        self.full = FullPass.IDLE
        if event.outcome is not Outcome.APPLIED:
            self.full_wanted = True
        if event.outcome is Outcome.DISCARDED:
            self._want(now)

    def _pause_full(self, now: float, seconds: float) -> None:
        self.full_not_before = now + max(seconds, min(now - self.full_began_at, PAUSE_SECONDS_MAX))


#: fields that are times
_MOMENTS = (
    "wanted_at",
    "look_again_at",
    "submitted_at",
    "burst_began_at",
    "quick_ended_at",
    "quick_not_before",
    "full_began_at",
    "full_not_before",
)

_HANDLERS: dict[type[Event], Callable[[Pacer, Any, float], None]] = {
    Submission: Pacer._on_submission,
    PassWanted: Pacer._on_pass_wanted,
    LookAgain: Pacer._on_look_again,
    ClockSet: Pacer._on_clock_set,
    ParametersChanged: Pacer._on_parameters,
    QuickEnded: Pacer._on_quick_ended,
    FullPlanned: Pacer._on_full_planned,
    FullEnded: Pacer._on_full_ended,
}
