"""Licenses of the cluster: `scontrol --json show licenses`, and REST. Source: OpenAPI `license` v0.0.43."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.presentation.json.envelope import show
from spritz.presentation.json.values import moment

if TYPE_CHECKING:
    from typing import Any

    from spritz.presentation.json.envelope import Output
    from spritz.presentation.licenses import LicenseCounts

    Json = dict[str, Any]


def show_records(output: Output, version_word: str, now: float, counts: LicenseCounts, name: str = "") -> None:
    """`name`: only this license."""
    body = {"licenses": licenses_json(counts, name), "last_update": moment(now)}
    show(output, version_word, body, "GET /slurm/licenses")


def licenses_json(counts: LicenseCounts, only: str = "") -> list[Json]:
    unknown = dict.fromkeys(("Reserved", "LastConsumed", "LastDeficit", "LastUpdate"), 0)
    return [
        {"LicenseName": name, "Total": total, "Used": used, "Free": free, "Remote": remote, **unknown}
        for name, total, used, free, remote in counts.lines()
        if only in ("", name)
    ]
