"""When passes run, event by event. Source: slurm.conf(5) SchedulerParameters."""

from __future__ import annotations

from typing import get_args

import pytest

from spritz.controller.scheduler import pacing
from spritz.controller.scheduler.pacing import (
    BURST_GAP_SECONDS,
    FULL_PAUSE_SECONDS,
    INLINE_SECONDS,
    NEVER,
    PAUSE_SECONDS_MAX,
    RETRY_SECONDS,
    SHARE,
    Action,
    ClockSet,
    Event,
    Full,
    FullEnded,
    FullPlanned,
    LookAgain,
    Outcome,
    Pacer,
    ParametersChanged,
    PassWanted,
    QueueState,
    Quick,
    QuickEnded,
    Submission,
    WaitUntil,
)
from spritz.scheduling.view.parameters import SELDOM_SECONDS, Parameters

WAITING = QueueState(waiting=True)
BATCH, INTERACTIVE = Submission(batch=True), Submission(batch=False)
APPLIED = QuickEnded(outcome=Outcome.APPLIED, seconds=0.001)


def settled(parameters: Parameters | None = None) -> Pacer:
    """At 100.0 both passes have run; since then nothing is wanted."""
    pacer = Pacer(parameters or Parameters())
    assert pacer.next(WAITING, 100.0) == Quick()
    pacer.note(APPLIED, 100.0)
    assert pacer.next(WAITING, 100.0) == Full()
    pacer.note(FullPlanned(), 100.0)
    pacer.note(FullEnded(Outcome.APPLIED), 100.0)
    return pacer


def after(pacer: Pacer, now: float, *events: Event) -> Action:
    """What is to be done at the end of a turn with these events."""
    for event in events:
        pacer.note(event, now)
    return pacer.next(WAITING, now)


def test_every_event_has_its_line_in_the_table() -> None:
    assert set(pacing._HANDLERS) == set(get_args(Event))
    assert pacing.__doc__ is not None
    for event in get_args(Event):
        assert f"    {event.__name__}" in pacing.__doc__, event


def test_every_moment_of_the_state_moves_with_the_clock() -> None:
    moments = {name for name in Pacer.__struct_fields__ if name.endswith(("_at", "_before"))}
    assert set(pacing._MOMENTS) == moments


# -- quick passes


def test_at_first_both_passes_run() -> None:
    assert settled().next(WAITING, 110.0) == WaitUntil(130.0)


def test_without_pending_jobs_there_is_nothing_to_do_and_nothing_wanted_later() -> None:
    pacer = settled()
    pacer.note(PassWanted(), 110.0)
    assert pacer.next(QueueState(waiting=False), 110.0) == WaitUntil(NEVER)
    assert pacer.next(WAITING, 111.0) == WaitUntil(130.0)


def test_while_scheduling_is_paused_no_pass_begins_and_none_is_forgotten() -> None:
    pacer = settled()
    pacer.note(PassWanted(), 110.0)
    assert pacer.next(QueueState(waiting=True, paused=True), 110.0) == WaitUntil(NEVER)
    assert pacer.next(WAITING, 500.0) == Quick()


def test_a_lone_submission_is_looked_at_in_its_turn() -> None:
    assert after(settled(), 110.0, BATCH) == Quick()
    assert after(settled(), 110.0, INTERACTIVE) == Quick()


def test_quick_passes_take_their_share_of_the_time() -> None:
    pacer = settled()
    assert after(pacer, 110.0, PassWanted()) == Quick()
    pacer.note(QuickEnded(outcome=Outcome.APPLIED, seconds=0.001), 110.001)
    again = after(pacer, 110.001, PassWanted())
    assert isinstance(again, WaitUntil)
    assert again.at - 110.001 == pytest.approx(0.001 * (1 - SHARE) / SHARE)
    assert pacer.next(WAITING, again.at) == Quick()


def test_after_a_slow_pass_the_answers_of_the_turn_leave_first() -> None:
    pacer = settled()
    assert after(pacer, 110.0, PassWanted()) == Quick()
    pacer.note(QuickEnded(outcome=Outcome.APPLIED, seconds=2 * INLINE_SECONDS), 110.0)
    assert after(pacer, 111.0, PassWanted()) == WaitUntil(111.0)
    assert pacer.next(WAITING, 111.0) == Quick()


def test_a_pass_whose_time_was_up_is_followed_by_one_that_goes_on() -> None:
    pacer = settled()
    assert after(pacer, 110.0, PassWanted()) == Quick()
    ended = QuickEnded(outcome=Outcome.APPLIED, seconds=0.01, cut_off=True, progressed=True)
    action = after(pacer, 110.01, ended)
    assert action == Full(), "it left work to a full pass as well"
    wait = pacer.next(WAITING, 110.01)
    assert isinstance(wait, WaitUntil)
    assert wait.at < 110.1


