"""`scontrol token`: a JSON Web Token for SLURM_JWT and slurmrestd. Source: scontrol(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.client.errors import RemoteError
from spritz.model.tokens import MakeToken, Token

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session

#: Slurm's "infinite", seconds.
_INFINITE = 0xFFFFFFFF


def make(session: Session, words: list[str]) -> int:
    """token [username=NAME] [lifespan=SECONDS|infinite]: prints `SLURM_JWT=…`, which a shell can evaluate."""
    user, lifespan = "", None
    for word in words:
        key, _, value = word.partition("=")
        # Differs: Slurm takes an empty name, as of a variable that is not set, and signs a token that names no user.
        if key.lower() == "username" and value:
            user = value
        elif key.lower() == "lifespan" and value:
            lifespan = _INFINITE if value.lower() == "infinite" else _seconds(value)
            if lifespan is None:
                session.say(f"invalid lifespan={value}")
                return 1
        else:
            session.say(f"Invalid option: `{word}`")
            return 1
    try:
        answer = session.call(MakeToken(user=user, lifespan_seconds=lifespan), Token)
    except RemoteError as error:
        session.hint(error.hint)
        session.context.error(error.message)
        session.say("Error fetching token")
        return 1
    session.out(f"SLURM_JWT={answer.token}\n")
    return 0


def _seconds(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) <= _INFINITE else None
