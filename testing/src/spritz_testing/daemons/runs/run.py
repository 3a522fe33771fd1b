"""One run: a world from a seed, a cluster in it, a plan carried out, and its history checked.

A run needs a process of its own, since the seam is never undone: `campaign` forks one for each.
"""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spritz.client.channel import server
from spritz.controller.nodes import links as nodes
from spritz.controller.programs import triggers
from spritz.model.node_daemon import reports
from spritz.node import daemon as node_daemon
from spritz_testing.daemons import coverage, faults, injectors, seam
from spritz_testing.daemons.clients.users import Users
from spritz_testing.daemons.injectors import operators
from spritz_testing.daemons.runs import small_limits
from spritz_testing.daemons.runs.judge import judge
from spritz_testing.daemons.runs.story import tell
from spritz_testing.daemons.site import Site
from spritz_testing.daemons.system.network import Network
from spritz_testing.daemons.system.world import EPOCH, Stuck, World

if TYPE_CHECKING:
    from spritz_testing.daemons.plan import Action, Plan

#: (rule, seconds after the beginning, text)
Violation = tuple[str, float, str]

#: Where the disks of simulated hosts are: in memory, since only the simulation decides what a disk loses.
_MEMORY = Path("/dev/shm")

#: Seconds without any event after which a run is over, and between two looks for one: more than any timer that a fault
#: leaves behind (SlurmdTimeout, retries of a reboot, the patience of clients).
_SETTLED_SECONDS, _SLICE_SECONDS = 900.0, 60.0

#: Seconds after the last fault at which administrators resume drained nodes: twice, since the controller may be away.
_RESUMED_SECONDS = 30.0, 300.0

#: Every run calls its directory by the same name, so that paths have the same length and order everywhere.
_ROOT_DESCRIPTOR = 240

#: Rules: each looks at a run that is over and says what it violates. The checks register here.
CHECKS: list[Callable[[Site], list[Violation]]] = [judge]


class Result(Struct, kw_only=True):
    """How a run ended."""

    seed: int
    violations: list[Violation]
    #: how often something happened, by name
    counts: dict[str, int]
    virtual_seconds: float
    cpu_seconds: float
    events: int
    #: of all that happened, to the byte
    digest: str = ""
    #: for a reader: what was asked, injected, begun and ended, with the log near the first violation
    transcript: list[str] = []
    #: one line each, with its time: all that daemons logged and the simulation did
    story: list[str] = []
    #: what users and nodes saw (`history.Entry`)
    history: list[Any] = []


def run(plan: Plan, root: Path | None = None, *, ends_early: bool = False) -> Result:
    """Carry out a plan. `root`: an empty directory for the hosts' disks, which stays.

    `ends_early`: soon after the first violation that shows while it runs, for those who want to know no more.
    """
    began = process_time()
    directory = root or Path(tempfile.mkdtemp(prefix="spritz-sim-", dir=memory()))
    gc.disable()  # when objects end must not depend on the collector
    try:
        world = World(plan.seed, _fixed(directory))
        world.network = Network(world)
        seam.install(world)
        _pace(world)
        small_limits.draw(world)
        site = Site(world, plan.scale)
        violations = _carry_out(site, plan, ends_early=ends_early)
        lines = [f"{at - EPOCH:12.6f} {text}" for at, text in world.story]
        return Result(
            seed=plan.seed,
            violations=violations,
            counts=world.counts,
            virtual_seconds=world.now - EPOCH,
            cpu_seconds=process_time() - began,
            events=world.events,
            digest=_digest(lines, site, violations),
            transcript=tell(site.history, lines, violations),
            story=lines,
            history=site.history.entries,
        )
    finally:
        if root is None:
            shutil.rmtree(directory, ignore_errors=True)


def _pace(world: World) -> None:
    """In most runs nodes are heard of, and looked for, less often than in production, and so are connections and
    triggers: such looks are most of what a quiet cluster does, and all alike. Every limit that follows from them is
    longer by the same factor.
    """
    factor = world.random("pace").choice((1.0,) + 7 * (6.0,))
    heartbeat = factor * reports.HEARTBEAT_SECONDS
    paces = (node_daemon, "HEARTBEAT_SECONDS", heartbeat), (nodes, "QUIET_SECONDS", 1.5 * heartbeat)
    looks = (
        (nodes, "LOOK_SECONDS", factor),
        (triggers, "LOOK_SECONDS", factor),
        (server, "LOOKS", server.LOOKS / factor),
    )
    for module, name, value in (*paces, *looks):
        setattr(module, name, value)


def memory() -> Path | None:
    """A directory in memory, if this machine has one."""
    return _MEMORY if _MEMORY.is_dir() else None


