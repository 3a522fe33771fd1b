"""The checks of a run that is over: the history of its users and nodes, against what clients are shown in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz.sim.daemons import final
from spritz.sim.daemons.accounting import records
from spritz.sim.daemons.accounting.client import Behind
from spritz.sim.daemons.checks import check
from spritz.sim.daemons.history import Operation
from spritz.sim.daemons.world import EPOCH

if TYPE_CHECKING:
    from spritz.sim.daemons.accounting import Accounting
    from spritz.sim.daemons.site import Site


#: (rule, seconds after the beginning, text)
Violation = tuple[str, float, str]


def judge(site: Site) -> list[Violation]:
    """(rule, seconds after the beginning, text) of every violation. Reads the final state, which takes a moment."""
    assert site.users is not None, "a run has users"
    try:
        state = final.read(site.users)
    except final.Unreadable as error:
        return [("6.answer", site.world.now - EPOCH, f"the controller does not answer in the end: {error}")]
    for unit in site.units.values():
        inside = unit.process.inside if unit.process is not None and unit.is_running else None
        if inside is not None:
            inside.compare()
    told = [] if site.accounting is None else judge_accounting(site, site.accounting)
    return told + [(found.rule, found.at - EPOCH, found.text) for found in check(site.history, state)]


#: Seconds of virtual time for an answer of slurmdbd.
_ANSWER_SECONDS = 120.0


def judge_accounting(site: Site, accounting: Accounting) -> list[Violation]:
    """What the history cannot show: the tables are what the journal says, and sreport adds up what sacct lists."""
    world, host = site.world, site.controllers[0]
    end = int(world.now) // 3600 * 3600
    try:
        jobs = accounting.read_jobs(site.login, _ANSWER_SECONDS)
        holders = accounting.read_usage(site.login, _ANSWER_SECONDS, int(EPOCH), end)
    except (Behind, SpritzError, TimeoutError) as error:
        return [("6.answer", world.now - EPOCH, f"slurmdbd does not answer in the end: {error!r}")]
    rows = records.journal_differences(accounting.database.path, host, host.directory / "state")
    found = [("6.accounting: tables are what the journal says", line) for line in rows or ()]
    reserved = any(isinstance(entry, Operation) and entry.kind == "reserve" for entry in site.history.entries)
    usage = records.usage_differences(jobs, holders, int(EPOCH), end, has_reservations=reserved)
    found += [("6.accounting: usage", line) for line in usage]
    return [(rule, world.now - EPOCH, line) for rule, line in found]
