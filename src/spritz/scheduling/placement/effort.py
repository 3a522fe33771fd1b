"""The limit of work for second tries, and whether one of them gave up.

The usual choice of nodes is quick, and misses some sets of nodes that would do. `search` then looks through all sets.
That may take long, so it counts its steps: entries of its tables, not seconds, so that a plan depends on the snapshot
alone.
"""

from __future__ import annotations

#: steps of one search: ten to twenty milliseconds
SEARCH_STEPS_MAX = 10_000
#: steps of all searches for starts in one full cycle, and in one quick cycle, for which the controller waits
CYCLE_STEPS_MAX = 100_000
QUICK_STEPS_MAX = 2_000


class Effort:
    """`left`: steps left for all searches; `each`: most steps of one. With `unsure`, a search ended before it had
    looked at everything, so "no place" is not final. With `cut`, only because earlier searches had taken most of
    `left`: the same search may find a place in another cycle.
    """

    __slots__ = ("cut", "each", "left", "unsure")

    def __init__(self, left: int = SEARCH_STEPS_MAX, each: int = SEARCH_STEPS_MAX) -> None:
        self.left = left
        self.each = each
        self.unsure = self.cut = False

    def begin(self) -> None:
        """Forget how earlier searches ended."""
        self.unsure = self.cut = False

    def take(self) -> int:
        """Steps for one search. `give_back` what it does not need."""
        steps = min(self.each, max(self.left, 0))
        self.left -= steps
        return steps

    def give_back(self, steps: int) -> None:
        """A search ended with this many of its steps left."""
        self.left += steps

    def gave_up(self, steps: int) -> None:
        """A search that had this many steps needed more."""
        self.unsure = True
        self.cut = self.cut or steps < self.each