def _fixed(directory: Path) -> Path:
    """The same name for whichever directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    os.dup2(descriptor, _ROOT_DESCRIPTOR)
    os.close(descriptor)
    return Path(f"/proc/self/fd/{_ROOT_DESCRIPTOR}")


def _carry_out(site: Site, plan: Plan, *, ends_early: bool) -> list[Violation]:
    world, scale = site.world, plan.scale
    violations: list[Violation] = []
    try:
        site.start()
        os.environ["SLURM_CONF"] = str(site.conf)
        Users(site).schedule(plan.actions)
        for action in plan.actions:
            if action.kind in faults.KINDS:
                world.at(EPOCH + action.at, partial(_inject, site, action, violations))
        end = world.now + scale.busy_seconds
        while ends_early and world.now < end and not world.violations:
            world.run(min(_SLICE_SECONDS, end - world.now))
        if not (ends_early and world.violations):
            world.run(end - world.now)
            for seconds in _RESUMED_SECONDS:
                world.after(seconds, partial(_resume_nodes, site))
            _settle(site, scale.quiet_seconds)
    except Stuck as error:
        violations.append(("5: a run comes to its end", world.now - EPOCH, str(error)))
    except Exception:
        violations.append(("the simulation does not fail", world.now - EPOCH, traceback.format_exc()))
    else:
        if not (ends_early and world.violations):
            violations += _judged(site)
    violations += world.violations
    return sorted(violations, key=lambda found: found[1])


def _judged(site: Site) -> list[Violation]:
    """What the rules say of a run that came to its end."""
    violations: list[Violation] = []
    for check in (_unhandled, _not_running, *CHECKS):
        try:
            violations += check(site)
        except Exception:
            at = site.world.now - EPOCH
            violations.append(("the simulation does not fail", at, traceback.format_exc()))
    return violations


def _resume_nodes(site: Site) -> None:
    """Administrators look after nodes that faults have drained: no job can run where all its nodes stay drained."""
    operators.ask(site, "resume_nodes", {"nodes": [host.name for host in site.nodes]})


def _settle(site: Site, seconds: float) -> None:
    """Let what the faults have delayed catch up, for so many seconds at most: until nothing runs and nothing has
    happened for `_SETTLED_SECONDS`. Only when to stop is decided by looking into the controller.
    """
    world = site.world
    end = world.now + seconds
    last, since = -1, world.now
    while world.now < end and world.now - since < _SETTLED_SECONDS:
        world.run(min(_SLICE_SECONDS, end - world.now))
        sequence = _last_event(site)
        if sequence != last:
            last, since = sequence, world.now


def _last_event(site: Site) -> int:
    """Number of the last event of the controller that leads; another one each time while jobs run, or none leads."""
    for unit in site.units.values():
        inside = unit.process.inside if unit.process is not None and unit.is_running else None
        if inside is not None:
            busy = any(job.state.active or job.completing for job in inside.machine.state.jobs.values())
            return -int(site.world.now) if busy else inside.context.writer.last_sequence
    return -int(site.world.now)


def _inject(site: Site, action: Action, violations: list[Violation]) -> None:
    """Inject a fault. An error of its own must not reach production code that it has interrupted."""
    try:
        faults.perform(site, action)
    except Exception:
        violations.append(("the simulation does not fail", site.world.now - EPOCH, traceback.format_exc()))


def _unhandled(site: Site) -> list[Violation]:
    """Errors that daemons left to their loop or a thread: no fault excuses these."""
    found = []
    for process, context in site.world.unhandled[:10]:
        error = context.get("exception")
        text = "".join(traceback.format_exception(error)) if error is not None else ""
        found.append(("every error is handled", site.world.now - EPOCH, f"{process}: {context['message']} {text}"))
    return found


def _not_running(site: Site) -> list[Violation]:
    """Daemons that do not come up though nothing has gone wrong for a long time."""
    world = site.world
    found = []
    for name, unit in site.units.items():
        ends = sum(1 for at, _, _ in unit.ends if at > world.now - _SETTLED_SECONDS)
        if unit.is_wanted and ends > 1:
            at, _, error = unit.ends[-1]
            found.append(("every daemon comes up again", at - EPOCH, f"{name} ended {ends} times, at last: {error!r}"))
    return found


def _digest(lines: list[str], site: Site, violations: list[Violation]) -> str:
    known = hashlib.sha256()
    for part in (*lines, *map(repr, site.history.entries), *map(repr, violations)):
        known.update(part.encode("utf-8", "backslashreplace"))
        known.update(b"\n")
    return known.hexdigest()


def _messages() -> list[tuple[object, object]]:
    return [
        (coverage.original_decode_envelope, coverage.decode_envelope),
        (coverage.original_encode_request, coverage.encode_request),
        (coverage.original_request_decoder, coverage.RequestDecoder),
    ]


seam.MORE.append(_messages)

_ = injectors  # imported for what it registers
