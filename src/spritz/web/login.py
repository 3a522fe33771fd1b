"""How viewers say who they are, and what gives slurmrestd their rights.

`local`   the user who started the dashboard, by a one-time link; slurmrestd's Unix socket knows it by its peer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import Request

    from spritz.web.sessions import Session


class Login:
    """One user: the one who started us."""

    kind = "local"

    def session(self, request: Request) -> Session | None:
        """A session that the request itself vouches for, without a cookie."""
        return None

    async def token(self, user: str) -> str:
        """For X-SLURM-USER-TOKEN; "": slurmrestd knows us by its socket. Raises RestError."""
        return ""

    async def check(self, user: str, password: str) -> str:
        """The user's name, or "" where the password is wrong."""
        return ""
