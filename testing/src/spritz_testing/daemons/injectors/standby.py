"""Faults of clusters with several controllers: of the one that leads, of those that stand by, and of their database."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from spritz_testing.daemons.controller import copies
from spritz_testing.daemons.database import Loss
from spritz_testing.daemons.faults import Kind, Perform, add, drawn
from spritz_testing.daemons.history import Injected
from spritz_testing.daemons.injectors import machines, processes

if TYPE_CHECKING:
    from spritz_testing.daemons.database import Database
    from spritz_testing.daemons.plan import Action
    from spritz_testing.daemons.site import Site
    from spritz_testing.daemons.units import Unit

#: Of a group's commit.
_COMMIT = "INSERT INTO groups ("

#: Seconds without power after a commit.
_OFF_SECONDS = 10.0

#: Most groups that a replica lacks when it is promoted.
_LOST_GROUPS_MAX = 6

# Controllers


def leader(site: Site) -> Unit | None:
    """The controller that leads, also one that is stopped; of several the one of the highest term."""
    found = [unit for unit in site.units.values() if unit.is_running and unit.process and unit.process.inside]
    return max(found, key=lambda unit: _term(unit), default=None)


def _term(unit: Unit) -> int:
    assert unit.process is not None, "it runs"
    term: int = unit.process.inside.context.journal.term
    return term


def _standby(site: Site) -> Unit | None:
    """The first one that stands by."""
    units = [site.units[f"{host.name}/slurmctld"] for host in site.controllers]
    return next((unit for unit in units if unit.is_running and unit.process and not unit.process.inside), None)


def _unit(site: Site, action: Action) -> Unit | None:
    return leader(site) if action.target.startswith("leader") else _standby(site)


def _killed(site: Site, action: Action, seconds: float) -> str | None:
    unit = _unit(site, action)
    if unit is None:
        return None
    hit = str(unit.process)
    processes.kill(unit)
    return hit


def _stopped(site: Site, action: Action, seconds: float) -> str | None:
    unit = _unit(site, action)
    if unit is None or unit.process is None:
        return None
    unit.process.stop()
    site.world.after(seconds, unit.process.go_on)
    return str(unit.process)


def _powerless(site: Site, action: Action, seconds: float) -> str | None:
    unit = _unit(site, action)
    if unit is None:
        return None
    machines.turn_off(site, unit.host, seconds)
    return unit.host.name


def _cut_off(site: Site, action: Action, seconds: float) -> str | None:
    """From the database, from all but it, or from the other controllers: one way or both."""
    unit = _unit(site, action)
    if unit is None:
        return None
    here, database = unit.host.name, site.standbys and site.standbys.host.name
    controllers = {host.name for host in site.controllers}
    others = [name for name in site.world.hosts if name != here]
    draw = int(action.data["draw"])
    groups = {
        "the database": [name for name in others if name == database],
        "all but the database": [name for name in others if name != database],
        "nodes": [host.name for host in site.nodes],
        "controllers": [name for name in others if name in controllers],
        "all": others,
    }
    name = list(groups)[draw % len(groups)]
    outwards, inwards = ((True, True), (True, True), (True, False), (False, True))[draw // 8 % 4]
    for other in groups[name]:
        if outwards:
            site.world.network.cut(here, other, seconds)
        if inwards:
            site.world.network.cut(other, here, seconds)
    return f"{here} {'<' if inwards else '-'}{'>' if outwards else '-'} {name}"


def _without_database(site: Site, action: Action, seconds: float) -> str | None:
    """Longer than a lease: others see this controller, and it sees them, while it can renew nothing."""
    unit = _unit(site, action)
    if unit is None or site.standbys is None:
        return None
    here, database = unit.host.name, site.standbys.host.name
    site.world.network.cut(here, database, seconds)
    site.world.network.cut(database, here, seconds)
    return f"{here} <> the database"


def _in_a_commit(site: Site, action: Action, seconds: float) -> str | None:
    """Kill the leader, or take its power, when it has just sent a group: before or after it hears of the commit."""
    unit = leader(site)
    if unit is None or unit.process is None:
        return None
    process, network = unit.process, _database(site).network
    later = 10 ** drawn(action, -5.0, -2.5)

    def happen() -> None:
        if process.is_alive:
            site.world.count(f"fault {action.kind}")
            site.world.tell(f"fault: {action.kind}, {process}")
            processes.kill(unit) if int(action.data["draw"]) & 1 else machines.turn_off(site, unit.host, _OFF_SECONDS)

    def sent(host: str, text: str) -> None:
        if host == process.host.name and _COMMIT in text:
            network.on_send.remove(sent)
            site.world.after(later, happen)

    def over() -> None:
        if sent in network.on_send:
            network.on_send.remove(sent)

    network.on_send.append(sent)
    site.world.after(seconds, over)
    return str(process)


#: A page of the journal that is read, and most pages that a standby may read before it loses the database.
_PAGE = "SELECT first, last, at, checksum, payload FROM groups"
_PAGES_MAX = 4
#: Seconds without the database after that: more than a standby's patience with one read.
_LOST_SECONDS = 4.0, 40.0


def _lost_while_behind(site: Site, action: Action, seconds: float) -> str | None:
    """A standby does not reach the database for a while, and loses it again while it reads what it has missed."""
    unit = _standby(site)
    if unit is None or site.standbys is None:
        return None
    here, there, network = unit.host.name, site.standbys.host.name, _database(site).network
    left = 2 + int(action.data["draw"]) % (_PAGES_MAX - 1)

    def cut(seconds: float) -> None:
        site.world.network.cut(here, there, seconds)
        site.world.network.cut(there, here, seconds)

    def sent(host: str, text: str) -> None:
        nonlocal left
        if host == here and _PAGE in text:
            left -= 1
            if not left:
                over()
                lasts = drawn(action, *_LOST_SECONDS)
                site.world.tell(f"fault: {action.kind}, {here}, {lasts:.1f} s")
                site.history.add(
                    Injected(at=site.world.now, until=site.world.now + lasts, kind=action.kind, target=here)
                )
                cut(lasts)

    def over() -> None:
        if sent in network.on_send:
            network.on_send.remove(sent)

    cut(seconds)
    site.world.after(seconds, lambda: network.on_send.append(sent))
    site.world.after(seconds + _LOST_SECONDS[1], over)
    return here


# The database


def _database(site: Site) -> Database:
    assert site.standbys is not None, 'the part "standby"'
    return site.standbys.database


def _at_once(act: Callable[[Database], object]) -> Perform:
    def perform(site: Site, action: Action, seconds: float) -> str | None:
        act(_database(site))
        return "db"

    return perform


def _for_a_while(begin: Callable[[Database], object], end: Callable[[Database], object]) -> Perform:
    def perform(site: Site, action: Action, seconds: float) -> str | None:
        database = _database(site)

        def over() -> None:
            end(database)

        begin(database)
        site.world.after(seconds, over)
        return "db"

    return perform


def _lost_once(loss: Loss, database: Database) -> None:
    database.network.lose_next(loss, text=_COMMIT)


def _fills_up(database: Database) -> None:
    database.server.full_for = math.inf


def _has_space(database: Database) -> None:
    database.server.full_for = 0.0


def _read_only(is_read_only: bool, database: Database) -> None:
    database.server.read_only = is_read_only


def _limit(count: int | None, database: Database) -> None:
    database.server.sessions_max = count


def _unreliable(site: Site, action: Action, seconds: float) -> str | None:
    """Any statement's connection may break before or after it."""
    chances = _database(site).network.chances
    chances.lost_before = 10 ** drawn(action, -3.0, -1.0)
    chances.lost_after = 10 ** drawn(action, -3.0, -1.0)

    def end() -> None:
        chances.lost_before = chances.lost_after = 0.0

    site.world.after(seconds, end)
    return "db"


