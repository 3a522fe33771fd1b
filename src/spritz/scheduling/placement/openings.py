"""The times at which nodes could carry their part of a request, and for how long, as input of `earliest`.

A node opens at a time from which it stays able to carry its part for the request's whole duration. `QuickOpenings` uses
a compiled loop, if there is one and counts decide; `Openings` does the same with numpy, near times first. See
docs/decisions/0166.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling import kernels
from spritz.scheduling.placement.columns import capacity_columns, least_counts, needed
from spritz.scheduling.placement.select import target_of
from spritz.scheduling.view.profile import NEVER, Cells, cells_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.scheduling.view.profile import Floats, Profile
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Bools, Ints


def searches(
    profile: Profile, request: Request, nodes: Ints, since: float
) -> Iterator[tuple[float, Openings | QuickOpenings]]:
    """Times up to which openings are known, ascending, the last `NEVER`; and the openings from the previous such time
    (at first `since`) on.
    """
    least = _least(profile, request) if kernels.compiled else None
    if least is not None:
        yield NEVER, QuickOpenings(profile, request, nodes, since, least)
        return
    for horizon in profile.horizons(max(since, -NEVER)):
        yield horizon, Openings(profile, request, nodes, since, horizon)
        since = max(since, horizon)


def _least(profile: Profile, request: Request) -> dict[int, int] | None:
    """By column of the profile's counts, the least that every node must have; None if more than counts matters."""
    target = target_of(request)
    return least_counts(profile.table, request, target.tasks_per_node if target.tasks is None else 1)


class QuickOpenings:
    """As `Openings`, without a horizon: the compiled loop reads the profile as it goes."""

    def __init__(self, profile: Profile, request: Request, nodes: Ints, since: float, least: dict[int, int]) -> None:
        profile.settle()
        table = profile.table
        able = table.up[nodes]
        if request.tmp_mib:
            able &= table.tmp[nodes] >= request.tmp_mib
        nodes = nodes[able]
        counts = tuple(profile.counts[column] for column in least)
        self._search = (profile.times, nodes, counts, tuple(least.values()), float(since), request.seconds)
        self._count = len(nodes)
        self._profile, self._request = profile, request

    def first(self, nodes_min: int) -> float:
        """Earliest time by which `nodes_min` nodes have opened."""
        if self._count < nodes_min:
            return NEVER
        opens: Floats = np.empty(self._count, np.float64)
        kernels.openings_first(*self._search, opens)
        return float(np.partition(opens, nodes_min - 1)[nodes_min - 1])

    def after(self, at: float) -> float:
        """The next time at which some node opens."""
        return kernels.openings_after(*self._search, at)

    def at(self, at: float) -> Cells | None:
        """Cells that are open at that time and long enough; None if together they cannot carry the job, by sums."""
        places: Ints = np.empty(self._count, np.int64)
        count = kernels.openings_at(*self._search, at, places)
        if count < target_of(self._request).nodes_min:
            return None
        return _enough(self._profile, self._request, self._profile.cells_at(places[:count]))


class Openings:
    """From when, and for how long, each node could carry a part of the request, considering times up to `horizon`.
    Arrays are by cell of the profile.
    """

    def __init__(self, profile: Profile, request: Request, nodes: Ints, since: float, horizon: float) -> None:
        self.target = target_of(request)
        self.seconds = request.seconds
        least = self.target.tasks_per_node if self.target.tasks is None else 1
        cells = profile.cells(horizon)
        able: Bools = cells.ends > since
        if len(nodes) < len(profile.table.rows):
            member = np.zeros(len(profile.table.rows), np.bool_)
            member[nodes] = True
            able &= member[cells.node]
        able_cells = _able(profile, request, cells, np.flatnonzero(able), least)
        if horizon < NEVER:
            # All breakpoints count for the nodes that may serve by then: they must stay able for the job's whole
            # duration.
            node = cells.node[able_cells]
            cells = profile.cells(NEVER, node[_firsts(node)])
            able_cells = _able(profile, request, cells, np.flatnonzero(cells.ends > since), least)
        self.cells = cells
        able = np.zeros(len(cells.node), np.bool_)
        able[able_cells] = True
        # An able node stays able until its next cell that is not, or for ever after its last cell.
        last = np.append(cells.node[1:] != cells.node[:-1], True) | ~np.append(able[1:], True)
        every = np.arange(len(able))
        # A node is able in cells 3, 4 and 5 and not in 6: a job may begin in any of the three and must end by the end
        # of 5. The scan from the right carries the index of the last cell of each such run to all its cells.
        until = np.minimum.accumulate(np.where(last, every, len(able) - 1)[::-1])[::-1]
        self.lasts: Floats = cells.ends[until]
        # Nothing opens after a time that never comes.
        starts = np.maximum(cells.begins, since) if since < NEVER else np.full(len(cells.begins), NEVER)
        begun = np.minimum(starts, np.finfo(np.float64).max)
        self.open = np.flatnonzero(able & (self.lasts - begun >= self.seconds) & (starts < NEVER))
        self.starts: Floats = starts[self.open]
        self._profile, self._request = profile, request

    def first(self, nodes_min: int) -> float:
        """Earliest time by which `nodes_min` nodes have opened."""
        ready = self.starts[_firsts(self.cells.node[self.open])]
        if len(ready) < nodes_min:
            return NEVER
        return float(np.partition(ready, nodes_min - 1)[nodes_min - 1])

    def after(self, at: float) -> float:
        """The next time at which some node opens."""
        later = self.starts[self.starts > at]
        return float(later.min()) if len(later) else NEVER

    def at(self, at: float) -> Cells | None:
        """Cells that are open at that time and long enough; None if together they cannot carry the job, by sums."""
        cells, places = self.cells, self.open
        places = places[
            (cells.begins[places] <= at) & (at < cells.ends[places]) & (self.lasts[places] - at >= self.seconds)
        ]
        if len(places) < self.target.nodes_min:
            return None
        return _enough(self._profile, self._request, cells_of(cells, places))


def _firsts(nodes: Ints) -> Bools:
    """True where the next node begins. `nodes` ascends."""
    return np.append(True, nodes[1:] != nodes[:-1])[: len(nodes)]


def _able(profile: Profile, request: Request, cells: Cells, candidates: Ints, least: int) -> Ints:
    """The `candidates` of the cells that could carry at least the part that every node of the job must carry."""
    flat = profile.flat()
    for column, count in needed(flat, request):
        candidates = candidates[column[cells.place[candidates]] >= count]
    tasks, _gpus = capacity_columns(flat, request, cells.place[candidates])
    able_cells: Ints = candidates[tasks >= least]
    return able_cells


def _enough(profile: Profile, request: Request, cells: Cells) -> Cells | None:
    """The cells; None if they cannot carry the job together, by sums."""
    target = target_of(request)
    if target.tasks or target.gpus:
        tasks, gpus = capacity_columns(profile.flat(), request, cells.place)
        if target.tasks and int(tasks.sum()) < target.tasks:
            return None
        if target.gpus and int(gpus.sum()) < target.gpus:
            return None
    return cells
