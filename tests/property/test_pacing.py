"""When passes run, under random events, durations and clocks.

`Shell` does what `controller.scheduler.driver` does with the answers, on a clock of its own, and checks each of them
against rules that are stated here without the policy's state.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spritz.controller.scheduler.pacing import (
    FULL_PAUSE_SECONDS,
    NEVER,
    PAUSE_SECONDS_MAX,
    QUICK_SECONDS,
    RETRY_SECONDS,
    SHARE,
    ClockSet,
    Event,
    FullEnded,
    FullPlanned,
    LookAgain,
    Outcome,
    Pacer,
    PassWanted,
    QueueState,
    Quick,
    QuickEnded,
    Submission,
    WaitUntil,
)
from spritz.scheduling.view.parameters import SELDOM_SECONDS, Parameters

#: Rounding of the sums of moments; and of moments that a clock far away has gone through.
EPSILON = 1e-6
COARSE = 1e-2

outcomes = st.sampled_from([Outcome.APPLIED] * 8 + [Outcome.DISCARDED, Outcome.FAILED])
quick_passes = st.builds(
    QuickEnded,
    outcome=outcomes,
    seconds=st.sampled_from([0.0002, 0.001, 0.003, QUICK_SECONDS + 0.001, 0.3]),
    cut_off=st.sampled_from([False, False, True]),
    progressed=st.booleans(),
    full_wanted=st.sampled_from([False, False, False, True]),
)
#: (seconds to plan, seconds to apply, what becomes of it)
full_passes = st.tuples(st.sampled_from([0.01, 0.4, 3.0]), st.sampled_from([0.0, 0.05, 1.0]), outcomes)
gaps = st.sampled_from([0.0, 0.0, 0.001, 0.005, 0.01, 0.019, 0.021, 0.3, 2.0, 70.0])
batch = st.just(Submission(batch=True))
interactive = st.just(Submission(batch=False))
events = st.one_of(
    batch,
    batch,
    interactive,
    st.just(PassWanted()),
    st.just(ClockSet()),
    st.floats(0, 100).map(LookAgain),
)
policies = st.builds(
    Parameters,
    defer=st.sampled_from([False, False, True]),
    defer_batch=st.sampled_from([False, False, True]),
    batch_delay_seconds=st.sampled_from([0.0, 0.0, 3.0]),
    burst_seconds_max=st.sampled_from([1.0, 0.0]),
    quick_pause_seconds=st.sampled_from([0.0, 0.0, 0.5]),
    quick_interval_seconds=st.sampled_from([60.0, 9.0, SELDOM_SECONDS]),
    full_interval_seconds=st.sampled_from([30.0, 9.0, SELDOM_SECONDS]),
)
#: (seconds until then, event), or a change of the number of pending jobs or of PauseScheduling
steps = st.lists(st.tuples(gaps, st.one_of(events, st.sampled_from(["empty", "pause", "resume"]))), max_size=40)


class Shell:
    """Runs a story. `quick_began`, `quick_ended`, `full_began`: of all passes, in order."""

    #: the longest full pass plans and applies for less
    full_pause_max = RETRY_SECONDS

    def __init__(self, parameters: Parameters, data: st.DataObject) -> None:
        self.parameters = parameters
        self.pacer = Pacer(parameters)
        self._data = data
        self.now = 1000.0
        #: jumps of the clock that the policy sees
        self.offset = 0.0
        self.epsilon = EPSILON
        self.waiting, self.paused = True, False
        self.quick_began: list[float] = []
        self.quick_ended: list[tuple[float, QuickEnded]] = []
        self.full_began: list[float] = []
        #: a full pass that is wanted begins then at the earliest
        self.full_pause_ends = 0.0
        self.submitted: list[float] = []
        #: since when a quick pass is wanted at once, and since when a full one is
        self.wanted: float | None = None
        self.full_wanted: float | None = None
        #: when a pass was last impossible: nothing pending, paused, or a plan being applied
        self.blocked = self.now
        self._was_blocked = False
        self.wake_at = NEVER
        #: (moment, what happens then) of the full pass under way
        self._coming: list[tuple[float, Event]] = []
        self.applying = False
        self.turn()

    # -- the story

    def play(self, story: list[tuple[float, Event | str]]) -> None:
        for gap, what in story:
            self.pass_time(gap)
            if what == "empty":
                self.waiting, self.wanted = False, None
            elif isinstance(what, str):
                self.paused = what == "pause"
            else:
                self.happen(what)
            self.turn()

    def happen(self, event: Event) -> None:
        parameters = self.parameters
        if isinstance(event, Submission):
            self.waiting = True
            self.submitted.append(self.now)
            deferred = parameters.defer or (parameters.defer_batch and event.batch)
            if deferred or (event.batch and parameters.batch_delay_seconds):
                self.pacer.note(event, self.seen)
                return
        if isinstance(event, LookAgain):
            event = LookAgain(self.seen + event.at)
        if isinstance(event, PassWanted | ClockSet | Submission):
            self.wanted = self.now if self.wanted is None else self.wanted
        if isinstance(event, ClockSet):
            self.full_wanted = self.now if self.full_wanted is None else self.full_wanted
        self.pacer.note(event, self.seen)

    def pass_time(self, seconds: float) -> None:
        """What is due meanwhile happens in its time."""
        until = self.now + seconds
        while True:
            coming = self._coming[0][0] if self._coming else NEVER
            moment = min(coming, self.wake_at)
            if moment > until:
                break
            self.now = max(self.now, moment)
            if coming <= self.now:
                self._full_goes_on()
            self.turn()
        self.now = max(self.now, until)

    @property
    def seen(self) -> float:
        """The clock as the policy sees it."""
        return self.now + self.offset

    # -- turns

    def turn(self) -> None:
        for _ in range(10):
            blocked = not self.waiting or self.paused or self.applying
            if blocked or self._was_blocked:
                self.blocked = self.now
            self._was_blocked = blocked
            if not self.waiting:
                self.wanted = None
            action = self.pacer.next(QueueState(self.waiting, self.paused), self.seen)
            if isinstance(action, WaitUntil):
                self.check_wait(action, blocked)
                self.wake_at = max(self.now, action.at - self.offset) if action.at < NEVER else NEVER
                if self.wake_at > self.now:
                    return
                if action.at > self.seen:
                    self.now += self.epsilon  # rounded away by the jump: the loop's next turn is a little later
                continue  # the next turn of the loop
            assert not blocked, "a pass began that could not"
            if isinstance(action, Quick):
                self._quick()
            else:
                self._full()
        raise AssertionError("it turns without an end")

    def check_wait(self, action: WaitUntil, blocked: bool) -> None:
        """No wake-up is lost: with jobs waiting there is always a next moment, and soon if a pass is wanted."""
        if blocked:
            return
        assert action.at < NEVER
        wait = action.at - self.seen
        idle = not self._coming
        assert wait <= self.parameters.quick_interval_seconds + RETRY_SECONDS + self.epsilon
        if idle:
            assert wait <= self.parameters.full_interval_seconds + self.epsilon
        if self.wanted is not None:
            assert wait <= self.quick_pause() + self.parameters.burst_seconds_max + self.epsilon
        if self.full_wanted is not None and idle:
            assert wait <= self.full_pause_max + self.epsilon

    def quick_pause(self) -> float:
        """That the last quick pass has earned."""
        if not self.quick_ended:
            return 0.0
        ended = self.quick_ended[-1][1]
        failed = RETRY_SECONDS if ended.outcome is Outcome.FAILED else 0.0
        return max(ended.seconds * (1 - SHARE) / SHARE, self.parameters.quick_pause_seconds, failed)

    # -- passes

    def _quick(self) -> None:
        self.check_quick()
        self.quick_began.append(self.now)
        self.wanted = None
        ended = self._data.draw(quick_passes)
        self.now += ended.seconds
        self.blocked = self.now
        self.pacer.note(ended, self.seen)
        self.quick_ended.append((self.now, ended))
        time_was_up = ended.cut_off and ended.progressed and ended.seconds > QUICK_SECONDS
        if ended.outcome is not Outcome.APPLIED or time_was_up:
            self.wanted = self.now
        if (ended.cut_off or ended.full_wanted) and self.full_wanted is None:
            self.full_wanted = self.now

    def check_quick(self) -> None:
        free = self.blocked
        if self.quick_ended:
            ended, result = self.quick_ended[-1]
            assert self.now - ended >= self.quick_pause() - self.epsilon, "before its pause was over"
            taken = result.seconds / (self.now - self.quick_began[-1])
            assert taken <= SHARE + self.epsilon, "more than its share"
            free = max(free, ended + self.quick_pause())
        if self.wanted is not None:
            late = self.now - max(free, self.wanted)
            assert late <= self.parameters.burst_seconds_max + self.epsilon, "wanted, but not begun"

    def check_full(self) -> None:
        if self.full_wanted is not None:
            late = self.now - max(self.full_wanted, self.full_pause_ends, self.blocked)
            assert late <= self.epsilon, "wanted, but not begun"

    def _full(self) -> None:
        assert not self._coming, "two full passes at once"
        self.check_full()
        self.full_began.append(self.now)
        self.full_wanted = None
        plan, apply, outcome = self._data.draw(full_passes)
        planned = self.now + plan
        if apply == 0.0 and outcome is Outcome.FAILED:
            self._coming = [(planned, FullEnded(outcome))]
        else:
            self._coming = [(planned, FullPlanned()), (planned + apply, FullEnded(outcome))]

    def _full_goes_on(self) -> None:
        _, event = self._coming.pop(0)
        self.applying = isinstance(event, FullPlanned)
        self.blocked = self.now
        self.pacer.note(event, self.seen)
        failed = isinstance(event, FullEnded) and event.outcome is Outcome.FAILED
        if self.applying or failed:
            took = max(self.now - self.full_began[-1], RETRY_SECONDS if failed else FULL_PAUSE_SECONDS)
            self.full_pause_ends = self.now + took
        if isinstance(event, FullEnded):
            if event.outcome is not Outcome.APPLIED:
                self.full_wanted = self.now if self.full_wanted is None else self.full_wanted
            if event.outcome is Outcome.DISCARDED:
                self.wanted = self.now if self.wanted is None else self.wanted


@given(st.data(), policies, steps)
def test_passes_begin_in_time_never_too_often_and_no_wake_up_is_lost(
    data: st.DataObject, parameters: Parameters, story: list[tuple[float, Event | str]]
) -> None:
    """`Shell` checks it at each turn: a wanted quick pass begins when the pause that the last one earned is over, or a
    burst later; quick passes take at most SHARE of the time; a full pass follows one that was cut off; none begins
    while a plan is being applied, while scheduling is paused or without pending jobs; with pending jobs there is always
    a next moment.
    """
    Shell(parameters, data).play(story)


jumps = st.sampled_from([-4e8, -3600.0, -5.0, -0.001, 0.001, 5.0, 3600.0, 4e8])


@given(st.data(), policies, st.lists(st.tuples(steps, jumps), max_size=3))
def test_a_clock_that_jumps_delays_nothing(
    data: st.DataObject, parameters: Parameters, stories: list[tuple[list[tuple[float, Event | str]], float]]
) -> None:
    """The waits after a jump are no longer than without it. Forward it may cut pauses short: that is no harm."""
    shell = Lenient(parameters, data)
    for story, jump in stories:
        shell.play(story)
        shell.offset += jump
        shell.turn()
    shell.pass_time(70.0)


class Lenient(Shell):
    """After a jump forward a pause may have been shorter than it should, and a full pass seem to have taken longer."""

    full_pause_max = PAUSE_SECONDS_MAX

    def __init__(self, parameters: Parameters, data: st.DataObject) -> None:
        super().__init__(parameters, data)
        self.epsilon = COARSE

    def check_full(self) -> None:
        if self.full_wanted is not None:
            late = self.now - max(self.full_wanted, self.blocked)
            assert late <= PAUSE_SECONDS_MAX + self.epsilon

    def check_quick(self) -> None:
        if self.wanted is not None:
            free = max(self.blocked, self.wanted)
            if self.quick_ended:
                free = max(free, self.quick_ended[-1][0] + self.quick_pause())
            assert self.now - free <= self.parameters.burst_seconds_max + self.epsilon


# -- slurm.conf(5)


class Quiet(Shell):
    def _quick(self) -> None:
        self.check_quick()
        self.quick_began.append(self.now)
        self.wanted = None
        ended = QuickEnded(outcome=Outcome.APPLIED, seconds=0.001)
        self.now += ended.seconds
        self.pacer.note(ended, self.seen)
        self.quick_ended.append((self.now, ended))

    def _full(self) -> None:
        self.full_began.append(self.now)
        self._coming = [(self.now + 0.5, FullPlanned()), (self.now + 0.5, FullEnded(Outcome.APPLIED))]


submissions = st.lists(st.tuples(gaps, st.one_of(batch, batch, interactive)), max_size=80)


@given(st.data(), submissions, st.booleans())
def test_defer(data: st.DataObject, story: list[tuple[float, Event | str]], batch_only: bool) -> None:
    """No pass because of a submission (defer_batch: of a batch job) alone: the intervals' passes look at it."""
    parameters = Parameters(defer=not batch_only, defer_batch=batch_only)
    if batch_only:
        story = [(gap, Submission(batch=True)) for gap, _ in story]
    shell = Quiet(parameters, data)
    shell.play(story)
    for earlier, later in zip(shell.quick_ended, shell.quick_began[1:], strict=False):
        assert later - earlier[0] >= parameters.quick_interval_seconds - EPSILON
    for earlier_full, later in zip(shell.full_began, shell.full_began[1:], strict=False):
        assert later - earlier_full >= parameters.full_interval_seconds - EPSILON


