"""The checks of a run that is over: the history of its users and nodes, against what clients are shown in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.errors import SpritzError
from spritz_testing.daemons.accounting import records
from spritz_testing.daemons.accounting.client import Behind
from spritz_testing.daemons.checks import Story, check, reached
from spritz_testing.daemons.history import Injected, Operation
from spritz_testing.daemons.runs import final
from spritz_testing.daemons.system.restoring import RESTORED
from spritz_testing.daemons.system.world import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz_testing.daemons.accounting import Accounting
    from spritz_testing.daemons.site import Site


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
    story = Story(site.history.entries, state)
    for name, count in reached(story).items():
        site.world.counts[f"limit {name}"] = count
    found = [(violation.rule, violation.at - EPOCH, violation.text) for violation in check(site.history, state)]
    if any(isinstance(entry, Injected) and entry.kind in RESTORED for entry in site.history.entries):
        found = [violation for violation in found if violation[0] in _AFTER_LOSS]
    elif site.accounting is not None:
        found += judge_accounting(site, site.accounting, story)
    return found + list(_standbys(site))


#: Rules that hold also if acknowledged work was lost, of which the history was told.
_AFTER_LOSS = frozenset({"4.term", "6.answer", "6.completing", "6.running", "6.pending"})


def _standbys(site: Site) -> Iterator[Violation]:
    """Of several controllers one leads in the end; and their database has understood all of their statements."""
    if site.standbys is None:
        return
    at = site.world.now - EPOCH
    leaders = [
        unit.host.name for unit in site.units.values() if unit.is_running and unit.process and unit.process.inside
    ]
    if len(leaders) != 1:
        yield "6.leader", at, f"in the end {' and '.join(leaders) or 'none'} leads"
    for statement in site.standbys.database.server.unknown:
        yield "the simulation does not fail", at, f"the database does not know the statement {statement}"


#: Seconds of an hour, for which usage is rolled up.
_HOUR = 3600

#: Seconds of virtual time for an answer of slurmdbd.
_ANSWER_SECONDS = 120.0


def judge_accounting(site: Site, accounting: Accounting, story: Story) -> list[Violation]:
    """What the history cannot show: the tables are what the journal says, and sreport adds up what sacct lists."""
    world, host = site.world, site.controllers[0]
    # An hour is over when it is by slurmdbd's clock, which may have been set back for good.
    begin, end = (int(at) // _HOUR * _HOUR for at in (EPOCH, min(world.now, accounting.host.wall())))
    hours = [(since, since + _HOUR) for since in range(begin, end, _HOUR)]
    try:
        jobs = accounting.read_jobs(site.login, _ANSWER_SECONDS)
        holders = [accounting.read_usage(site.login, _ANSWER_SECONDS, *hour) for hour in hours]
    except (Behind, SpritzError, TimeoutError) as error:
        return [("6.answer", world.now - EPOCH, f"slurmdbd does not answer in the end: {error!r}")]
    rows = records.journal_differences(accounting.database.path, host, host.directory / "state")
    found = [("6.accounting: tables are what the journal says", line) for line in rows or ()]
    reserved = any(isinstance(entry, Operation) and entry.kind == "reserve" for entry in site.history.entries)
    for hour, used in zip(hours, holders, strict=True):
        usage = records.usage_differences(jobs, used, *hour, has_reservations=reserved, set_by=story.set_by)
        found += [("6.accounting: usage", f"hour from {hour[0] - EPOCH:g} s on: {line}") for line in usage]
    return [(rule, world.now - EPOCH, line) for rule, line in found]
