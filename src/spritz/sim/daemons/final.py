"""The state of a cluster after everything has come to its end, as clients are shown it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from spritz.client.errors import ClientError, RemoteError
from spritz.client.sync import Connection, connect_controller
from spritz.model.job import Job
from spritz.model.queries.events import Counters, Statistics
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import GetScript, ListJobs, Script
from spritz.model.queries.nodes import ListNodes, Nodes, NodeView
from spritz.model.queries.steps import ListSteps, Steps
from spritz.model.step import Step

if TYPE_CHECKING:
    from spritz.sim.daemons.command import Command, Data
    from spritz.sim.daemons.users import Users

#: Seconds of virtual time for reading it: more than a takeover takes.
_SECONDS = 120.0


class Final(Struct, kw_only=True):
    """What a user is shown in the end. Empty with a `problem` if the controller does not answer."""

    at: float
    problem: str = ""
    jobs: dict[int, Job] = field(default_factory=dict)
    #: of batch jobs: the script; the code of the refusal if there is none
    scripts: dict[int, str] = field(default_factory=dict)
    nodes: dict[str, NodeView] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    #: `Statistics`: "waiting.requests_count" are parked requests
    counters: dict[str, float] = field(default_factory=dict)
    #: commands of users that have not ended: (user, kind, job)
    waiting: list[tuple[str, str]] = field(default_factory=list)


def read(users: Users) -> Final:
    """Read it by a command of root's, while the simulation goes on."""
    world = users.world
    final = Final(at=world.now, problem="not read in time")
    final.waiting = [(command.user, command.kind) for command in users.running()]

    def body(command: Command, data: Data) -> None:
        try:
            with connect_controller(timeout=60.0) as controller:
                _fill(final, controller)
            final.problem = ""
        except ClientError as error:
            final.problem = f"{error.code} {error.message} {error.hint}"

    command = users.start("root", "final", body, {}, users.site.login)
    world.run_until(lambda: not command.process.is_alive, _SECONDS)
    return final


def _fill(final: Final, controller: Connection) -> None:
    found = controller.joined(ListJobs(all=True), Jobs, "jobs")
    final.jobs = {job.id: job for job in found.jobs}
    for job in found.jobs:
        if job.has_script:
            final.scripts[job.id] = _script(controller, job.id)
    final.nodes = {view.node.config.name: view for view in controller.call(ListNodes(all=True), Nodes).nodes}
    final.steps = [view.step for view in controller.call(ListSteps(), Steps).steps]
    final.counters = controller.call(Statistics(), Counters).values


def _script(controller: Connection, job_id: int) -> str:
    try:
        return controller.call(GetScript(job_id=job_id), Script).script.decode()
    except RemoteError as error:
        return error.code
