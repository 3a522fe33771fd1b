"""License requests: `matlab:2,idl` is one of two licenses, `a|b` two choices of one each.

Source: sbatch(1) --licenses.
"""

from __future__ import annotations

from spritz.notation.errors import unsigned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


#: Licenses have 32-bit counts.
_COUNT_MAX = 0xFFFFFFFD


class LicenseError(ValueError):
    """Not a license request."""


Needs = dict[str, int]


def parse(text: str) -> tuple[Needs, ...]:
    """What a job takes, any one of the dicts. Raises LicenseError on anything else; `,` and `|` do not mix."""
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
    """As TRES: `license/matlab` and how many; nothing where there is a choice, or no request."""
    try:
        choices = parse(text)
    except LicenseError:
        return []
    return pairs(choices[0].items()) if len(choices) == 1 else []


def pairs(taken: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Names of licenses as those of TRES; nothing of which there is none."""
    return [(f"license/{name}", count) for name, count in taken if count]
