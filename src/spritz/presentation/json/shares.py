"""Shares of associations: `sshare --json`, REST. Source: OpenAPI `shares_resp`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.limits.records import SHARES_PARENT
from spritz.presentation.json.values import number

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from spritz.model.accounting.fairshare import FairShareRow, FairShares


def shares_json(whole: FairShares) -> dict[str, Any]:
    rows = [_record(row, whole) for row in whole.rows]
    total = sum(row.shares for row in whole.rows if row.shares != SHARES_PARENT)
    return {"shares": {"shares": rows, "total_shares": total}}


def _record(row: FairShareRow, whole: FairShares) -> dict[str, Any]:
    limits = dict(row.minutes_limit)
    return {
        "id": row.id,
        "cluster": whole.cluster,
        "name": row.user or row.account,
        "parent": row.parent,
        "partition": row.partition,
        "shares_normalized": _fraction(row.norm_shares),
        "shares": number(row.shares),
        "tres": {
            "run_seconds": _each(whole, row.seconds_running),
            "group_minutes": [{"name": name, "value": number(limits.get(name))} for name in whole.tres],
            "usage": [{"name": name, "value": row.minutes_used.get(name, 0.0) * 60.0} for name in whole.tres],
        },
        "effective_usage": _fraction(row.effective_usage),
        "usage_normalized": _fraction(row.norm_usage),
        "usage": int(row.usage),
        "fairshare": {"factor": _fraction(row.factor), "level": _fraction(row.level)},
        "type": ["USER" if row.user else "ASSOCIATION"],
    }


def _each(whole: FairShares, values: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"name": name, "value": number(int(values.get(name, 0.0)))} for name in whole.tres]


def _fraction(value: float) -> dict[str, Any]:
    endless = value == float("inf")
    return {"set": True, "infinite": endless, "number": 0.0 if endless else value}
