"""`rerun --set` changes a setting where the command has it, and adds one in the command's own form."""

from __future__ import annotations

import pytest

from spritz.experiments.commands.rerun import changed
from spritz.experiments.errors import ExperimentError


@pytest.mark.parametrize(
    ("command", "change", "expected"),
    [
        ("python t.py --lr 1", "lr=2", "python t.py --lr 2"),
        ("python t.py --lr=1", "lr=2", "python t.py --lr=2"),
        ("python t.py --batch-size 8", "batch_size=9", "python t.py --batch-size 9"),
        ("python t.py --fast", "lr=2", "python t.py --fast --lr=2"),
        ("python t.py", "lr=2", "python t.py --lr=2"),
        # Hydra, and others that take NAME=VALUE.
        ("python t.py model=large lr=1", "lr=2", "python t.py model=large lr=2"),
        ("python t.py model=large", "optimizer.lr=2", "python t.py model=large optimizer.lr=2"),
        ("python t.py +extra=1", "extra=2", "python t.py +extra=2"),
        ("python t.py model=large", "+extra=2", "python t.py model=large +extra=2"),
        ("python t.py --config c.yaml a=1", "lr=2", "python t.py --config c.yaml a=1 --lr=2"),
    ],
)
def test_a_setting_is_changed_or_added(command: str, change: str, expected: str) -> None:
    assert " ".join(changed(command.split(), [change])) == expected


@pytest.mark.parametrize("change", ["lr", "=2", "--=2"])
def test_a_change_without_a_name_is_refused(change: str) -> None:
    with pytest.raises(ExperimentError, match="NAME=VALUE is expected"):
        changed(["t"], [change])
