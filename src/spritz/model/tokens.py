"""Tokens (auth/jwt): a caller that is known by one instead of by the kernel. For every daemon.

Source: scontrol(1) token; slurm.conf(5) AuthAltTypes=auth/jwt, AuthAltParameters.
"""

from __future__ import annotations

from msgspec import Struct

#: Seconds for which a token is good unless it is asked for otherwise. Source: scontrol(1).
LIFESPAN_SECONDS = 1800


class UseToken(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """From now on this connection is the user's whom the token names. Reply: `TokenTaken`.

    `user`: as whom, where the token is SlurmUser's or root's; "" is the token's own user.
    """

    token: str
    user: str = ""


class TokenTaken(Struct, frozen=True, kw_only=True):
    """Reply to UseToken. After `expires_at` the connection's requests are refused."""

    user: str
    uid: int
    expires_at: float


class MakeToken(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`scontrol token`. Reply: `Token`. For another user (`user`) only SlurmUser and root get one.

    `lifespan_seconds`: None is the default.
    """

    user: str = ""
    lifespan_seconds: int | None = None


class Token(Struct, frozen=True, kw_only=True):
    """Reply to MakeToken."""

    token: str