@given(st.data(), submissions)
def test_batch_sched_delay(data: st.DataObject, story: list[tuple[float, Event | str]]) -> None:
    """Each batch job is looked at that long after its submission at the latest, and none causes a pass earlier."""
    parameters = Parameters(batch_delay_seconds=3.0, burst_seconds_max=0.0)
    story = [(gap, Submission(batch=True)) for gap, _ in story]
    shell = Quiet(parameters, data)
    shell.play(story)
    shell.pass_time(10.0)
    slack = 0.01  # a pass and its pause
    for moment in shell.submitted:
        began = next(began for began in shell.quick_began if began >= moment - EPSILON)
        assert began - moment <= 3.0 + slack
    for earlier, later in zip(shell.quick_ended, shell.quick_began[1:], strict=False):
        first = next((moment for moment in shell.submitted if moment >= earlier[0]), NEVER)
        assert later >= min(first + 3.0, earlier[0] + parameters.quick_interval_seconds) - slack


@given(st.data(), st.sampled_from([1.0, 10.0, 60.0]), st.sampled_from([1.0, 30.0]), st.floats(0, 500))
def test_sched_interval_and_bf_interval(
    data: st.DataObject, quick_seconds: float, full_seconds: float, seconds: float
) -> None:
    """While jobs wait and nothing happens, passes run at these intervals, and no more often."""
    parameters = Parameters(quick_interval_seconds=quick_seconds, full_interval_seconds=full_seconds)
    shell = Quiet(parameters, data)
    began = shell.now
    shell.pass_time(seconds)
    quick, full = len(shell.quick_began), len(shell.full_began)
    assert quick - 1 <= (shell.now - began) / quick_seconds <= quick * 1.01
    assert full - 1 <= (shell.now - began) / full_seconds <= full * 1.01


@given(st.data(), policies, steps, st.floats(0.001, 5.0))
def test_sched_min_interval(
    data: st.DataObject, parameters: Parameters, story: list[tuple[float, Event | str]], seconds: float
) -> None:
    """The least time between the end of a quick pass and the beginning of the next (microseconds there)."""
    shell = Shell(replace(parameters, quick_pause_seconds=seconds), data)
    shell.play(story)
    for earlier, later in zip(shell.quick_ended, shell.quick_began[1:], strict=False):
        assert later - earlier[0] >= seconds - EPSILON
