"""Adds plugins' lines for the user to an answer: errors before a refusal, else information.

Source: lines as Slurm 22.05 has them: `sbatch: error: …` before a refusal, `sbatch: …` before "Submitted batch job".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from spritz.model.commands.job import Done, JobSubmitted, WillRun
from spritz.model.rejection import Rejection

if TYPE_CHECKING:
    from spritz.client.channel.handling import Call


def with_lines(body: Struct | None, lines: tuple[str, ...]) -> Struct | None:
    """The answer with a plugin's lines before its own; answers without room for lines stay unchanged."""
    if isinstance(body, Rejection):
        return replace(body, details=(*lines, *body.details), told=len(lines))
    if isinstance(body, Done):
        return replace(body, told=(*lines, *body.told))
    if isinstance(body, (JobSubmitted, WillRun)):
        return replace(body, messages=(*lines, *body.messages))
    return body


def answering(call: Call, lines: tuple[str, ...]) -> Callable[[Struct | None], None]:
    """A reply function that adds the lines."""
    if not lines:
        return call.reply
    return lambda body: call.reply(with_lines(body, lines))
