"""Tokens (auth/jwt): a caller identified by a token and not by the kernel. For every daemon.

Source: scontrol(1) token; slurm.conf(5) AuthAltTypes=auth/jwt, AuthAltParameters.
"""

from __future__ import annotations

from msgspec import Struct

#: default lifetime of a token, in seconds. Source: scontrol(1).
LIFESPAN_SECONDS = 1800


class UseToken(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """From now on this connection belongs to the token's user. Reply: `TokenTaken`.

    `user`: the user to act as, if the token is SlurmUser's or root's; "" for the token's own user.
    """

    token: str
    user: str = ""


class TokenTaken(Struct, frozen=True, kw_only=True):
    """Reply to UseToken. After `expires_at` the connection's requests are refused."""

    user: str
    uid: int
    expires_at: float


class MakeToken(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`scontrol token`. Reply: `Token`. Only SlurmUser and root get tokens for another `user`.

    `lifespan_seconds`: None is the default.
    """

    user: str = ""
    lifespan_seconds: int | None = None


class Token(Struct, frozen=True, kw_only=True):
    """Reply to MakeToken: a JWT for SLURM_JWT."""

    token: str
