"""Licenses: `name:count` pairs that jobs take from the cluster's own stock.

Source: sbatch(1) --licenses; slurm.conf(5) Licenses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class LicenseError(ValueError):
    """Not a license request."""


Needs = dict[str, int]


def license_choices(text: str) -> tuple[Needs, ...]:
    """What the job takes, any one of the dicts: `matlab:2,idl` is one of two licenses, `a|b` is two of one each.

    Raises LicenseError on anything else; `,` and `|` do not mix.
    """
    if "|" not in text:
        return (_all_of(text.split(",")),) if text else ({},)
    if "," in text:
        raise LicenseError(text)
    return tuple(_all_of([part]) for part in text.split("|"))


def _all_of(parts: Iterable[str]) -> Needs:
    needs: Needs = {}
    for part in parts:
        name, colon, number = part.strip().replace("=", ":", 1).partition(":")
        if not name or (colon and not (number.isascii() and number.isdigit())):
            raise LicenseError(part)
        needs[name] = needs.get(name, 0) + int(number or 1)
    return needs


NOTHING: Mapping[str, int] = {}


class LicensePool:
    """What exists and what is taken."""

    __slots__ = ("taken", "total")

    def __init__(self, stock: Iterable[tuple[str, int]]) -> None:
        self.total = dict(stock)
        self.taken: dict[str, int] = {}

    def copy(self) -> LicensePool:
        """An independent pool."""
        other = LicensePool(self.total.items())
        other.taken = dict(self.taken)
        return other

    def available(self, needs: Mapping[str, int], kept: Mapping[str, int] = NOTHING) -> bool:
        """Could all of these be taken now? `kept`: for others."""
        return all(
            self.taken.get(name, 0) + kept.get(name, 0) + count <= self.total.get(name, 0)
            for name, count in needs.items()
        )

    def choose(self, text: str, kept: Mapping[str, int] = NOTHING) -> Needs | None:
        """The first choice of a request that could be taken now; None if there is none."""
        for needs in license_choices(text):
            if self.available(needs, kept):
                return needs
        return None

    def without(self, kept: Mapping[str, int]) -> LicensePool:
        """A pool in which these are taken."""
        other = self.copy()
        other.take(kept)
        return other

    def take(self, needs: Mapping[str, int]) -> None:
        """A job starts."""
        for name, count in needs.items():
            self.taken[name] = self.taken.get(name, 0) + count

    def give_back(self, needs: Mapping[str, int]) -> None:
        """A job ends."""
        for name, count in needs.items():
            left = self.taken.get(name, 0) - count
            if left > 0:
                self.taken[name] = left
            else:
                self.taken.pop(name, None)
