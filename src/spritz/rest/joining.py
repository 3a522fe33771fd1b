"""Tokens for machines that join, and their revocation, for a system that creates machines (the operator).

`POST /spritz/v1/tokens`, body `{"role": "node", "lifetime_seconds": 600, "uses": 1, "host": "gpu-0"}`: creates a token,
like `spritz token create`. Optional: role (default node), uses (0: any number) and host (any).

`DELETE /spritz/v1/machines/{host}`: like `spritz token revoke --host`. Succeeds if the machine has not joined.

Requires an administrator's token of auth/jwt, which slurmctld verifies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import DecodeError, Meta, Struct, json
from starlette.responses import Response
from starlette.routing import Route

from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.node.machines import CreateToken, RevokeToken, TokenCreated
from spritz.rest.answers import Fault, fault_of, status_of
from spritz.rest.callers import NotAuthenticated, caller_of_request
from spritz.rest.daemons import CONTROLLER, Daemon
from spritz.rest.external import answer_of, body_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from spritz.rest.daemons import Daemons

TOKENS = "/spritz/v1/tokens"
MACHINE = "/spritz/v1/machines/{host}"


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request for a token."""

    role: Literal["node", "login"] = "node"
    lifetime_seconds: Annotated[float, Meta(gt=0)] = 86400.0
    uses: Annotated[int, Meta(ge=0)] = 0
    host: str = ""


def joining_routes(daemons: Daemons, allowed: tuple[str, ...]) -> Sequence[BaseRoute]:
    def answered(
        path: str, work: Callable[[Request, Daemon], Awaitable[dict[str, object]]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                caller = caller_of_request(request, allowed)
                return answer_of(None, 200, **await work(request, Daemon(daemons, CONTROLLER, caller)))
            except NotAuthenticated as error:
                return Response(error.message, 401, {"Connection": "close"}, media_type="text/plain")
            except SpritzError as error:
                return answer_of(fault_of(error, path), status_of(error.code))
            except TimeoutError:
                return answer_of(Fault(code="SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT", source=path), 504)

        return answer

    async def create(request: Request, controller: Daemon) -> dict[str, object]:
        try:
            wanted = json.decode(await body_of(request) or b"{}", type=Wanted)
        except DecodeError as error:
            raise SpritzError(str(error), code="ESLURM_REST_INVALID_QUERY") from error
        order = CreateToken(
            role=wanted.role, lifetime_seconds=wanted.lifetime_seconds, uses=wanted.uses, host=wanted.host
        )
        created = await controller.call(order, TokenCreated)
        return {"id": created.id, "token": created.token, "address": created.address}

    async def revoke(request: Request, controller: Daemon) -> dict[str, object]:
        try:
            await controller.call(RevokeToken(host=request.path_params["host"]), Done)
        except SpritzError as error:
            if "no machine" not in error.message:
                raise
        return {}

    return [
        Route(TOKENS, answered(TOKENS, create), methods=["POST"]),
        Route(MACHINE, answered(MACHINE, revoke), methods=["DELETE"]),
    ]
