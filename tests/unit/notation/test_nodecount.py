"""Counts: messages as sbatch 22.05.8 prints them."""

from __future__ import annotations

import pytest

from spritz.notation import nodecount
from spritz.notation.nodecount import CountError, NodeShape


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("1", (1, 1)),
        ("2-4", (2, 4)),
        ("1k", (1024, 1024)),
        ("1-1K", (1, 1024)),
        ("0", (0, 0)),
        ("0-2", (1, 2)),
        ("-2", (1, 2)),
        ("1 ", (1, 1)),
    ],
)
def test_reads_node_counts(text: str, counts: tuple[int, int]) -> None:
    assert nodecount.parse_node_count(text) == counts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4-2", "Maximum node count 2 is less than minimum node count 4"),
        ("a", '"a" is not a valid node count'),
        ("", '"" is not a valid node count'),
        ("2-a", '"a" is not a valid node count'),
        ("1-2-3", '"2-3" is not a valid node count'),
        ("1,3", '"1,3" is not a valid node count'),
        ("1-4:2", '"4:2" is not a valid node count'),
        ("-", "Maximum node count -1 is less than minimum node count 1"),
        ("2-", "Maximum node count -1 is less than minimum node count 2"),
        ("99999999999", '"99999999999" is not a valid node count'),
        ("9999999k", '"9999999k" is not a valid node count'),
        ("١", '"١" is not a valid node count'),
    ],
)
def test_refuses_node_counts_in_slurms_words(text: str, message: str) -> None:
    with pytest.raises(CountError) as caught:
        nodecount.parse_node_count(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["0", "-1", "x", "1k", "", "1.5", "1 2"])
def test_refuses_counts_in_slurms_words(text: str) -> None:
    with pytest.raises(CountError) as caught:
        nodecount.parse_count(text, "--ntasks")
    assert str(caught.value) == f'Invalid numeric value "{text}" for --ntasks.'


def test_counts_have_bounds_and_may_have_suffixes() -> None:
    assert nodecount.parse_count("8", "--ntasks") == 8
    assert nodecount.parse_count("0", "--x", minimum=0) == 0
    assert nodecount.parse_count("2k", "--x", suffix=True) == 2048
    for text in ("5000000000", "9" * 500):
        with pytest.raises(CountError, match=r"^Numeric argument \(.*\) to big for --ntasks\.$"):
            nodecount.parse_count(text, "--ntasks")
    with pytest.raises(CountError, match="to big"):
        nodecount.parse_count("9", "--x", maximum=8)


def test_signed_numbers_are_bounded() -> None:
    assert [nodecount.parse_signed(text, "--nice", minimum=-9, maximum=9) for text in ("-5", "+5", "5")] == [-5, 5, 5]
    for text in ("", "-", "--5", "10", "-10", "x", "9" * 99):
        with pytest.raises(CountError, match="Invalid numeric value"):
            nodecount.parse_signed(text, "--nice", minimum=-9, maximum=9)


def test_reads_node_shapes() -> None:
    assert nodecount.parse_extra_node_info("2:8:1") == NodeShape(2, 8, 1)
    assert nodecount.parse_extra_node_info("2") == NodeShape(2)
    assert nodecount.parse_extra_node_info("*:4") == NodeShape(None, 4)
    with pytest.raises(CountError, match="for second arg of -B"):
        nodecount.parse_extra_node_info("1:x")
    with pytest.raises(CountError):
        nodecount.parse_extra_node_info("1:2:3:4")
