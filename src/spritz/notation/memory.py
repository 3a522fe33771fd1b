"""Sizes: `4G` -> MiB, and numbers with K, M, G as commands print them.

Source: sbatch(1) --mem (`str_to_mbytes`); squeue(1), sinfo(1) --noconvert (`convert_num_unit2`).
Units are powers of 1024.
"""

from __future__ import annotations

from spritz.notation.errors import NotationError, shown, unsigned

#: largest size, MiB: leaves room for sums in 64 bits
MIB_MAX = (1 << 52) - 1

_UNITS = "KMGTP"


class SizeError(NotationError):
    """The text is not a size."""


def parse_mib(text: str, default_unit: str = "M") -> int:
    """MiB of `4096`, `4g`, `4GB`, `1T`; kibibytes are rounded up. Raises SizeError."""
    stripped = text.strip()
    digits = stripped.rstrip("bBkKmMgGtTpP")
    unit = stripped[len(digits) :].upper() or default_unit
    number = unsigned(digits, MIB_MAX * 1024)
    if number is None or len(unit) > 2 or unit[0] not in _UNITS or unit[1:] not in ("", "B"):
        raise SizeError(f'Invalid memory size "{shown(text)}": a number with K, M, G or T')
    mib = (number + 1023) // 1024 if unit[0] == "K" else number << 10 * (_UNITS.index(unit[0]) - 1)
    if mib > MIB_MAX:
        raise SizeError(f'Invalid memory size "{shown(text)}": too large')
    return mib


def format_units(number: float, unit: str = "", *, exact: bool = True, convert: bool = True) -> str:
    """A count in `unit` (empty, K, M, G, T, P) as Slurm prints it: `4G`, `2500M`, `1.50T`; 0 is `0`.

    `exact`: use a larger unit only while whole or half units remain (squeue, scontrol, TRES); otherwise use one
    whenever the count reaches it (sacct, sstat). `convert` False: keep the unit (--noconvert).
    """
    if int(number) == 0:
        return "0"
    index = _UNITS.index(unit) + 1 if unit else 0
    value = float(number)
    while convert and value >= 1024 and index < len(_UNITS) and not (exact and int(value) % 512):
        value /= 1024
        index += 1
    letter = _UNITS[index - 1] if index else ""
    whole = int(value)
    return f"{whole}{letter}" if whole == value else f"{value:.2f}{letter}"


def format_mib(mib: int, *, exact: bool = True, convert: bool = True) -> str:
    """Memory in MiB: `4G`, `2500M`, `1.50G`. See `format_units`."""
    return format_units(mib, "M", exact=exact, convert=convert)
