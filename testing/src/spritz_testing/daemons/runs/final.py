"""The state of a cluster after everything has come to its end, as clients are shown it, for the checks."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from spritz.client.command.sync import Connection, connect_controller
from spritz.client.errors import ClientError, RemoteError
from spritz.model.errors import SpritzError
from spritz.model.limits.records import CompareUsage, UsageCompared
from spritz.model.queries.events import Counters, Statistics
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import GetScript, ListJobs, Script
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.model.states import JobState
from spritz_testing.daemons.accounting.client import Behind
from spritz_testing.daemons.checks.final import Final, Limit, NodeShape, Rules
from spritz_testing.daemons.history import Injected, Operation, Outcome
from spritz_testing.daemons.system.machine import child_seconds_max

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz_testing.daemons.clients.command import Command, Data
    from spritz_testing.daemons.clients.users import Users
    from spritz_testing.daemons.system.world import Host

#: Seconds of virtual time for reading it: more than a takeover takes.
_SECONDS = 120.0

#: in the answer for a script whose bytes are not those that were stored, and for one that was left out for that
_DAMAGED = ("damaged", "missing from the journal")

#: A controller that remembers jobs for the whole run forgets none: seconds, for the checks.
_FOR_EVER_SECONDS = 1e12

#: Kinds of operations that wait for as long as their job does.
_WAIT_FOR_START = frozenset({"await", "step"})


class Unreadable(Exception):
    """The controller does not answer."""


def read(users: Users) -> Final:
    """Read it by a command of root's, while the simulation goes on. Raises Unreadable."""
    world = users.world
    clocks = tuple(clock for host in users.site.controllers for clock in _clocks(host))
    error = max(abs(ahead) for _, _, ahead in clocks)
    final = Final(read_at=world.now, clock_error_seconds=error, clocks=clocks, rules=rules_of(users))
    problem = ["not read in time"]

    def body(command: Command, data: Data) -> None:
        try:
            with connect_controller(timeout=60.0) as controller:
                _fill(final, controller, may_rot=bool(world.counts.get("rot blob")))
                if users.site.accounting is not None:
                    rows = controller.call(CompareUsage(), UsageCompared).rows
                    final.usage = tuple((row.name, row.kept, row.recorded) for row in rows)
            problem[0] = ""
        except ClientError as error:
            problem[0] = f"{error.code} {error.message} {error.hint}"

    unanswered = _unanswered(users)
    command = users.start("root", "final", body, {}, users.site.login)
    world.run_until(lambda: not command.process.is_alive, _SECONDS)
    if problem[0]:
        raise Unreadable(problem[0])
    accounting = users.site.accounting
    if accounting is not None:
        try:
            final.rows = tuple(row.job for row in accounting.read_jobs(users.site.login, _SECONDS))
        except (Behind, SpritzError, TimeoutError) as error:
            raise Unreadable(f"slurmdbd: {error!r}") from error
    injected = [entry.until for entry in users.history.entries if isinstance(entry, Injected)]
    final.last_fault_at = max(injected, default=0.0)
    _judge_waits(final, unanswered)
    return final


def _clocks(host: Host) -> Iterator[tuple[float, float, float]]:
    """(from, until, seconds ahead) of its clock."""
    ends = [at for at, _ in host.clock_sets[1:]] + [inf]
    for (since, ahead), until in zip(host.clock_sets, ends, strict=True):
        yield since, until, ahead


def rules_of(users: Users) -> Rules:
    """What the site permits."""
    site, scale = users.site, users.site.scale
    limits: tuple[Limit, ...] = ()
    if site.accounting is not None:
        from spritz_testing.daemons.accounting import policy

        limits = policy.limits()
    is_forgetful = scale.remembered_seconds < scale.busy_seconds + scale.quiet_seconds
    return Rules(
        nodes=tuple(NodeShape(name=host.name, memory_mib=16_000) for host in site.nodes),
        licenses=scale.licenses,
        limits=limits,
        controllers=frozenset(host.name for host in site.controllers),
        journal_hosts=frozenset() if site.standbys is None else frozenset({site.standbys.host.name}),
        plan_seconds=90.0,  # a pass, the pause after it, and bf_interval: half a minute each
        pass_seconds=child_seconds_max(users.world),
        suspends="SUSPEND" in scale.preemption,
        kill_wait_seconds=20.0,  # the longest that administrators set
        min_job_age_seconds=scale.remembered_seconds if is_forgetful else _FOR_EVER_SECONDS,
        forgets=is_forgetful,
        takeovers_have_reasons=True,
    )


def _fill(final: Final, controller: Connection, *, may_rot: bool) -> None:
    """`may_rot`: a script may be refused as damaged, and only so be another than the one that was submitted."""
    jobs = controller.joined(ListJobs(all=True), Jobs, "jobs").jobs
    final.jobs = tuple(jobs)
    for job in jobs:
        if job.has_script:
            script = _script(controller, job.id)
            if may_rot and any(text in script for text in _DAMAGED):
                final.damaged |= {job.id}
            else:
                final.scripts[job.id] = script
    final.nodes = tuple(view.node for view in controller.call(ListNodes(all=True), Nodes).nodes)
    counters = controller.call(Statistics(), Counters).values
    final.parked = {"of clients": int(counters["waiting.requests_count"])}


def _script(controller: Connection, job_id: int) -> str:
    try:
        return controller.call(GetScript(job_id=job_id), Script).script.decode()
    except RemoteError as error:
        return f"{error.code} {error.message}"


def _unanswered(users: Users) -> list[Operation]:
    """What commands that still run wait for. One whose answer was lost must have asked again by now."""
    return [
        operation
        for command in users.running()
        for operation in command.operations
        if operation.answered_at is None
        and operation.outcome is Outcome.UNKNOWN
        and (operation.answer is None or (operation is command.operations[-1] and operation.kind in _WAIT_FOR_START))
    ]


def _judge_waits(final: Final, unanswered: list[Operation]) -> None:
    """Requests that may wait, since their job does, are not taken for forgotten ones."""
    jobs = {job.id: job for job in final.jobs}
    forgotten = []
    for operation in unanswered:
        job = jobs.get(operation.job_id)
        waits = job is not None and (
            (operation.kind in _WAIT_FOR_START and job.state is JobState.PENDING)
            or (operation.kind == "await_end" and not job.state.ended)
        )
        if waits:
            final.parked["of clients"] -= 1
        else:
            forgotten.append(operation.id)
    final.waiting = tuple(forgotten)
