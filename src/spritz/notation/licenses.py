"""License requests: `matlab:2,idl` asks for two licenses and one, `a|b` for one of either.

Source: sbatch(1) --licenses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.errors import unsigned

if TYPE_CHECKING:
    from collections.abc import Iterable


#: Licenses have 32-bit counts.
_COUNT_MAX = 0xFFFFFFFD


class LicenseError(ValueError):
    """The text is not a license request."""


Needs = dict[str, int]


def parse(text: str) -> tuple[Needs, ...]:
    """The alternatives of the request, each a dict of counts by name; a job takes any one of them.

    `,` and `|` do not mix. Raises LicenseError.
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
        count = unsigned(number, _COUNT_MAX) if colon else 1
        if not name or count is None:
            raise LicenseError(part)
        needs[name] = needs.get(name, 0) + count
    return needs


def requested(text: str) -> list[tuple[str, int]]:
    """The request as TRES, `license/matlab` and a count; empty for no request, or one with alternatives."""
    try:
        choices = parse(text)
    except LicenseError:
        return []
    return pairs(choices[0].items()) if len(choices) == 1 else []


def pairs(taken: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """TRES names and counts of licenses; zero counts are left out."""
    return [(f"license/{name}", count) for name, count in taken if count]
