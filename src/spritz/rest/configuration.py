"""slurm.conf and slurmdbd.conf in the form of v0.0.45: keys with typed values. Source: OpenAPI `conf_resp`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spritz.presentation.json.values import number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.queries.configuration import ConfigText

#: `30 sec`, `10 MB`
_AMOUNT = re.compile(r"(-?\d+)(?: ?(?:sec|min|MB|days?))?")
_YES, _NO = ("yes", "1"), ("no", "0", "(null)", "none", "")
#: Keys that the document spells differently from `scontrol show config`.
_SPELLED = {"PriorityWeightFairShare": "PriorityWeightFairshare"}


def slurm_configuration(answer: ConfigText) -> dict[str, Any]:
    """The body of `slurm_conf`, before it is shaped."""
    keys = {_SPELLED.get(key, key): _value(value) for key, value in answer.pairs if key}
    for key in ("SlurmUser", "SlurmdUser"):
        name, _, host_part = str(keys.get(key, "")).partition("(")
        keys[key], keys[f"{key}Id"] = name, host_part.rstrip(")")
    port, _, last = str(keys.get("SlurmctldPort", "")).partition("-")
    keys["SlurmctldPort"] = port
    if port.isdecimal():
        keys["SlurmctldPortCount"] = int(last or port) - int(port) + 1 if (last or port).isdecimal() else 1
    low, _, high = str(keys.get("SrunPortRange", "")).partition("-")
    is_set = low.isdecimal() and high.isdecimal() and int(high) > 0
    keys["SrunPortRange"] = {"minimum": int(low), "maximum": int(high), "set": True} if is_set else {}
    keys["controllers"] = [
        {"machine": host, "address": address} for host, address in zip(_hosts(answer), answer.controllers, strict=False)
    ]
    keys["PreemptMode"] = str(keys.get("PreemptMode", "")).replace("OFF", "DISABLED")
    keys.pop("JobDefaults", None)
    for key in ("JobRequeue", "JobFileAppend", "KillOnBadExit", "PriorityFavorSmall", "GroupUpdateForce"):
        keys[key] = str(keys.get(key, "")).lower() in _YES
    return keys


def slurmdbd_configuration(rows: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The body of `slurmdbd_conf`, before it is shaped. Rows are those of `sacctmgr show configuration`."""
    keys: dict[str, Any] = {}
    for key, value in rows:
        if key.startswith("Purge") and key.endswith("After"):
            keys[key] = _purge(value)
        elif key not in ("StoragePass", "AuthInfo"):
            keys[key] = _value(value)
    for key in ("TrackWCKey", "TrackSlurmctldDown"):
        keys[key] = str(keys.get(key, "")).lower() in _YES
    return keys


def _hosts(answer: ConfigText) -> list[str]:
    hosts = [value.partition("(")[0] for key, value in answer.pairs if key.startswith("SlurmctldHost")]
    return hosts or list(answer.controllers)


def _value(text: str) -> Any:
    if text in ("(null)", "N/A", "NONE"):
        return ""
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return number(0xFFFFFFFF)
    amount = _AMOUNT.fullmatch(text)
    return int(amount[1]) if amount else text


def _purge(text: str) -> dict[str, Any]:
    """`12 months*` as the unit with its number, and whether purged records are archived (`*`)."""
    match = re.match(r"(\d+) ?(hour|day|month)s?(\*?)", text)
    if match is None:
        return {"set": False}
    return {"set": True, f"{match[2]}s": int(match[1]), "archive": bool(match[3])}
