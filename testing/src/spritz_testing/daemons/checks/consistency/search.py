"""Is there an order of overlapping operations that the model permits? The search of rule 2, for any model.

Each operation has a call and a return. The search goes through these in the order of time and keeps all
*configurations* that explain the history so far: a state, and which of the open operations have taken effect. At the
return of an operation those remain in which it has taken effect, alone or after others that are open. Operations of
unknown outcome never return: they may take effect at any time after their call, or never.

Configurations that another one covers are dropped: the same operations have taken effect except optional ones that the
other still has, and the other's state may become this one without any.

Source: Wing and Gong, *Testing and verifying concurrent objects* (1993); Lowe, *Testing for linearizability* (2017).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from math import inf
from typing import Generic, TypeVar

from msgspec import Struct

S = TypeVar("S", bound=Hashable)

#: A state, and a mask of the open operations that have taken effect.
Configuration = tuple[S, int]


class Action(Struct, Generic[S]):
    """An operation. `apply`: the state after it, or None where its outcome is not possible."""

    name: str
    called_at: float
    #: inf: it may take effect at any time after its call, or never
    returned_at: float
    apply: Callable[[S], S | None]


class Verdict(Struct, Generic[S]):
    """What the search found. `failed`: the operation that nothing explains, with the states before it.

    `undecided`: the budget was spent; nothing is known.
    """

    failed: Action[S] | None = None
    states: tuple[S, ...] = ()
    open_actions: tuple[Action[S], ...] = ()
    undecided: bool = False
    work: int = 0


class Search(Generic[S]):
    """One search. `closure(state, at)`: the state and all that it may become by itself, by that time; it must only
    grow with time. `budget`: most applications of an operation to a state.
    """

    def __init__(self, start: S, closure: Callable[[S, float], tuple[S, ...]], budget: int) -> None:
        # Dicts and no sets: texts of violations must not depend on the hash of a string.
        self._configurations: dict[Configuration[S], None] = {(start, 0): None}
        self._closure = closure
        self._budget = budget
        self._work = 0
        #: open operations by their bit
        self._open: dict[int, Action[S]] = {}
        self._bits: dict[int, int] = {}

    def run(self, actions: Iterable[Action[S]]) -> Verdict[S]:
        """Go through all calls and returns."""
        for at, is_return, number, action in _moments(list(actions)):
            if not is_return:
                self._call(number, action)
                continue
            before = self._configurations
            if not self._return(self._bits.pop(number), at):
                return Verdict(undecided=True, work=self._work)
            if not self._configurations:
                states = tuple(dict.fromkeys(state for state, _done in before))
                return Verdict(failed=action, states=states, open_actions=tuple(self._open.values()), work=self._work)
        return Verdict(work=self._work)

    def _call(self, number: int, action: Action[S]) -> None:
        bit = 1
        while bit in self._open:
            bit <<= 1
        self._open[bit] = action
        if action.returned_at != inf:
            self._bits[number] = bit

    def _return(self, bit: int, at: float) -> bool:
        """Keep the configurations in which the operation has taken effect. False: the budget is spent."""
        kept: dict[Configuration[S], None] = {}
        queue = list(self._configurations)
        visited = set(queue)
        while queue:
            state, done = queue.pop()
            if done & bit:
                kept[state, done & ~bit] = None
                continue
            for after in self._after(state, done, at):
                if after not in visited:
                    visited.add(after)
                    queue.append(after)
            if self._work > self._budget:
                return False
        del self._open[bit]
        self._configurations = self._without_covered(kept, at)
        return True

    def _after(self, state: S, done: int, at: float) -> Iterable[Configuration[S]]:
        """Configurations after one more open operation has taken effect."""
        for present in self._closure(state, at):
            for bit, action in self._open.items():
                if done & bit:
                    continue
                self._work += 1
                after = action.apply(present)
                # An optional operation that changes nothing need not take effect.
                if after is not None and not (action.returned_at == inf and after == present):
                    yield after, done | bit

    def _without_covered(self, configurations: dict[Configuration[S], None], at: float) -> dict[Configuration[S], None]:
        optional = sum(bit for bit, action in self._open.items() if action.returned_at == inf)
        kept: list[tuple[Configuration[S], frozenset[S]]] = []
        for state, done in sorted(configurations, key=lambda item: (item[1].bit_count(), item[1])):
            if not any(_covers(other, states, state, done, optional) for other, states in kept):
                states = frozenset(self._closure(state, at))
                kept = [
                    (other, others)
                    for other, others in kept
                    if not _covers((state, done), states, other[0], other[1], optional)
                ]
                kept.append(((state, done), states))
        return {configuration: None for configuration, _states in kept}


def _covers(other: Configuration[S], states: frozenset[S], state: S, done: int, optional: int) -> bool:
    """Whether the other configuration (from which `states` may follow) explains all that this one explains."""
    more = done ^ other[1]
    return not more & ~optional and not other[1] & more and state in states


def _moments(actions: list[Action[S]]) -> list[tuple[float, bool, int, Action[S]]]:
    """Calls and returns in the order of time. At the same moment calls come first: such operations overlap."""
    moments = [(action.called_at, False, number, action) for number, action in enumerate(actions)]
    moments += [
        (action.returned_at, True, number, action) for number, action in enumerate(actions) if action.returned_at != inf
    ]
    return sorted(moments, key=lambda moment: moment[:3])
