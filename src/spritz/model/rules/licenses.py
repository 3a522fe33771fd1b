"""Licenses: `name:count` pairs that jobs hold while they run.

A request is one or several choices, each a dict of counts by name; the first choice that is free is taken.

Source: sbatch(1) --licenses; slurm.conf(5) Licenses; sacctmgr(1) resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.licenses import parse as license_choices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.notation.licenses import Needs

NOTHING: Mapping[str, int] = {}


def stock(local: Iterable[tuple[str, int]], remote: Iterable[tuple[str, int]]) -> dict[str, int]:
    """All licenses of the cluster: those of slurm.conf, and those that accounting gives it."""
    return {**dict(local), **dict(remote)}


class LicensePool:
    """Licenses that exist, and how many are taken."""

    __slots__ = ("taken", "total")

    def __init__(self, stock: Iterable[tuple[str, int]]) -> None:
        self.total = dict(stock)
        self.taken: dict[str, int] = {}

    def copy(self) -> LicensePool:
        other = LicensePool(self.total.items())
        other.taken = dict(self.taken)
        return other

    def available(self, needs: Mapping[str, int], kept: Mapping[str, int] = NOTHING) -> bool:
        """Whether all of these could be taken now. `kept`: reserved for others."""
        return all(
            self.taken.get(name, 0) + kept.get(name, 0) + count <= self.total.get(name, 0)
            for name, count in needs.items()
        )

    def choose(self, text: str, kept: Mapping[str, int] = NOTHING, wanted: Needs | None = None) -> Needs | None:
        """The first choice of a request that could be taken now; None if there is none. `kept`: reserved for others;
        `wanted`: accept only this choice.
        """
        for needs in license_choices(text):
            if wanted in (None, needs) and self.available(needs, kept):
                return needs
        return None

    def without(self, kept: Mapping[str, int]) -> LicensePool:
        """A copy in which these are taken."""
        other = self.copy()
        other.take(kept)
        return other

    def take(self, needs: Mapping[str, int]) -> None:
        """Take licenses for a job that starts."""
        for name, count in needs.items():
            self.taken[name] = self.taken.get(name, 0) + count

    def give_back(self, needs: Mapping[str, int]) -> None:
        """Return licenses of a job that ends."""
        for name, count in needs.items():
            remaining = self.taken.get(name, 0) - count
            if remaining > 0:
                self.taken[name] = remaining
            else:
                self.taken.pop(name, None)
