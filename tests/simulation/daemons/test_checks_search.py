"""The search of rule 2, on a register: any order that explains the history, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from spritz_testing.daemons.checks.consistency.search import Action, Search, Verdict


def write(value: int) -> Callable[[int], int | None]:
    return lambda _state: value


def read(value: int) -> Callable[[int], int | None]:
    return lambda state: state if state == value else None


def action(name: str, called_at: float, returned_at: float) -> Action[int]:
    """`w1` writes 1, `r1` reads 1."""
    apply = write(int(name[1:])) if name[0] == "w" else read(int(name[1:]))
    return Action(name=name, called_at=called_at, returned_at=returned_at, apply=apply)


def search(*actions: Action[int], budget: int = 10_000) -> Verdict[int]:
    return Search(0, lambda state, _at: (state,), budget).run(actions)


def test_one_after_the_other() -> None:
    assert search(action("w1", 0, 1), action("r1", 2, 3)).failed is None
    failed = search(action("w1", 0, 1), action("r0", 2, 3)).failed
    assert failed is not None
    assert failed.name == "r0"


def test_an_overlapping_write_may_come_first_or_last() -> None:
    assert search(action("w1", 0, 5), action("r0", 1, 2), action("r1", 3, 4)).failed is None
    assert search(action("w1", 0, 5), action("r1", 1, 2), action("r0", 3, 4)).failed is not None


def test_an_operation_of_unknown_outcome_takes_effect_later_or_never() -> None:
    lost = action("w1", 0, inf)
    assert search(lost, action("r0", 2, 3), action("r1", 8, 9)).failed is None
    assert search(lost, action("r0", 8, 9)).failed is None
    assert search(lost, action("r1", 2, 3), action("r0", 8, 9)).failed is not None


def test_a_spent_budget_is_told() -> None:
    many = [action(f"w{number}", 0, 100 + number) for number in range(12)]
    assert search(*many, action("r99", 1, 50), budget=1_000).undecided


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["w0", "w1", "w2", "r0", "r1", "r2"]),
            st.integers(0, 10),
            st.integers(0, 5),
            st.booleans(),
        ),
        max_size=5,
    )
)
def test_the_search_agrees_with_trying_all_orders(parts: list[tuple[str, int, int, bool]]) -> None:
    actions = [
        action(name, called, inf if lost and name[0] == "w" else called + length)
        for name, called, length, lost in parts
    ]
    assert (search(*actions).failed is None) is explained(actions)


def explained(actions: list[Action[int]]) -> bool:
    """Whether any order of all actions that returned, and any of the others, is possible: by trying all."""
    lost = [candidate for candidate in actions if candidate.returned_at == inf]
    for mask in range(1 << len(lost)):
        chosen = [candidate for candidate in actions if candidate.returned_at != inf]
        chosen += [candidate for place, candidate in enumerate(lost) if mask >> place & 1]
        if any(possible(order) for order in permutations(chosen)):
            return True
    return False


def possible(order: tuple[Action[int], ...]) -> bool:
    state: int | None = 0
    for place, candidate in enumerate(order):
        if any(later.returned_at < candidate.called_at for later in order[place + 1 :]):
            return False
        state = candidate.apply(state) if state is not None else None
    return state is not None
