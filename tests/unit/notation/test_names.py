"""Did you mean …?"""

from __future__ import annotations

import pytest

from spritz.notation.names import nearest


@pytest.mark.parametrize(
    ("word", "candidates", "answer"),
    [
        ("gpux", ["cpu", "gpu"], "gpu"),
        ("GPU", ["cpu", "gpu"], "gpu"),
        ("pgu", ["cpu", "gpu"], "gpu"),
        ("SlurmctldProt", ["SlurmctldPort", "SlurmdPort"], "SlurmctldPort"),
        ("RealMemroy", ["RealMemory", "TmpDisk"], "RealMemory"),
        ("debug", ["gpu", "long"], None),
        ("x", ["y", "z"], None),
        ("ab", ["cd"], None),
        ("", ["a"], None),
        ("gpu", [], None),
        ("Prolog", ["Epilog", "PrologSlurmctld"], "PrologSlurmctld"),
        ("accounting", ["AccountingStorageType"], "AccountingStorageType"),
        ("x" * 1000, ["x" * 1000], None),
    ],
)
def test_finds_the_nearest_word(word: str, candidates: list[str], answer: str | None) -> None:
    assert nearest(word, candidates) == answer
