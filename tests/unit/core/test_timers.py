"""Deadlines: the earliest is always known, whatever is set, moved and forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spritz.core.job.timers import NEVER, Deadlines

changes = st.lists(st.tuples(st.integers(1, 6), st.sampled_from([1.0, 2.0, 3.0, 4.0, NEVER])), max_size=60)


@given(changes, st.sampled_from([0.5, 2.0, 3.5, 9.0]))
def test_deadlines_agree_with_a_plain_dict(changes: list[tuple[int, float]], now: float) -> None:
    deadlines, plain = Deadlines(), dict[int, float]()
    for job_id, at in changes:
        deadlines.set(job_id, at)
        if at == NEVER:
            plain.pop(job_id, None)
        else:
            plain[job_id] = at
        assert deadlines.next() == (min(plain.values()) if plain else None)
    due = deadlines.due(now)
    assert sorted(due) == sorted(job_id for job_id, at in plain.items() if at <= now)
    assert [plain[job_id] for job_id in due] == sorted(plain[job_id] for job_id in due)
    assert dict(deadlines.items()) == plain


def test_superseded_deadlines_do_not_pile_up() -> None:
    deadlines = Deadlines()
    for number in range(100_000):
        deadlines.set(number % 10, 1e9 + number)
    assert len(deadlines._heap) < 200
