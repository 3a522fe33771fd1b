"""`update SuspendExcNodes[+|-]=…`, SuspendExcParts and SuspendExcStates: what power saving leaves up.

Source: scontrol(1) update SuspendExcNodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.administration.control.daemons import administer
from spritz.cli.administration.control.pairs import not_supported, split
from spritz.model.queries.daemons import SetPowerException

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session

_KEYS = {key.lower(): key for key in ("SuspendExcNodes", "SuspendExcParts", "SuspendExcStates")}


def run(session: Session, words: list[str]) -> int:
    """update, one key after the other"""
    changes = []
    for word in words:
        key, value = split(word)
        if key.lower() not in _KEYS:
            return not_supported(session, word)
        sign = value[:1] if word.partition("=")[0].endswith(("+", "-")) else ""
        changes.append(SetPowerException(key=_KEYS[key.lower()], sign=sign, text=value.removeprefix(sign)))
    return administer(session, "slurm_update", *changes)
