"""The earliest time at which a request fits into a profile, and where.

Source: Lifka 1995 (EASY backfill); Mu'alem and Feitelson 2001 (conservative backfill); slurm.conf(5) bf_*.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.scheduling.placement.effort import Effort
from spritz.scheduling.placement.openings import searches
from spritz.scheduling.placement.place import assign_all, place
from spritz.scheduling.placement.scheme import choose, scheme_for
from spritz.scheduling.placement.select import target_of
from spritz.scheduling.view.profile import NEVER, FutureRows

if TYPE_CHECKING:
    from spritz.model.resources import Allocation
    from spritz.scheduling.view.eligibility import Eligibility
    from spritz.scheduling.view.profile import Profile
    from spritz.scheduling.view.request import Request
    from spritz.scheduling.view.table import Ints

#: times at which a place is looked for before giving up on one request
BREAKPOINTS_MAX = 256


def earliest(
    profile: Profile,
    request: Request,
    eligibility: Eligibility,
    since: float,
    until: float = NEVER,
    nodes: Ints | None = None,
    effort: Effort | None = None,
) -> tuple[float, Allocation] | None:
    """First time in [since, until] at which the request fits for its whole duration, and where; None if there is none.
    `nodes`: the only nodes to use (None: any that may serve). `effort`: for second tries at all these times (None: as
    much as for one).
    """
    if nodes is None:
        start, final = _by_counts(profile, request, eligibility, since, until)
        if final:
            return start
        nodes = eligibility.nodes(request)
    target = target_of(request)
    if len(nodes) < target.nodes_min:
        return None
    tried, effort = 0, effort or Effort()
    for horizon, openings in searches(profile, request, nodes, since):
        # `first` is a lower bound, found without placing anything: before that time fewer than nodes_min nodes are open
        # at all. From there on go from one opening to the next; between two openings nothing becomes possible that was
        # not possible before.
        at = openings.first(target.nodes_min)
        while tried < BREAKPOINTS_MAX and at <= min(horizon, until) and at < NEVER:
            within = openings.at(at)
            if within is not None:
                tried += 1
                # Whether a leaf is free of other jobs shows only if all of its nodes are looked at.
                cells = None if request.segment_alone else within
                table = profile.at(at, at + request.seconds, within=cells)
                allocation = place(table, request, eligibility, profile.table, within.node, effort)
                if allocation is not None:
                    return at, allocation
            at = openings.after(at)
        if horizon > until or tried == BREAKPOINTS_MAX:
            break
    return None


def _by_counts(
    profile: Profile, request: Request, eligibility: Eligibility, since: float, until: float
) -> tuple[tuple[float, Allocation] | None, bool]:
    """The earliest start by the compiled code, and whether that answer is final."""
    choices, table = eligibility.choices(request), profile.table
    if len(choices) != 1 or request.refusal or request.node_counts:
        return None, False
    scheme = scheme_for(eligibility, table, request, choices[0])
    if scheme is None:
        return None, False
    profile.settle()
    seconds, nodes = request.seconds, choices[0].nodes
    answer = choose(
        scheme,
        profile.times,
        profile.counts,
        nodes,
        table.up,
        table.weight,
        table.cpus,
        since,
        seconds,
        until,
        BREAKPOINTS_MAX,
    )
    if answer is None:
        return None, True
    at, _tried, chosen = answer
    portions = None if chosen is None else scheme.portions(chosen)
    if portions is None:
        return None, False
    rows = FutureRows(profile, at, at + seconds)
    allocation, _misfit = assign_all(rows, request, portions, table)
    return (None, False) if allocation is None else ((at, allocation), True)
