"""slurm.conf and slurmdbd.conf as v0.0.45 has them: keys with typed values. Source: OpenAPI `conf_resp`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spritz.presentation.json.values import number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.queries.daemons import ConfigText

#: `30 sec`, `10 MB`
_AMOUNT = re.compile(r"(-?\d+)(?: ?(?:sec|min|MB|days?))?")
_YES, _NO = ("yes", "1"), ("no", "0", "(null)", "none", "")
#: keys that the document spells otherwise than `scontrol show config`
_SPELLED = {"PriorityWeightFairShare": "PriorityWeightFairshare"}


def slurm_configuration(answer: ConfigText) -> dict[str, Any]:
    """The body of `slurm_conf`, before it is shaped."""
    found = {_SPELLED.get(key, key): _value(value) for key, value in answer.pairs if key}
    for key in ("SlurmUser", "SlurmdUser"):
        name, _, rest = str(found.get(key, "")).partition("(")
        found[key], found[f"{key}Id"] = name, rest.rstrip(")")
    port, _, last = str(found.get("SlurmctldPort", "")).partition("-")
    found["SlurmctldPort"] = port
    if port.isdigit():
        found["SlurmctldPortCount"] = int(last or port) - int(port) + 1 if (last or port).isdigit() else 1
    low, _, high = str(found.get("SrunPortRange", "")).partition("-")
    given = low.isdigit() and high.isdigit() and int(high) > 0
    found["SrunPortRange"] = {"minimum": int(low), "maximum": int(high), "set": True} if given else {}
    found["controllers"] = [
        {"machine": host, "address": address} for host, address in zip(_hosts(answer), answer.controllers, strict=False)
    ]
    found["PreemptMode"] = str(found.get("PreemptMode", "")).replace("OFF", "DISABLED")
    found.pop("JobDefaults", None)
    for key in ("JobRequeue", "JobFileAppend", "KillOnBadExit", "PriorityFavorSmall", "GroupUpdateForce"):
        found[key] = str(found.get(key, "")).lower() in _YES
    return found


def slurmdbd_configuration(rows: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The body of `slurmdbd_conf`, before it is shaped. Rows are those of `sacctmgr show configuration`."""
    found: dict[str, Any] = {}
    for key, value in rows:
        if key.startswith("Purge") and key.endswith("After"):
            found[key] = _purge(value)
        elif key not in ("StoragePass", "AuthInfo"):
            found[key] = _value(value)
    for key in ("TrackWCKey", "TrackSlurmctldDown"):
        found[key] = str(found.get(key, "")).lower() in _YES
    return found


def _hosts(answer: ConfigText) -> list[str]:
    found = [value.partition("(")[0] for key, value in answer.pairs if key.startswith("SlurmctldHost")]
    return found or list(answer.controllers)


def _value(text: str) -> Any:
    if text in ("(null)", "N/A", "NONE"):
        return ""
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return number(0xFFFFFFFF)
    amount = _AMOUNT.fullmatch(text)
    return int(amount[1]) if amount else text


def _purge(text: str) -> dict[str, Any]:
    """`12 months*` -> months, and whether they are archived."""
    found = re.match(r"(\d+) ?(hour|day|month)s?(\*?)", text)
    if found is None:
        return {"set": False}
    return {"set": True, f"{found[2]}s": int(found[1]), "archive": bool(found[3])}
