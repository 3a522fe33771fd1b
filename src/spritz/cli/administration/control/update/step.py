"""`update StepId=…`: nothing of a step can be changed yet. Source: scontrol(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.administration.control.pairs import not_supported, split

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session

#: keys that Slurm has
KEYS = {"TimeLimit": "the time limit of a running step is kept by its supervisor"}


def run(session: Session, words: list[str]) -> int:
    """Explain for each key why a step's value cannot be changed. Always returns 1."""
    for word in words:
        key = split(word)[0].lower()
        if key.startswith("step"):
            continue
        if len(key) >= 5 and "timelimit".startswith(key):
            session.context.error(f"update of a step's TimeLimit is not supported by Spritz: {KEYS['TimeLimit']}")
            return 1
        return not_supported(session, word)
    session.say("No changes specified")
    return 1
