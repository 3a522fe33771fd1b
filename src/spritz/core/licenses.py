"""Licenses: `name:count` pairs that running jobs take from the cluster's own stock.

Owns which of a job's alternatives it gets when it starts. They are free again when the job ends.

Source: sbatch(1) --licenses; slurm.conf(5) Licenses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.licenses import parse

if TYPE_CHECKING:
    from spritz.core.state import State

Needs = tuple[tuple[str, int], ...]


def stock(state: State) -> dict[str, int]:
    """All that there are: of slurm.conf, and what accounting gives the cluster."""
    return {**dict(state.settings.licenses), **dict(state.rules.licenses)}


def choices(text: str) -> list[Needs]:
    """What a job takes, any one of these. Raises ValueError."""
    return [tuple(needs.items()) for needs in parse(text)]


def choose(
    state: State,
    text: str,
    returned: dict[str, int] | None = None,
    kept: dict[str, int] | None = None,
    wanted: Needs = (),
) -> Needs | None:
    """The first choice that is free now, or once `returned` were given back; None if none is. `kept`: for others.
    `wanted`: that choice and no other.
    """
    free = stock(state)
    for sign, counts in ((1, returned), (-1, kept)):
        for name, count in (counts or {}).items():
            free[name] = free.get(name, 0) + sign * count
    for needs in choices(text):
        if wanted and needs != wanted:
            continue
        if all(state.licenses_taken.get(name, 0) + count <= free.get(name, 0) for name, count in needs):
            return needs
    return None