def test_a_pass_that_tested_nothing_is_not_repeated_at_once() -> None:
    pacer = settled(Parameters(full_interval_seconds=SELDOM_SECONDS))
    assert after(pacer, 110.0, PassWanted()) == Quick()
    ended = QuickEnded(outcome=Outcome.APPLIED, seconds=0.01, cut_off=True)
    assert after(pacer, 110.01, ended) == Full()
    assert pacer.next(WAITING, 110.01) == WaitUntil(170.01)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.DISCARDED])
def test_a_quick_pass_without_a_result_is_repeated(outcome: Outcome) -> None:
    pacer = settled()
    assert after(pacer, 110.0, PassWanted()) == Quick()
    wait = after(pacer, 110.0, QuickEnded(outcome=outcome))
    if outcome is Outcome.FAILED:
        assert wait == WaitUntil(110.0 + RETRY_SECONDS)
    else:
        assert wait == Quick()


def test_the_plan_says_when_to_look_again() -> None:
    pacer = settled()
    assert after(pacer, 110.0, LookAgain(115.0), LookAgain(117.0)) == WaitUntil(115.0)
    assert after(pacer, 112.0, PassWanted()) == Quick()
    assert after(pacer, 112.0, APPLIED) == WaitUntil(115.0), "an earlier pass does not make up for it"
    assert pacer.next(WAITING, 115.0) == Quick()
    assert after(pacer, 115.0, APPLIED) == WaitUntil(130.0)


def test_a_moment_that_is_over_does_not_hide_the_next_one() -> None:
    pacer = settled()
    pacer.note(LookAgain(105.0), 101.0)
    assert after(pacer, 110.0, LookAgain(115.0)) == Quick()
    assert after(pacer, 110.0, APPLIED) == WaitUntil(115.0)


# -- bursts of submissions (docs/decisions/0151)


def burst(*moments: float, parameters: Parameters | None = None) -> Pacer:
    """Batch jobs that are submitted at these moments; asked after the last one, it says when they are looked at."""
    pacer = settled(parameters)
    for at in moments:
        pacer.note(BATCH, at)
    return pacer


def test_a_burst_is_looked_at_when_it_pauses() -> None:
    pacer = burst(105.0, 105.01)
    assert pacer.next(WAITING, 105.01) == WaitUntil(105.01 + BURST_GAP_SECONDS)
    assert pacer.next(WAITING, 105.01 + BURST_GAP_SECONDS) == Quick()


def test_submissions_further_apart_are_no_burst() -> None:
    assert burst(105.0, 105.0 + 2 * BURST_GAP_SECONDS).next(WAITING, 105.04) == Quick()


def test_a_burst_without_an_end_is_looked_at_every_second() -> None:
    moments = [105.0 + number / 100 for number in range(101)]
    pacer = burst(*moments[:-1])
    wait = pacer.next(WAITING, 105.99)
    assert isinstance(wait, WaitUntil)
    assert wait.at == pytest.approx(106.0)
    assert after(pacer, 106.0, BATCH) == Quick()
    assert after(pacer, 106.01, APPLIED, BATCH) == WaitUntil(106.01 + BURST_GAP_SECONDS)


def test_a_burst_does_not_hold_up_a_user_at_a_terminal() -> None:
    assert after(burst(105.0, 105.01), 105.01, INTERACTIVE) == Quick()


def test_with_batch_sched_delay_0_no_burst_is_waited_for() -> None:
    assert burst(105.0, 105.01, parameters=Parameters(burst_seconds_max=0.0)).next(WAITING, 105.01) == Quick()


# -- slurm.conf(5)


def test_with_defer_no_submission_causes_a_pass() -> None:
    assert after(settled(Parameters(defer=True)), 110.0, BATCH, INTERACTIVE) == WaitUntil(130.0)


def test_with_defer_batch_only_interactive_submissions_cause_a_pass() -> None:
    pacer = settled(Parameters(defer_batch=True))
    assert after(pacer, 110.0, BATCH) == WaitUntil(130.0)
    assert after(pacer, 111.0, INTERACTIVE) == Quick()


def test_batch_sched_delay_counts_from_the_first_submission_that_waits() -> None:
    pacer = settled(Parameters(batch_delay_seconds=3.0, burst_seconds_max=0.0))
    assert after(pacer, 110.0, BATCH) == WaitUntil(113.0)
    assert after(pacer, 112.0, BATCH) == WaitUntil(113.0)
    assert after(pacer, 112.5, INTERACTIVE) == Quick()
    assert after(pacer, 112.6, APPLIED) == WaitUntil(130.0), "the pass looked at all of them"


def test_sched_min_interval_is_the_least_pause() -> None:
    pacer = settled(Parameters(quick_pause_seconds=2.0))
    assert after(pacer, 110.0, PassWanted()) == Quick()
    assert after(pacer, 110.1, APPLIED, PassWanted()) == WaitUntil(112.1)


def test_sched_interval_is_the_longest_pause_while_jobs_wait() -> None:
    pacer = settled(Parameters(quick_interval_seconds=7.0))
    assert pacer.next(WAITING, 101.0) == WaitUntil(107.0)
    assert pacer.next(WAITING, 107.0) == Quick()


