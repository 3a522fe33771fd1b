"""/livez and /readyz, for probes and load balancers. They need no authentication, and tell nothing of the cluster.

/livez: the daemon's loop runs. /readyz and /healthz: slurmctld answers it too, and leads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from spritz.rest.daemons import Daemons
    from spritz.runtime.clock import Clock

#: Seconds for which an answer counts: anybody may ask, and slurmctld has others to serve.
KEPT_SECONDS = 1.0


def health_routes(daemons: Daemons, clock: Clock) -> list[BaseRoute]:
    """Routes for the application."""
    readiness = _Readiness(daemons, clock)

    async def alive(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> Response:
        problem = await readiness.problem()
        return PlainTextResponse(f"{problem}\n", 503) if problem else PlainTextResponse("ok\n")

    return [Route("/livez", alive), Route("/readyz", ready), Route("/healthz", ready)]


class _Readiness:
    def __init__(self, daemons: Daemons, clock: Clock) -> None:
        self._daemons = daemons
        self._clock = clock
        self._asking = asyncio.Lock()
        #: until when the last answer counts, and what was wrong
        self._answer = float("-inf"), ""

    async def problem(self) -> str:
        """What is wrong; "" if nothing is."""
        async with self._asking:
            until, problem = self._answer
            if self._clock.monotonic() >= until:
                problem = await self._ask()
                self._answer = self._clock.monotonic() + KEPT_SECONDS, problem
            return problem

    async def _ask(self) -> str:
        try:
            await self._daemons.ready()
        except SpritzError as error:
            return error.message
        return ""
