"""`scontrol --json ping`. Source: OpenAPI `controller_ping` v0.0.43."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.json.envelope import DEFAULT, version_of
from spritz.presentation.json.envelope import show as show_answer

if TYPE_CHECKING:
    from spritz.model.queries import Pong
    from spritz.presentation.json.envelope import Output


def show(output: Output, asked: str, host: str, answer: Pong | None, microseconds: int) -> None:
    """Print the one controller."""
    ping = {
        "hostname": host,
        "pinged": "UP" if answer is not None else "DOWN",
        "responding": answer is not None,
        "latency": microseconds,
        "mode": answer.mode if answer is not None else "primary",
        "primary": True,
        "status": "No error" if answer is not None else "Unable to contact slurm controller (connect failure)",
    }
    if version_of(asked) == DEFAULT:
        del ping["status"]
    show_answer(output, asked, {"pings": [ping]}, "GET /slurm/ping")
