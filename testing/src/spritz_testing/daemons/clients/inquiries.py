"""Requests of slurmctld that change no job: each listing and report, and an administrator's settings of its log.

Nothing of the answers is checked but that they come; readings whose content is checked are in `readings`. They are
here so that each of these requests meets every fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spritz.client.command.sync import connect_controller
from spritz.model.accounting.fairshare import ListFairShares
from spritz.model.accounting.shares import ListShares
from spritz.model.commands.job import NotifyJob
from spritz.model.job.job_filter import JobTarget
from spritz.model.limits.records import CompareUsage
from spritz.model.limits.standing import ListStandings
from spritz.model.queries.configuration import ShowConfig
from spritz.model.queries.crontabs import GetCrontab
from spritz.model.queries.daemons import Ping, PingControllers, SetDebug
from spritz.model.queries.diagnostics import GetDiagnostics, ResetDiagnostics
from spritz.model.queries.events import Statistics, WatchChanges, WatchEvents
from spritz.model.queries.partitions import ListPartitions
from spritz.model.queries.priorities import ListPriorities
from spritz.model.queries.reservations import ListReservations
from spritz.model.queries.steps import ListSteps, MeasureSteps
from spritz.model.tokens import MakeToken
from spritz.model.triggers import ClearTriggers, ListTriggers
from spritz_testing.daemons.plan import Action

if TYPE_CHECKING:
    from random import Random

    from msgspec import Struct

    from spritz_testing.daemons.clients.command import Command, Data
    from spritz_testing.daemons.plan import Scale

#: by name of the request
REQUESTS: dict[str, Callable[[], Struct]] = {
    **{
        kind.__name__: kind
        for kind in (
            *(GetDiagnostics, ResetDiagnostics, ListFairShares, CompareUsage, ListStandings, ShowConfig, GetCrontab),
            *(Ping, PingControllers, Statistics, WatchChanges, WatchEvents, ListPartitions, ListPriorities, ListSteps),
            *(ListReservations, ListShares, MakeToken, ClearTriggers, ListTriggers),
        )
    },
    "SetDebug": lambda: SetDebug(level="info"),
}

#: those about a job, by name
OF_JOBS: dict[str, Callable[[int], Struct]] = {
    "MeasureSteps": lambda job_id: MeasureSteps(job_id=job_id, step_id=0),
    "NotifyJob": lambda job_id: NotifyJob(target=JobTarget(job_id), message="hello"),
}

#: Answers of a stream that are read before its reader leaves, and seconds that each may take.
_ANSWERS_MAX = 5
_ANSWER_SECONDS = 30.0

#: In one of so many runs an inquiry is made, for each that there is.
_RARELY = 4


def inquire(command: Command, data: Data) -> None:
    """Make the request of this name. Raises ClientError."""
    name = data["request"]
    newest = max(command.world.job_ids, default=1)
    request = OF_JOBS[name](newest) if name in OF_JOBS else REQUESTS[name]()
    with connect_controller(timeout=_ANSWER_SECONDS) as controller:
        controller.send(request)
        for _ in range(_ANSWERS_MAX):
            response = controller.receive(timeout=_ANSWER_SECONDS)
            command.world.count(f"answered {name}" if response.error is None else "refused inquiry")
            if not response.more:
                break


def draw(random: Random, scale: Scale) -> list[Action]:
    """Some of them at any time; with `scale.every_kind` all, twice, and those about a job often."""
    kinds = [*REQUESTS, *OF_JOBS]
    names = [*kinds, *kinds, *list(OF_JOBS) * 4]
    if not scale.every_kind:
        names = [one for one in kinds if random.randrange(_RARELY) == 0]
    ats = (round(random.uniform(1.0, scale.busy_seconds), 6) for _ in names)
    return [
        Action(at=at, kind="inquire", target="root", data={"request": name})
        for at, name in zip(ats, names, strict=True)
    ]
