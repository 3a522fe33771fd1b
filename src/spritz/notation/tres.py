"""Trackable resources: `cpu=4,mem=8G,node=1,billing=4,gres/gpu:a100=2` <-> pairs of name and count.

Memory (`mem`, `vmem`, `bb/…`) counts in MiB, all other resources in units. Order is kept.

Source: scontrol(1) ReqTRES, AllocTRES; slurm.conf(5) AccountingStorageTRES, TRESBillingWeights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.errors import NotationError, shown, unsigned
from spritz.notation.memory import format_mib, parse_mib

if TYPE_CHECKING:
    from collections.abc import Iterable

_COUNT_MAX = (1 << 63) - 1
_SCALES = {"K": 10, "M": 20, "G": 30, "T": 40, "P": 50}


class TresError(NotationError):
    """The text is not a TRES list."""


def _is_memory(name: str) -> bool:
    return name in ("mem", "vmem") or name.startswith("bb/")


def parse(text: str) -> tuple[tuple[str, int], ...]:
    """Pairs in the order written, each name at most once. Raises TresError."""
    pairs: dict[str, int] = {}
    for item in text.split(",") if text else ():
        name, equals, value = item.partition("=")
        name = name.strip().lower() if not name.lower().startswith("gres/") else "gres/" + name.strip()[5:]
        if not name or not equals or name in pairs:
            raise TresError(f"Invalid TRES specification: {shown(item)}")
        pairs[name] = _parse_value(name, value.strip(), item)
    return tuple(pairs.items())


def _parse_value(name: str, value: str, item: str) -> int:
    if _is_memory(name):
        whole, point, part = value[:-1].partition(".")
        if point and whole.isdecimal() and part.isdecimal() and value[-1:].upper() in _SCALES:
            # `format` writes a whole number of MiB this way: 1.50G.
            from fractions import Fraction

            fine = Fraction(f"{whole}.{part}") * (1 << _SCALES[value[-1].upper()]) / (1 << _SCALES["M"])
            if fine.denominator == 1 and fine.numerator <= _COUNT_MAX:
                return fine.numerator
        try:
            return parse_mib(value)
        except NotationError as error:
            raise TresError(f"Invalid TRES specification: {shown(item)}") from error
    scale = _SCALES.get(value[-1:].upper(), 0)
    number = unsigned(value[:-1] if scale else value, _COUNT_MAX >> scale)
    if number is None:
        raise TresError(f"Invalid TRES specification: {shown(item)}")
    return number << scale


def format(pairs: Iterable[tuple[str, int]], *, convert: bool = True) -> str:
    """`cpu=4,mem=8G,node=1`.

    Memory gets a unit; other counts are printed in full. Zero counts are printed too: callers leave them out.
    """
    return ",".join(
        f"{name}={format_mib(count, convert=convert) if _is_memory(name) else count}" for name, count in pairs
    )
