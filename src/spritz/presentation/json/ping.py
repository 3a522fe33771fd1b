"""`scontrol --json ping`. Source: OpenAPI `controller_ping` v0.0.43."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.json.envelope import DEFAULT, version_of
from spritz.presentation.json.envelope import show as show_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.queries.daemons import Pong
    from spritz.presentation.json.envelope import Output


def show(output: Output, version_word: str, answers: Sequence[tuple[str, Pong | None, int]]) -> None:
    """Print the controllers in the order of slurm.conf: host, answer, latency in microseconds."""
    pings = [
        {
            "hostname": host,
            "pinged": "UP" if answer is not None else "DOWN",
            "responding": answer is not None,
            "latency": microseconds,
            "mode": answer.mode if answer is not None else "primary" if index == 0 else "backup",
            "primary": index == 0,
            "status": "No error" if answer is not None else "Unable to contact slurm controller (connect failure)",
        }
        for index, (host, answer, microseconds) in enumerate(answers)
    ]
    if version_of(version_word) == DEFAULT:
        for ping in pings:
            del ping["status"]
    show_answer(output, version_word, {"pings": pings}, "GET /slurm/ping")
