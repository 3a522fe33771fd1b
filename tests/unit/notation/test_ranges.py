"""Array ids, CPU lists and bit formats. (slurm) marks what squeue 22.05.8 printed for such arrays."""

from __future__ import annotations

import pytest

from spritz.notation import ranges
from spritz.notation.ranges import RangeError


@pytest.mark.parametrize(
    ("text", "ids", "throttle"),
    [
        ("0-9:4%8", [0, 4, 8], 8),
        ("1,3,5-7", [1, 3, 5, 6, 7], 0),
        ("[1-3]", [1, 2, 3], 0),
        ("[1-3%2]", [1, 2, 3], 2),
        ("[1-3]%2", [1, 2, 3], 2),
        ("1,,2", [1, 2], 0),
        ("1, 2", [1, 2], 0),
        ("3,1,3", [1, 3], 0),
        ("1-3:20", [1], 0),
        ("7%0", [7], 0),
    ],
)
def test_reads_arrays_as_sbatch_does(text: str, ids: list[int], throttle: int) -> None:
    spec = ranges.parse_array(text)
    assert (spec.task_ids, spec.throttle, spec.count) == (ids, throttle, len(ids))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "5-1",
        "1-",
        "-1",
        "1-2-3",
        "0-10:0",
        "3:2",
        "%2",
        "1%x",
        "1%",
        "1%2%3",
        "[1",
        "1]",
        "1.5",
        "٣",
    ],
)
def test_refuses_what_is_no_array(text: str) -> None:
    with pytest.raises(RangeError) as caught:
        ranges.parse_array(text)
    assert str(caught.value).startswith("Invalid job array specification")
    assert len(str(caught.value)) < 400


def test_ids_stay_below_the_array_size() -> None:
    assert ranges.parse_array("0-1000", 1001).count == 1001
    with pytest.raises(RangeError):
        ranges.parse_array("1001", 1001)
    with pytest.raises(RangeError):
        ranges.parse_array("0-1001", 1001)


def test_the_largest_arrays_are_read_and_written_quickly() -> None:
    for text in ("0-4000000", "0-4000000:2", "1-3999999:1999999", "3,4000000"):
        spec = ranges.parse_array(text)
        assert ranges.parse_ids(ranges.format_array(spec.ids, length=0)) == spec.ids


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("0-99:4%8", "0-96:4%8"),
        ("1-9:2", "1,3,5,7,9"),
        ("0-10:2", "0,2,4,6,8,10"),
        ("0-12:2", "0-12:2"),
        ("0-15:3", "0-15:3"),
        ("0-44:11", "0,11,22,33,44"),
        ("0-55:11", "0-55:11"),
        ("0-11:11", "0,11"),
        ("0-99:20", "0,20,40,60,80"),
        ("0-99:19", "0-95:19"),
        ("1,3,5,7,9,11,13", "1-13:2"),
        ("2-40:2,42", "2-42:2"),
        ("0-12:2,13", "0,2,4,6,8,10,12-13"),
        ("1,3,5-7", "1,3,5-7"),
        ("3%2", "3%2"),
        ("0-400:3,1", "0-1,3,6,9,12,15,18,21,24,27,30,33,36,39,42,45,48,51,54,57,60..."),
        ("100-999:7,1", "1,100,107,114,121,128,135,142,149,156,163,170,177,184,191,19..."),
        (
            "10,12,14,16,18,20,21,23,25,27,29,31,33,35,37,39,41,43,45,47,49",
            "10,12,14,16,18,20-21,23,25,27,29,31,33,35,37,39,41,43,45,47,...",
        ),
        (
            "9,10,12,14,16,18,20,21,23,25,27,29,31,33,35,37,39,41,43,45,47",
            "9-10,12,14,16,18,20-21,23,25,27,29,31,33,35,37,39,41,43,45,47",
        ),
    ],
)
def test_prints_pending_tasks_as_squeue_does(text: str, printed: str) -> None:
    """(slurm)"""
    spec = ranges.parse_array(text)
    assert ranges.format_array(spec.ids, spec.throttle) == printed


@pytest.mark.parametrize(
    ("length", "printed"),
    [
        (10, "0-1,3,..."),
        (20, "0-1,3,6,9,12,15,..."),
        (65, "0-1,3,6,9,12,15,18,21,24,27,30,33,36,39,42,45,48,51,54,57,60,..."),
    ],
)
def test_cuts_at_the_length_asked_for(length: int, printed: str) -> None:
    """(slurm) SLURM_BITSTR_LEN"""
    assert ranges.format_array(ranges.parse_ids("0-400:3,1"), length=length) == printed


@pytest.mark.parametrize(
    ("value", "length"), [(None, 64), ("-1", 64), ("0", 0), ("", 0), ("x", 0), ("20", 20), ("99999999", 4096)]
)
def test_reads_slurm_bitstr_len(value: str | None, length: int) -> None:
    """(slurm)"""
    assert ranges.bitstr_length(value) == length


def test_lists_of_cpus_go_both_ways() -> None:
    assert ranges.parse_ids("0-3,8") == 0b1_0000_1111
    assert ranges.format_ids(0b1_0000_1111) == "0-3,8"
    assert ranges.format_ids([8, 3, 2]) == "2-3,8"
    assert ranges.format_ids(0) == ""
    assert ranges.parse_ids("") == 0
    assert list(ranges.spans_of(0b1011)) == [(0, 1), (3, 3)]
    assert list(ranges.ids_of(ranges.mask_of([5, 1, 64]))) == [1, 5, 64]
