"""MCSPlugin and MCSParameters: labels that keep jobs apart. Source: Slurm's guide to Multi-Category Security."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.model.cluster.settings import McsPolicy
from spritz.notation.errors import shown

if TYPE_CHECKING:
    from spritz.config.diagnostics import Diagnostics
    from spritz.config.settings import Settings

_WORDS = frozenset({"ondemand", "enforced", "select", "noselect", "ondemandselect", "privatedata"})


def mcs_policy(have: Settings) -> McsPolicy:
    """MCSPlugin and MCSParameters.

    MCSParameters are `[ondemand|enforced][,noselect|,select|,ondemandselect][,privatedata][:group|group…]`.
    """
    words, groups = _parts(have)
    selects = [word for word in words if word.endswith("select")]
    return McsPolicy(
        plugin=have.text("MCSPlugin").partition("/")[2] or "none",
        enforced="enforced" in words,
        select=selects[-1] if selects else "ondemandselect",
        private="privatedata" in words,
        groups=tuple(groups),
    )


def check_mcs(have: Settings, diagnostics: Diagnostics) -> None:
    words, groups = _parts(have)
    plugin, place = have.text("MCSPlugin"), have.places.get("MCSParameters") or have.places.get("MCSPlugin")
    for word in words:
        if word not in _WORDS:
            message = f"MCSParameters: {shown(word)} is none of {', '.join(sorted(_WORDS))}"
            diagnostics.error(place, message, key="MCSParameters")
    if plugin == "mcs/group" and not groups:
        message = "MCSPlugin=mcs/group needs the groups that give a label: MCSParameters=ondemand,select:GROUP|GROUP"
        diagnostics.error(place, message, key="MCSParameters")
    elif groups and plugin != "mcs/group":
        diagnostics.error(place, f"MCSParameters: {plugin} takes no groups", key="MCSParameters")


def _parts(have: Settings) -> tuple[list[str], list[str]]:
    options, _, groups = have.text("MCSParameters").partition(":")
    words = [word.strip().lower() for word in options.replace("|", ",").split(",")]
    return [word for word in words if word], [name.strip() for name in groups.split("|") if name.strip()]
