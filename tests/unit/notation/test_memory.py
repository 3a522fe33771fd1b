"""Sizes: sbatch(1) --mem; (slurm) marks what squeue %m and scontrol printed."""

from __future__ import annotations

import pytest

from spritz.notation import memory
from spritz.notation.memory import SizeError


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("0", 0),
        ("1", 1),
        ("1k", 1),
        ("1025K", 2),
        ("1m", 1),
        ("4G", 4096),
        ("4gb", 4096),
        ("1T", 1 << 20),
        ("1P", 1 << 30),
        (" 4G", 4096),
    ],
)
def test_reads_sizes(text: str, mib: int) -> None:
    assert memory.parse_mib(text) == mib


def test_a_bare_number_is_in_the_default_unit() -> None:
    assert memory.parse_mib("2", "G") == 2048
    assert memory.parse_mib("2048", "K") == 2


@pytest.mark.parametrize("text", ["", "x", "1B", "1.5G", "-1", "4X", "4Gx", "4GG", "G", "٤", "9" * 20])
def test_refuses_what_is_no_size(text: str) -> None:
    with pytest.raises(SizeError, match="Invalid memory size"):
        memory.parse_mib(text)


@pytest.mark.parametrize(
    ("mib", "exact", "loose", "raw"),
    [
        (0, "0", "0", "0"),
        (1, "1M", "1M", "1M"),
        (512, "512M", "512M", "512M"),
        (1024, "1G", "1G", "1024M"),
        (1536, "1.50G", "1.50G", "1536M"),
        (2500, "2500M", "2.44G", "2500M"),
        (4096, "4G", "4G", "4096M"),
        (1572864, "1.50T", "1.50T", "1572864M"),
    ],
)
def test_prints_sizes_as_slurm_does(mib: int, exact: str, loose: str, raw: str) -> None:
    """(slurm) for the exact form."""
    assert memory.format_mib(mib) == exact
    assert memory.format_mib(mib, exact=False) == loose
    assert memory.format_mib(mib, convert=False) == raw


def test_counts_get_units_too() -> None:
    assert memory.format_units(2048) == "2K"
    assert memory.format_units(1000) == "1000"
    assert memory.format_units(5 * 1024**6, exact=False) == "5120P"
