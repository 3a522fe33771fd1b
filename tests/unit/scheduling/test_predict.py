"""Predicted run times: what is learnt, and how a prediction grows."""

from __future__ import annotations

import pytest

from spritz.model.rules.predict import Likeness, Predictor, corrected, expected_slowdown


def job(user: str = "ann", name: str = "train", limit: float = 3600, processors: int = 8) -> Likeness:
    return Likeness(user, name, limit, processors)


def test_without_history_the_requested_time_is_used() -> None:
    assert Predictor().predict(job()) == 3600


def test_the_last_two_run_times_count() -> None:
    predictor = Predictor()
    for seconds in (9999, 100, 300):
        predictor.learn(job(), seconds)
    assert predictor.predict(job()) == 200


def test_more_similar_jobs_count_before_less_similar_ones() -> None:
    predictor = Predictor()
    predictor.learn(job(processors=8), 100)
    predictor.learn(job(processors=16), 500)
    assert predictor.predict(job(processors=8)) == 100
    assert predictor.predict(job(name="other", processors=1)) == 300  # same user and limit
    assert predictor.predict(job(limit=7200, processors=16)) == 500  # same user, name and processors
    assert predictor.predict(job(name="new", limit=60, processors=2)) == 60  # never above the limit
    assert predictor.predict(job(user="bob")) == 3600


def test_a_prediction_is_at_least_a_second() -> None:
    predictor = Predictor()
    predictor.learn(job(), 0.0)
    assert predictor.predict(job()) == 1


@pytest.mark.parametrize(
    ("elapsed", "expected"), [(50, 100), (100, 160), (159, 160), (160, 400), (1000, 1900), (9e5, 7200)]
)
def test_an_outlived_prediction_grows_in_steps_up_to_the_limit(elapsed: float, expected: float) -> None:
    assert corrected(100, elapsed, 7200) == expected


def test_expected_slowdown_grows_with_the_wait() -> None:
    assert expected_slowdown(0, 100) == 1
    assert expected_slowdown(100, 100) == 2
    assert expected_slowdown(99, 1) == 10  # bounded by 10 s
