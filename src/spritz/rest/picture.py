"""`GET /spritz/v1/…`: data for the dashboard and `spritz top` without a field in Slurm's documents.

    jobs            rows with the requested fields, of all jobs or of some, with their GPUs on each node
    nodes           capacity, state and newest sample of each node
    explain/JOB     why a job waits, and when it starts (`scontrol explain`)
    history/JOB     a job's history since its submission (`spritz history`)
    script/JOB      a job's batch script
    shares          guaranteed, used, borrowed and lent (`spritz shares`)
    topology        switches and blocks

Answers are JSON objects with the model's own names; times are seconds since the epoch, memory is in MiB. A caller sees
what squeue, sinfo and scontrol would show: slurmctld decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec import json, to_builtins
from starlette.responses import Response
from starlette.routing import Route

from spritz.model.accounting.records import AskHistory, Histories, JobPick
from spritz.model.accounting.shares import ListShares, Shares
from spritz.model.errors import SpritzError
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.queries.configuration import ConfigText, ShowConfig
from spritz.model.queries.explanations import ExplainJob, Explanations
from spritz.model.queries.jobs import GetScript, JobRows, ListJobs, Script
from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.notation.errors import NotationError
from spritz.notation.hostlist import expand
from spritz.presentation.live_rows import EXPECTED, JOB_COLUMNS, node_row
from spritz.rest.answers import Fault, encoded, fault_of, headers_of, matches, status_of
from spritz.rest.callers import NotAuthenticated, caller_of_request
from spritz.rest.daemons import CONTROLLER, DATABASE, Daemon
from spritz.rest.external import job_number

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from spritz.rest.callers import Caller
    from spritz.rest.daemons import Daemons
    from spritz.runtime.log import Logger

PREFIX = "/spritz/v1/"

_USUAL = tuple(name for name in JOB_COLUMNS if name not in EXPECTED)

#: Most job ids in a request, and time limit of an explanation in seconds.
_IDS_MAX, _EXPLAIN_SECONDS = 2_000, 60.0

Answer = tuple[Any, str]


def _bad(text: str) -> SpritzError:
    return SpritzError(text, code="ESLURM_REST_INVALID_QUERY")


def _numbers(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if len(words) > _IDS_MAX or not all(word.isascii() and word.isdigit() and len(word) < 11 for word in words):
        raise _bad(f"ids: at most {_IDS_MAX} numbers of jobs, with commas between them")
    return tuple(map(int, words))


async def jobs(controller: Daemon, query: dict[str, str], unless: str) -> Answer:
    """Rows of jobs; the parameters `fields`, `states` and `ids` select. The ETag depends on the controller's version of
    the jobs and on these parameters.
    """
    names = tuple(query["fields"].split(",")) if query.get("fields") else _USUAL
    if unknown := [name for name in names if name not in JOB_COLUMNS]:
        raise _bad(f"fields: unknown {', '.join(unknown)[:100]}; known are {', '.join(JOB_COLUMNS)}")
    paths = tuple(JOB_COLUMNS[name] for name in names)
    states = tuple(query["states"].upper().split(",")) if query.get("states") else ()
    state_filter = JobFilter(states=states)
    question = hashlib.sha256(repr((names, states, query.get("ids"))).encode()).hexdigest()[:12]
    known = _version_in(unless, question)
    rows: list[Any] = []
    now, version = 0.0, 0
    if query.get("ids"):
        # Leave out jobs that no longer exist.
        for number in dict.fromkeys(_numbers(query["ids"])):
            job_filter = JobFilter(targets=(JobTarget(number),), states=states)
            try:
                piece = await _rows(controller, ListJobs(filter=job_filter, fields=paths, all=True))
            except SpritzError as error:
                if error.code != "ESLURM_INVALID_JOB_ID":
                    raise
                continue
            now, version = piece[0], piece[1]
            rows += piece[2]
        return {"now": now, "fields": names, "rows": rows}, ""
    now, version, rows = await _rows(
        controller, ListJobs(filter=state_filter, fields=paths, all=True, unless_version=known)
    )
    tag = f'W/"{version:x}-{question}"'
    if known and known == version:
        return None, tag
    return {"now": now, "fields": names, "rows": rows}, tag


async def _rows(controller: Daemon, request: ListJobs) -> tuple[float, int, list[Any]]:
    now, version, rows = 0.0, 0, []
    async with aclosing(controller.stream(request, JobRows)) as pieces:
        async for piece in pieces:
            now, version = piece.now, piece.version
            rows += piece.rows
    return now, version, rows


def _version_in(header: str, question: str) -> int:
    word, _, asked = header.strip().removeprefix("W/").strip('"').partition("-")
    try:
        return int(word, 16) if len(word) <= 16 and asked == question else 0
    except ValueError:
        return 0


async def nodes(controller: Daemon, query: dict[str, str], unless: str) -> Answer:
    """All nodes, or those of the hostlist `names`."""
    names: tuple[str, ...] = ()
    if query.get("names"):
        try:
            names = tuple(expand(query["names"]))
        except NotationError as error:
            raise SpritzError(str(error), code="ESLURM_INVALID_NODE_NAME") from error
    now, rows = 0.0, []
    async with aclosing(controller.stream(ListNodes(names=names, all=True, pieces=True), Nodes)) as pieces:
        async for piece in pieces:
            now = piece.now
            rows += [node_row(view) for view in piece.nodes]
    return {"now": now, "nodes": rows}, ""


async def topology(controller: Daemon, query: dict[str, str], unless: str) -> Answer:
    answer = await controller.call(ShowConfig(), ConfigText)
    return {"now": answer.now, "networks": [to_builtins(network) for network in answer.settings.topologies]}, ""


async def shares(controller: Daemon, query: dict[str, str], unless: str) -> Answer:
    """The answer of `spritz shares --json`."""
    return to_builtins(await controller.call(ListShares(), Shares)), ""


def _job_of(request: Request) -> int:
    return job_number(request.path_params["job"])


def picture_routes(daemons: Daemons, allowed: tuple[str, ...], log: Logger) -> Sequence[BaseRoute]:
    def route(path: str, answer: Callable[[Request, Caller], Awaitable[Answer]]) -> Route:
        async def serve(request: Request) -> Response:
            try:
                result, tag = await answer(request, caller_of_request(request, allowed))
            except NotAuthenticated as error:
                return Response(error.message, 401, {"Connection": "close"}, media_type="text/plain")
            except SpritzError as error:
                return _refusal(fault_of(error, request.url.path), status_of(error.code))
            except TimeoutError:
                return _refusal(Fault(code="SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT", source=request.url.path), 504)
            except Exception as error:
                log.error("request.failed", exception=error, operation=request.url.path)
                return _refusal(Fault(code="ESLURM_INTERNAL", source=request.url.path), 500)
            if result is None:
                return Response(status_code=304, headers={"ETag": tag})
            body = encoded(result)
            tag = tag or f'"{hashlib.sha256(body).hexdigest()[:24]}"'
            if matches(request.headers.get("if-none-match", ""), tag):
                return Response(status_code=304, headers={"ETag": tag})
            return Response(body, headers={"ETag": tag, "Cache-Control": "no-store"}, media_type="application/json")

        return Route(PREFIX + path, serve, methods=["GET"])

    def listing(ask: Callable[[Daemon, dict[str, str], str], Awaitable[Answer]]) -> Any:
        async def answer(request: Request, caller: Caller) -> Answer:
            controller = Daemon(daemons, CONTROLLER, caller, reading=True)
            return await ask(controller, dict(request.query_params), request.headers.get("if-none-match", ""))

        return answer

    async def explain(request: Request, caller: Caller) -> Answer:
        asked = ExplainJob(target=JobTarget(_job_of(request)), others=request.query_params.get("others") != "no")
        controller = Daemon(daemons, CONTROLLER, caller, reading=True)
        answer = await controller.call(asked, Explanations, timeout=_EXPLAIN_SECONDS)
        return to_builtins(answer), ""

    async def history(request: Request, caller: Caller) -> Answer:
        asked = AskHistory(clusters=(daemons.cluster,), picks=(JobPick(job_id=_job_of(request)),))
        return to_builtins(await Daemon(daemons, DATABASE, caller, reading=True).call(asked, Histories)), ""

    async def script(request: Request, caller: Caller) -> Answer:
        controller = Daemon(daemons, CONTROLLER, caller, reading=True)
        answer = await controller.call(GetScript(job_id=_job_of(request)), Script)
        return {"job_id": answer.job_id, "script": answer.script.decode("utf-8", "replace")}, ""

    return [
        *(route(name, listing(ask)) for name, ask in (("jobs", jobs), ("nodes", nodes))),
        *(route(name, listing(ask)) for name, ask in (("topology", topology), ("shares", shares))),
        *(route(f"{name}/{{job}}", ask) for name, ask in (("explain", explain), ("history", history))),
        route("script/{job}", script),
    ]


def _refusal(fault: Fault, status: int) -> Response:
    body = json.encode({"meta": {}, "errors": [fault.record()], "warnings": []})
    return Response(body, status, headers_of(status), media_type="application/json")
