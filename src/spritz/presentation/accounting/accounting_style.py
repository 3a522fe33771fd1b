"""How values of accounting's listings are shown: options and variables of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.memory import format_units
from spritz.presentation.accounting import accounting_text

if TYPE_CHECKING:
    from collections.abc import Mapping


class Style:
    """Options for displaying values: SLURM_TIME_FORMAT, --units, --noconvert, SLURM_BITSTR_LEN, --expand-patterns,
    --use-local-uid.
    """

    __slots__ = ("array_length", "convert", "environ", "expand", "local_uid", "qos_numbers", "unit")

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        unit: str = "",
        convert: bool = True,
        expand: bool = False,
        local_uid: bool = False,
    ) -> None:
        self.environ = environ
        self.expand = expand
        self.local_uid = local_uid
        self.unit = unit
        #: number of each QOS, if the fields need it
        self.qos_numbers: Mapping[str, int] = {}
        self.convert = convert
        text = environ.get("SLURM_BITSTR_LEN", "")
        self.array_length = int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 64

    def time(self, at: float, now: float) -> str:
        """A point in time (epoch seconds) in SLURM_TIME_FORMAT; Unknown for 0."""
        return accounting_text.moment(at, now, self.environ)

    def size(self, bytes_: float, *, exact: bool) -> str:
        """Bytes with a unit: that of --units, else as `notation.memory.format_units` chooses it."""
        if self.unit:
            value = bytes_ / 1024 ** ("KMGTP".index(self.unit) + 1)
            if value.is_integer():
                return f"{value:.0f}{self.unit}" if value else "0"
            return f"{value:.2f}{self.unit}"
        return format_units(bytes_, exact=exact, convert=self.convert)

    def mib(self, mib: int) -> str:
        """MiB with a unit: that of --units, else as `notation.memory.format_units` chooses it."""
        return (
            self.size(mib * 1024.0 * 1024.0, exact=True) if self.unit else format_units(mib, "M", convert=self.convert)
        )
