"""What the nodes of one order share is worked out once, and never taken from another order."""

from __future__ import annotations

from spritz.node.launch.latest import for_latest


def test_the_result_for_the_latest_argument_is_kept_and_no_other() -> None:
    made: list[tuple[int, ...]] = []

    def total(given: tuple[int, ...]) -> int:
        made.append(given)
        return sum(given)

    remembered = for_latest(total)
    first, other = (1000, 2), (5,)
    equal = tuple(map(int, first))
    assert [remembered(given) for given in (first, first, equal, other, other, first)] == [1002, 1002, 1002, 5, 5, 1002]
    assert [id(given) for given in made] == [id(given) for given in (first, equal, other, first)]