def _set_back(site: Site, action: Action, seconds: float) -> str | None:
    """A replica that lags is promoted: acknowledged work is lost, which the leader must notice."""
    assert site.standbys is not None, 'the part "standby"'
    world, unit = site.world, leader(site)
    before = unit.process if unit is not None else None
    since = site.standbys.set_back(1 + int(action.data["draw"]) % _LOST_GROUPS_MAX)
    if since is None:
        return None
    if int(action.data["draw"]) & 8:
        _misses(site, seconds)
    world.job_ids.clear()  # it knows nothing of ids that were given later
    site.history.add(Injected(at=since, until=world.now, kind="state restored by failover", target="db"))
    if before is not None:
        copies.expect_end(before)
    return f"db, work of the last {world.now - since:g} seconds"


def _misses(site: Site, seconds: float) -> None:
    """A standby sees nothing of the database meanwhile: as where one storage fails for both."""
    unit = _standby(site)
    if unit is not None and site.standbys is not None:
        site.world.network.cut(unit.host.name, site.standbys.host.name, seconds)
        site.world.network.cut(site.standbys.host.name, unit.host.name, seconds)


_ROLES = ("leader", "standby")
_DATABASE = ("cluster",)


def _add(name: str, targets: tuple[str, ...], perform: Perform, *seconds: float, weight: float = 1.0) -> None:
    low, high = seconds or (0.0, 0.0)
    add(Kind(name=name, targets=targets, seconds=(low, high), weight=weight, part="standby"), perform)


_add("controller killed", _ROLES, _killed, weight=3)
_add("controller stopped", _ROLES, _stopped, 0.1, 300, weight=3)
_add("controller without power", _ROLES, _powerless, 5, 400)
_add("controller lost in a commit", ("leader",), _in_a_commit, 1, 60, weight=4)
_add("controller cut off", _ROLES, _cut_off, 0.5, 400, weight=4)
_add("leader without its database", ("leader",), _without_database, 20, 400, weight=3)
_add("standby behind", ("standby",), _lost_while_behind, 10, 200, weight=6)
_add("database stopped", _DATABASE, _for_a_while(lambda db: db.server.stop(), lambda db: db.server.start()), 0.5, 200)
_add("database crashed", _DATABASE, _for_a_while(lambda db: db.server.crash(), lambda db: db.server.start()), 0.5, 200)
_add("database frozen", _DATABASE, _for_a_while(lambda db: db.server.freeze(), lambda db: db.server.thaw()), 0.5, 200)
_add("database full", _DATABASE, _for_a_while(_fills_up, _has_space), 0.5, 200)
_add("database read-only", _DATABASE, _for_a_while(partial(_read_only, True), partial(_read_only, False)), 0.5, 200)
_add("database without sessions", _DATABASE, _for_a_while(partial(_limit, 2), partial(_limit, None)), 0.5, 200)
_add("database unreliable", _DATABASE, _unreliable, 0.5, 200, weight=2)
_add("database commit lost", _DATABASE, _at_once(partial(_lost_once, Loss.BEFORE)), weight=2)
_add("database answer lost", _DATABASE, _at_once(partial(_lost_once, Loss.AFTER)), weight=3)
_add("database sessions ended", _DATABASE, _at_once(lambda db: db.server.end_sessions()))
_add("database connections lost", _DATABASE, _at_once(lambda db: db.network.lose_connections()), weight=2)
_add("database failover", _DATABASE, _at_once(lambda db: db.server.fail_over()))
_add("database set back", _DATABASE, _set_back, 5, 120, weight=1.0)
