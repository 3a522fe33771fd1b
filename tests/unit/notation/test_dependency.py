"""Dependencies: sbatch(1) --dependency. (slurm) marks what 22.05.8 accepted, refused or printed."""

from __future__ import annotations

import pytest

from spritz.notation import dependency
from spritz.notation.dependency import Dependency, DependencyError


@pytest.mark.parametrize(
    ("text", "conditions", "mode"),
    [
        ("", [], "all"),
        ("after:1", [Dependency("after", 1)], "all"),
        ("after:1+5:2", [Dependency("after", 1, minutes=5), Dependency("after", 2)], "all"),
        ("AfterOK:3_4", [Dependency("afterok", 3, 4)], "all"),
        ("afterok:3_*", [Dependency("afterok", 3)], "all"),
        ("singleton", [Dependency("singleton")], "all"),
        ("afterok:1,afterany:2", [Dependency("afterok", 1), Dependency("afterany", 2)], "all"),
        ("afterok:1?afterany:2", [Dependency("afterok", 1), Dependency("afterany", 2)], "any"),
        ("afterok:1,singleton", [Dependency("afterok", 1), Dependency("singleton")], "all"),
        ("12", [Dependency("afterany", 12)], "all"),
        ("12_3", [Dependency("afterany", 12, 3)], "all"),
        ("afterok:1:1", [Dependency("afterok", 1)], "all"),
    ],
)
def test_reads_dependencies(text: str, conditions: list[Dependency], mode: str) -> None:
    """(slurm)"""
    assert dependency.parse(text) == (tuple(conditions), mode)


@pytest.mark.parametrize(
    "text",
    [
        "afterfoo:1",
        "afterok",
        "afterok:",
        "afterok:x",
        "afterok:0",
        "singleton:1",
        ",",
        "1:2",
        "after:1+x",
        "after:1+",
        "afterok:1+5",
        "expand:1",
        "afterok:1,",
        "afterok:1,afterok:2?afterok:3",
        "afterok:1_",
        "afterok:1_x",
        "afterok:-1",
        "afterok:4294967295",
        "after:1+99999999999",
        "afterok:\udcff",
        "afterok:١",
        "afterok:1_[2-3]",
    ],
)
def test_refuses_what_is_no_dependency(text: str) -> None:
    with pytest.raises(DependencyError, match="^Job dependency problem"):
        dependency.parse(text)


def test_prints_each_condition_as_squeue_does() -> None:
    """(slurm)"""
    state = "unfulfilled"
    assert dependency.format_one(Dependency("afterok", 12), state) == "afterok:12(unfulfilled)"
    assert dependency.format_one(Dependency("afterok", 12), state, array=True) == "afterok:12_*(unfulfilled)"
    assert dependency.format_one(Dependency("after", 12, minutes=5), state, array=True) == "after:12_*+5(unfulfilled)"
    assert dependency.format_one(Dependency("afterok", 12, 2), state) == "afterok:12_2(unfulfilled)"
    assert dependency.format_one(Dependency("singleton"), state) == "singleton(unfulfilled)"
    assert dependency.format(*dependency.parse("after:1+5:2?singleton")) == "after:1+5?after:2?singleton"
