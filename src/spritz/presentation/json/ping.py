"""`scontrol --json ping`, `sacctmgr --json ping`. Source: OpenAPI `controller_ping` and `slurmdbd_ping` v0.0.43."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.json.envelope import DEFAULT, version_of
from spritz.presentation.json.envelope import show as show_answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

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


def show_databases(output: Output, version_word: str, up_by_host: Mapping[str, bool], microseconds: int) -> None:
    """Print each slurmdbd, the primary first, and whether it answers."""
    pings = [
        database_ping(host, up, microseconds, primary=index == 0) for index, (host, up) in enumerate(up_by_host.items())
    ]
    if version_of(version_word) == DEFAULT:
        for ping in pings:
            del ping["status"]
    show_answer(output, version_word, {"pings": pings}, "GET /slurmdb/ping")


def database_ping(host: str, up: bool, microseconds: int, *, primary: bool = True) -> dict[str, Any]:
    return {
        "hostname": host,
        "responding": up,
        "latency": microseconds,
        "primary": primary,
        "status": "No error" if up else "Unable to connect to database",
    }
