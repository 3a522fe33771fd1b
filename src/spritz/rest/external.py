"""`POST /spritz/v1/job/{job_id}/complete`: an external job is over, says the system that ran it.

External jobs (flag EXTERNAL_JOB of `POST /slurm/…/job/allocate`) get nodes as others do, and nothing of ours runs
there: the event stream tells their start, and their end if it comes from here (scancel, time limit, preemption). Then
they are COMPLETING, and keep their nodes, until this is called. For a running job it is the end, with the exit code.

Body: `{"exit_code": 3}` or `{"signal": 9}`; neither: success. To say it twice does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import DecodeError, Meta, Struct, json
from starlette.responses import Response
from starlette.routing import Route

from spritz.model.commands.job import Done, FinishAllocation
from spritz.model.errors import SpritzError
from spritz.rest.answers import Fault, fault_of, status_of
from spritz.rest.callers import NotAuthenticated, caller_of_request
from spritz.rest.daemons import CONTROLLER, Daemon

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from spritz.rest.daemons import Daemons

PATH = "/spritz/v1/job/{job_id:int}/complete"

_BODY_BYTES_MAX = 4096


class Completed(Struct, frozen=True, forbid_unknown_fields=True):
    """How it ended."""

    exit_code: Annotated[int, Meta(ge=0, le=255)] = 0
    signal: Annotated[int, Meta(ge=0, le=64)] = 0


def external_routes(daemons: Daemons, allowed: tuple[str, ...]) -> Sequence[BaseRoute]:
    """The route, for the application."""

    async def complete(request: Request) -> Response:
        try:
            caller = caller_of_request(request, allowed)
            job_id = request.path_params["job_id"]
            ended = _ended(await body_of(request))
            order = FinishAllocation(job_id=job_id, exit_status=ended.exit_code << 8 | ended.signal)
            try:
                await Daemon(daemons, CONTROLLER, caller).call(order, Done)
            except SpritzError as error:
                if error.code != "ESLURM_ALREADY_DONE":
                    raise
        except NotAuthenticated as error:
            return Response(error.message, 401, {"Connection": "close"}, media_type="text/plain")
        except SpritzError as error:
            return answer_of(fault_of(error, PATH), status_of(error.code))
        except TimeoutError:
            return answer_of(Fault(code="SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT", source=PATH), 504)
        return answer_of(None, 200)

    return [Route(PATH, complete, methods=["POST"])]


async def body_of(request: Request) -> bytes:
    """Of a short request. Raises SpritzError."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _BODY_BYTES_MAX:
            raise SpritzError("the body is too long", code="ESLURM_REST_INVALID_QUERY")
    return body


def _ended(body: bytes) -> Completed:
    try:
        return json.decode(body, type=Completed) if body.strip() else Completed()
    except DecodeError as error:
        raise SpritzError(str(error), code="ESLURM_REST_INVALID_QUERY") from error


def answer_of(fault: Fault | None, status: int, **more: object) -> Response:
    """In the form of all answers; `more`: what was asked for."""
    errors = [] if fault is None else [fault.record()]
    body = {"meta": {}, "errors": errors, "warnings": [], **more}
    return Response(json.encode(body), status, media_type="application/json")
