"""The daemons and the cluster as a whole: ping, statistics, licenses, shares, configuration. Source: OpenAPI."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, TypeVar

from msgspec import Struct

from spritz.client.errors import ClientError
from spritz.client.locate import locate_controller, locate_database
from spritz.model.accounting.accounting_admin import (
    CallCounts,
    DatabaseConfiguration,
    GetCallStatistics,
    GetDatabaseConfiguration,
)
from spritz.model.accounting.fairshare import FairShares, ListFairShares
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.queries.configuration import ConfigText, ShowConfig
from spritz.model.queries.daemons import ControllerPongs, Ping, PingControllers, Pong, Reconfigure
from spritz.model.queries.diagnostics import Diagnostics, GetDiagnostics
from spritz.model.queries.jobs import JobRows
from spritz.presentation.json.diagnostics import statistics
from spritz.presentation.json.licenses import licenses_json
from spritz.presentation.json.ping import database_ping
from spritz.presentation.json.shares import shares_json
from spritz.presentation.json.values import moment
from spritz.presentation.licenses import HOLDERS, LicenseCounts
from spritz.presentation.request_kinds import KINDS
from spritz.rest.answers import Answer
from spritz.rest.configuration import slurm_configuration, slurmdbd_configuration
from spritz.rest.daemons import Daemon
from spritz.rest.operations import Ask, Result, operation
from spritz.runtime.clock import SystemClock

T = TypeVar("T")


async def _asked(daemon: Daemon, request: Struct, reply: type[T]) -> tuple[T | None, int]:
    """(the daemon's answer or None, microseconds that it took)."""
    clock = SystemClock()
    began = clock.monotonic()
    try:
        answer = await daemon.call(request, reply)
    except (ClientError, SpritzError) as error:
        if error.code == "ESLURM_AUTH_CRED_INVALID":
            raise
        return None, int((clock.monotonic() - began) * 1e6)
    return answer, int((clock.monotonic() - began) * 1e6)


@operation("GET /slurm/ping")
async def ping(ask: Ask) -> Result:
    """Each SlurmctldHost; of several, as the leading controller sees them. Latency is in microseconds."""
    config = locate_controller(ask.daemons.path)
    if config.has_standby:
        controllers, latency = await _asked(ask.controller, PingControllers(), ControllerPongs)
        given = controllers.pongs if controllers is not None else ()
        answers = list(zip_longest(config.names, given[: len(config.names)]))
    else:
        pong, latency = await _asked(ask.controller, Ping(), Pong)
        answers = [(pong.host if pong is not None else config.hosts[0], pong)]
    records = [
        {
            "hostname": host,
            "pinged": "UP" if answer is not None else "DOWN",
            "responding": answer is not None,
            "latency": latency,
            "mode": answer.mode if answer is not None else "backup" if index else "primary",
            "primary": index == 0,
            "status": "No error" if answer is not None else "Unable to contact slurm controller (connect failure)",
        }
        for index, (host, answer) in enumerate(answers)
    ]
    return Answer(body={"pings": records})


@operation("GET /slurmdb/ping")
async def ping_database(ask: Ask) -> Result:
    answer, latency = await _asked(ask.database, Ping(), Pong)
    host = answer.host if answer is not None else locate_database(ask.daemons.path).host
    return Answer(body={"pings": [database_ping(host, answer is not None, latency)]})


@operation("GET /slurm/diag")
async def diagnostics(ask: Ask) -> Result:
    return Answer(body={"statistics": statistics(await ask.controller.call(GetDiagnostics(), Diagnostics))})


@operation("GET /slurmdb/diag")
async def database_diagnostics(ask: Ask) -> Result:
    """The statistics of `sacctmgr show stats`."""
    counts = await ask.database.call(GetCallStatistics(), CallCounts)
    names = {"hour": "hourly", "day": "daily", "month": "monthly"}
    rollups = {
        names[rollup.name]: {
            "count": rollup.count,
            "last_run": int(rollup.last_at),
            "last_cycle": rollup.last,
            "max_cycle": rollup.longest,
            "total_time": rollup.total,
            "mean_cycles": rollup.total // max(1, rollup.count),
            "duration": {"last": rollup.last, "max": rollup.longest, "time": rollup.total},
        }
        for rollup in counts.rollups
        if rollup.name in names
    }

    def times(count: int, total: int) -> dict[str, int]:
        return {"average": total // max(1, count), "total": total}

    body = {
        "time_start": int(counts.since),
        "rollups": rollups,
        "RPCs": [
            {
                "rpc": KINDS.get(kind.name, (kind.name, 0))[0],
                "count": kind.count,
                "time": times(kind.count, kind.microseconds),
            }
            for kind in counts.kinds
        ],
        "users": [
            {"user": user.name, "count": user.count, "time": times(user.count, user.microseconds)}
            for user in counts.users
        ],
    }
    return Answer(body={"statistics": body})


@operation("GET /slurm/reconfigure")
async def reconfigure(ask: Ask) -> Result:
    """Make the controller read its configuration again."""
    done = await ask.controller.call(Reconfigure(), Done, timeout=60.0)
    return Answer(warnings=[(text, "slurm_reconfigure") for text in done.messages])


@operation("GET /slurm/licenses")
async def licenses(ask: Ask) -> Result:
    answer = await ask.controller.call(ShowConfig(), ConfigText)
    counts = LicenseCounts(answer)
    async for piece in ask.controller.stream(HOLDERS, JobRows):
        counts.count(piece.rows)
    return Answer(body={"licenses": licenses_json(counts), "last_update": moment(answer.now)})


@operation("GET /slurm/shares")
async def shares(ask: Ask) -> Result:
    users = ask.query.get("users")
    accounts = _words(ask.query.get("accounts"))
    request = ListFairShares(accounts=accounts, users=_words(users) if users else None)
    return Answer(body=shares_json(await ask.controller.call(request, FairShares)))


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word for word in (text or "").split(",") if word)


@operation("GET /slurm/conf")
async def configuration(ask: Ask) -> Result:
    """The configuration in force (`scontrol show config`)."""
    answer = await ask.controller.call(ShowConfig(), ConfigText)
    body: dict[str, Any] = slurm_configuration(answer)
    return Answer(body={"slurm_conf": body, "last_update": moment(answer.now)})


@operation("GET /slurmdb/conf")
async def database_configuration(ask: Ask) -> Result:
    answer = await ask.database.call(GetDatabaseConfiguration(), DatabaseConfiguration)
    return Answer(body={"slurmdbd_conf": slurmdbd_configuration(answer.rows)})
