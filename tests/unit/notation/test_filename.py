"""File name patterns: sbatch(1), srun(1) FILENAME PATTERN."""

from __future__ import annotations

import pytest

from spritz.notation import filename

VALUES: dict[str, str | int] = {
    "A": 12,
    "a": 7,
    "j": 15,
    "J": "15.0",
    "N": "n1",
    "n": 0,
    "s": 0,
    "t": 3,
    "u": "ann",
    "x": "train",
    "r": 0,
}


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("slurm-%j.out", "slurm-15.out"),
        ("slurm-%A_%a.out", "slurm-12_7.out"),
        ("%x/%u-%N", "train/ann-n1"),
        ("%4j-%3a", "0015-007"),
        ("%10j", "0000000015"),
        ("%99j", "0000000015"),
        ("%" + "9" * 500 + "j", "0000000015"),
        ("%0j", "15"),
        ("%4N", "n1"),
        ("%%j-%%", "%j-%"),
        ("100%", "100%"),
        ("%q%z", "%q%z"),
        ("%4", "%4"),
        ("%b", "%b"),
        ("a\\%j", "a%j"),
        ("a\\\\%j", "a\\%j"),
        ("", ""),
        ("plain", "plain"),
        ("%%%j", "%15"),
    ],
)
def test_expands_patterns(pattern: str, name: str) -> None:
    assert filename.expand(pattern, VALUES) == name


def test_says_which_letters_it_would_replace() -> None:
    assert filename.letters("%A_%4a.%%t") == {"A", "a"}
    assert filename.letters("\\%t") == frozenset()
