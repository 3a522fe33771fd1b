"""The checks of a run that is over: the history of its users and nodes, against what clients are shown in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.sim.daemons import final
from spritz.sim.daemons.checks import check
from spritz.sim.daemons.world import EPOCH

if TYPE_CHECKING:
    from spritz.sim.daemons.site import Site


def judge(site: Site) -> list[tuple[str, float, str]]:
    """(rule, seconds after the beginning, text) of every violation. Reads the final state, which takes a moment."""
    assert site.users is not None, "a run has users"
    try:
        state = final.read(site.users)
    except final.Unreadable as error:
        return [("6.answer", site.world.now - EPOCH, f"the controller does not answer in the end: {error}")]
    return [(found.rule, found.at - EPOCH, found.text) for found in check(site.history, state)]
