"""What is installed today is compared with what a run had."""

from __future__ import annotations

from typing import Any

import pytest

from spritz.experiments.commands.diff import installed_since


def having(*packages: str, python: str = "3.12.1") -> dict[str, Any]:
    return {"python": {"python": python, "packages": list(packages)}}


def locked(**files: str) -> dict[str, Any]:
    return {"lock_files": files}


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (having("numpy==1.0", "torch==2.0"), having("numpy==1.1", "torch==2.0"), ["numpy: 1.0 → 1.1"]),
        (having("a==1"), having("a==1", "b==2"), ["b: (none) → 2"]),
        (having("a==1", "b==2"), having("a==1"), ["b: 2 → (none)"]),
        (having("a==1"), having("a==1", python="3.13.0"), ["python: 3.12.1 → 3.13.0"]),
        (having("a==1"), having("a==1"), []),
        (having(), having("a==1"), ["a: (none) → 1"]),
        ({}, having("a==1"), []),
        (having("a==1"), {"python": {"executable": "/x"}}, []),
        (locked(a="1" * 64, b="2"), locked(a="3" * 64, b="2"), [f"lock file a: {'1' * 12} → {'3' * 12}"]),
        (locked(a="1"), locked(), ["lock file a: 1 → (none)"]),
        ({}, locked(a="1"), []),
        ({"container": "/i.sqsh sha256:1"}, {"container": "/i.sqsh sha256:2"},
         ["container: /i.sqsh sha256:1 → /i.sqsh sha256:2"]),
    ],
)  # fmt: skip
def test_differences_in_words(old: dict[str, Any], new: dict[str, Any], lines: list[str]) -> None:
    assert [change.line for change in installed_since(old, new)] == lines
