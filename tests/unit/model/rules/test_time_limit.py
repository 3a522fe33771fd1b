"""Which time limit a job gets. Source: answers of Slurm 22.05, docs/decisions/0154."""

from __future__ import annotations

import pytest

from spritz.model.ids import INFINITE
from spritz.model.job.record import JobSpec
from spritz.model.limits.flags import NONE, PARTITION_TIME_LIMIT
from spritz.model.node.partition import Partition
from spritz.model.rules.time_limit import YEAR_SECONDS, exceeds, granted_minutes, held_seconds, limit_minutes

LIFTED = frozenset({PARTITION_TIME_LIMIT})


@pytest.mark.parametrize(
    ("asked", "default", "most", "limit", "waits"),
    [
        (None, None, INFINITE, INFINITE, False),
        (None, None, 60, 60, False),
        (None, 30, 60, 30, False),
        (None, 120, 60, 120, True),
        (100, 30, 60, 100, True),
        (60, 30, 60, 60, False),
        (0, 30, 60, INFINITE, True),
        (0, 30, INFINITE, INFINITE, False),
    ],
)
def test_the_limit_is_the_jobs_own_or_the_default_or_the_longest(
    asked: int | None, default: int | None, most: int, limit: int, waits: bool
) -> None:
    home = Partition(name="p", default_time_minutes=default, max_time_minutes=most)
    spec = JobSpec(time_limit_minutes=asked)
    assert limit_minutes(spec, home) == granted_minutes(spec, home, NONE) == limit
    assert exceeds(spec, home, NONE) is waits
    assert not exceeds(spec, home, LIFTED)


@pytest.mark.parametrize(
    ("asked", "least", "planned", "granted", "waits"),
    [
        (120, 10, None, 60, False),
        (120, 10, 25, 25, False),
        (120, 10, 5, 10, False),
        (120, 90, None, 90, True),
        (40, 10, None, 40, False),
    ],
)
def test_a_limit_that_may_be_cut_is_cut_to_maxtime(
    asked: int, least: int, planned: int | None, granted: int, waits: bool
) -> None:
    home = Partition(name="p", max_time_minutes=60)
    spec = JobSpec(time_limit_minutes=asked, time_min_minutes=least)
    assert granted_minutes(spec, home, NONE, planned) == granted
    assert exceeds(spec, home, NONE) is waits
    assert granted_minutes(spec, home, LIFTED) == asked


def test_a_job_without_a_limit_is_planned_for_a_year() -> None:
    assert held_seconds(2) == 120.0
    assert held_seconds(INFINITE) == YEAR_SECONDS
