"""`POST /spritz/v1/job/{job_id}/complete`: the system that runs an external job reports its end.

External jobs (flag EXTERNAL_JOB of `POST /slurm/…/job/allocate`) get nodes like other jobs, but Spritz runs nothing
there. The event stream reports their start, and their end if Spritz ends them (scancel, time limit, preemption). Such
a job is COMPLETING and keeps its nodes until this request. For a running job, the request is its end, with exit code.

Body: `{"exit_code": 3}` or `{"signal": 9}`; without either: success. The request may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec import DecodeError, Meta, Struct, json
from starlette.responses import Response
from starlette.routing import Route

from spritz.model.commands.job import Done, FinishAllocation
from spritz.model.errors import SpritzError
from spritz.rest.answers import Fault, fault_of, headers_of, status_of
from spritz.rest.callers import NotAuthenticated, caller_of_request
from spritz.rest.daemons import CONTROLLER, Daemon

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from spritz.rest.daemons import Daemons

PATH = "/spritz/v1/job/{job_id}/complete"

_BODY_BYTES_MAX = 4096


class Completed(Struct, frozen=True, forbid_unknown_fields=True):
    """The body: the job's exit code or signal."""

    exit_code: Annotated[int, Meta(ge=0, le=255)] = 0
    signal: Annotated[int, Meta(ge=0, le=64)] = 0


def external_routes(daemons: Daemons, allowed: tuple[str, ...]) -> Sequence[BaseRoute]:
    async def complete(request: Request) -> Response:
        try:
            caller = caller_of_request(request, allowed)
            job_id = job_number(request.path_params["job_id"])
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


def job_number(text: str) -> int:
    """The number of a job in a path. Raises SpritzError for any other text."""
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise SpritzError("Invalid job id specified", code="ESLURM_INVALID_JOB_ID")
    return int(text)


async def body_of(request: Request) -> bytes:
    """The body of a short request. Raises SpritzError if it is too long."""
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
    """An answer in the common form; `more`: additional fields."""
    errors = [] if fault is None else [fault.record()]
    body = {"meta": {}, "errors": errors, "warnings": [], **more}
    return Response(json.encode(body), status, headers_of(status), media_type="application/json")
