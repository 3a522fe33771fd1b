"""Weights of unknown TRES: PriorityWeightTRES, and TRESBillingWeights of partitions.

slurmctld does not start with such a TRESBillingWeights; it accepts such a PriorityWeightTRES, which has no effect.

Source: slurm.conf(5) PriorityWeightTRES, TRESBillingWeights, AccountingStorageTRES.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.errors import shown
from spritz.notation.names import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.config.diagnostics import Diagnostics
    from spritz.config.kinds import Value
    from spritz.config.typed import Parsed

#: TRES that every cluster has
_ALWAYS = ("billing", "cpu", "energy", "fs/disk", "mem", "node", "pages", "vmem")
#: kinds of TRES that sites name themselves
_NAMED = ("bb", "fs", "ic", "license")


def check_weights(parsed: Parsed, diagnostics: Diagnostics) -> None:
    """Report every TRES that no job can ask for."""
    settings = parsed.settings
    gres = tuple(f"gres/{name.lower()}" for name in settings.words("GresTypes"))
    stored = tuple(word.lower() for word in settings.words("AccountingStorageTRES"))
    known_tres = (*_ALWAYS, *gres, *stored)
    for name in _unknown(settings.values.get("PriorityWeightTRES"), known_tres):
        message = f"PriorityWeightTRES: '{shown(name)}' is not a configured TRES; it weighs nothing"
        place = settings.places.get("PriorityWeightTRES")
        diagnostics.warning(place, message, key="PriorityWeightTRES", hint=_hint(name, known_tres))
    for line in parsed.partitions:
        for name in _unknown(line["TRESBillingWeights"], known_tres):
            label = f"Partition {shown(line.name)}: TRESBillingWeights"
            message = f"{label}: TRES weight '{shown(name)}' is not a configured TRES type"
            diagnostics.error(line.place, message, key="TRESBillingWeights", hint=_hint(name, known_tres))


def _unknown(words: Value, known_tres: tuple[str, ...]) -> Iterator[str]:
    for word in words if isinstance(words, tuple) else ():
        name = str(word).rpartition("=")[0]
        whole = name.lower().partition(":")[0]
        if whole not in known_tres and whole.partition("/")[0] not in _NAMED:
            yield name


def _hint(name: str, known_tres: tuple[str, ...]) -> str:
    close = nearest(name.lower(), known_tres)
    if close:
        return f"did you mean {close}?"
    return f"add {name[5:]} to GresTypes" if name.lower().startswith("gres/") else ""
