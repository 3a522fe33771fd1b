"""The course of a replay over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spritz.sim.course import blocks, course, draw
from tests.unit.sim.test_processors import jobs

if TYPE_CHECKING:
    from pathlib import Path


def test_use_and_waiting_are_means_over_equal_spans() -> None:
    one = course(jobs((0, 10, 10, 10), (0, 10, 10, 5)), [0.0, 10.0], 10, spans=4)
    assert (one.begin, one.end) == (0, 20)
    assert one.used == pytest.approx([1, 1, 0.5, 0.5])
    assert one.waiting == pytest.approx([1, 1, 0, 0])


def test_parts_of_spans_count_as_parts() -> None:
    one = course(jobs((0, 3, 3, 10), (0, 4, 4, 0)), [0.0, 0.0], 10, spans=2)
    assert one.used == pytest.approx([1, 0.5])


def test_blocks_reach_from_empty_to_full() -> None:
    assert blocks([0.0, 0.5, 1.0, 1.0], 1.0, spans=4) == "▁▅██"
    assert blocks([0.0, 0.0], 0.0, spans=2) == "▁▁"


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "course.png"
    draw(str(path), [("one", course(jobs((0, 10, 10, 10)), [0.0], 10))])
    assert path.read_bytes().startswith(b"\x89PNG")