def test_bf_interval_runs_from_the_beginning_of_a_full_pass() -> None:
    pacer = settled(Parameters(full_interval_seconds=10.0))
    assert pacer.next(WAITING, 101.0) == WaitUntil(110.0)
    assert pacer.next(WAITING, 110.0) == Full()


def test_other_parameters_are_in_force_at_once() -> None:
    pacer = settled()
    assert after(pacer, 101.0, ParametersChanged(Parameters(full_interval_seconds=5.0))) == WaitUntil(105.0)


# -- full passes


def test_a_full_pass_follows_a_quick_one_that_was_cut_off() -> None:
    pacer = settled()
    assert after(pacer, 110.0, PassWanted()) == Quick()
    assert after(pacer, 110.0, QuickEnded(outcome=Outcome.APPLIED, seconds=0.001, cut_off=True)) == Full()


def test_a_quick_pass_asks_for_a_full_one() -> None:
    assert after(settled(), 110.0, QuickEnded(outcome=Outcome.APPLIED, full_wanted=True)) == Full()


def wanting_full(pacer: Pacer) -> Pacer:
    """The same, once a full pass is wanted."""
    pacer.full_wanted = True
    return pacer


def test_full_passes_that_are_wanted_pause_as_long_as_the_last_one_took() -> None:
    pacer = settled()
    assert after(wanting_full(pacer), 110.0) == Full()
    pacer.note(FullPlanned(), 114.0)
    pacer.note(FullEnded(Outcome.APPLIED), 114.5)
    assert after(wanting_full(pacer), 114.5) == WaitUntil(118.0)
    assert pacer.next(WAITING, 118.0) == Full()
    pacer.note(FullPlanned(), 118.1)
    pacer.note(FullEnded(Outcome.APPLIED), 118.1)
    assert after(wanting_full(pacer), 118.1) == WaitUntil(118.1 + FULL_PAUSE_SECONDS)


def test_quick_passes_go_on_while_a_full_one_plans_and_wait_while_its_plan_is_applied() -> None:
    pacer = settled()
    assert after(wanting_full(pacer), 110.0) == Full()
    assert after(pacer, 110.1, PassWanted()) == Quick()
    pacer.note(APPLIED, 110.1)
    pacer.note(FullPlanned(), 112.0)
    assert after(pacer, 112.1, INTERACTIVE) == WaitUntil(NEVER)
    assert after(pacer, 112.2, FullEnded(Outcome.APPLIED)) == Quick()


def test_a_full_pass_does_not_begin_while_a_quick_plan_is_being_applied() -> None:
    pacer = settled()
    assert after(pacer, 110.0, PassWanted()) == Quick()
    assert after(wanting_full(pacer), 110.0) == WaitUntil(NEVER)
    assert after(pacer, 110.1, APPLIED) == Full()


def test_a_full_pass_that_failed_is_repeated_even_with_bf_interval_off() -> None:
    pacer = settled(Parameters(full_interval_seconds=SELDOM_SECONDS))
    assert after(wanting_full(pacer), 110.0) == Full()
    assert after(pacer, 110.5, FullEnded(Outcome.FAILED)) == WaitUntil(110.5 + RETRY_SECONDS)
    assert pacer.next(WAITING, 110.5 + RETRY_SECONDS) == Full()


def test_a_full_plan_that_was_given_up_is_made_again_and_a_quick_pass_runs_meanwhile() -> None:
    pacer = settled()
    assert after(wanting_full(pacer), 110.0) == Full()
    pacer.note(FullPlanned(), 110.5)
    assert after(pacer, 110.6, FullEnded(Outcome.DISCARDED)) == Quick()
    assert after(pacer, 110.6, APPLIED) == WaitUntil(110.5 + FULL_PAUSE_SECONDS)


# -- clocks


def test_when_the_time_of_day_is_set_both_passes_run() -> None:
    pacer = settled()
    assert after(pacer, 110.0, ClockSet()) == Quick()
    assert after(pacer, 110.0, APPLIED) == Full()


def test_a_clock_that_goes_back_makes_no_wait_longer() -> None:
    pacer = settled()
    assert after(pacer, 110.0, LookAgain(115.0)) == WaitUntil(115.0)
    assert pacer.next(WAITING, 10.0) == WaitUntil(15.0)


def test_a_clock_that_goes_forward_during_a_pass_does_not_make_its_pause_last_for_years() -> None:
    pacer = settled(Parameters(full_interval_seconds=SELDOM_SECONDS))
    assert after(wanting_full(pacer), 110.0) == Full()
    pacer.note(FullPlanned(), 1e8)
    assert after(pacer, 1e8, FullEnded(Outcome.APPLIED)) == Quick(), "sched_interval is over"
    ended = QuickEnded(outcome=Outcome.APPLIED, seconds=1e8, full_wanted=True)
    assert after(pacer, 1e8, ended, PassWanted()) == WaitUntil(1e8 + PAUSE_SECONDS_MAX)
