"""Hostlists: scontrol(1) show hostnames, hostlist, hostlistsorted. (slurm) marks what Slurm 22.05.8 printed."""

from __future__ import annotations

import pytest

from spritz.notation import hostlist
from spritz.notation.hostlist import HostlistError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ""),
        (",", ""),
        ("a,,b", "a b"),
        ("a, b", "a b"),
        ("a b\tc\nd", "a b c d"),
        ("a1,a2,a1", "a1 a2 a1"),
        ("b[3,1,2]", "b3 b1 b2"),
        ("n[01-03]", "n01 n02 n03"),
        ("n[1-03]", "n1 n2 n3"),
        ("n[08-011]", "n08 n09 n10 n11"),
        ("n[9-11]", "n9 n10 n11"),
        ("[1-3]", "1 2 3"),
        ("n[1][2]", "n12"),
        ("n[1-2][3-4]", "n13 n14 n23 n24"),
        ("r[1-2]n[01-03]", "r1n01 r1n02 r1n03 r2n01 r2n02 r2n03"),
        ("n{1-2}", "n{1-2}"),
    ],
)
def test_expands_as_slurm_does(text: str, names: str) -> None:
    assert hostlist.expand(text) == names.split()


def test_expands_suffixes_and_many_brackets_in_counting_order() -> None:
    assert hostlist.expand("r[1-2]n[01-02]-ib,login") == ["r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib", "login"]
    assert hostlist.expand("a[1-2]b[3-4]c[5-6]")[:3] == ["a1b3c5", "a1b3c6", "a1b4c5"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n[3-1]", "Invalid range: `3-1'"),
        ("n[]", "Invalid range: `'"),
        ("n[a-c]", "Invalid range: `a-c'"),
        ("n[1:3]", "Invalid range: `1:3'"),
        ("n[-1]", "Invalid range: `-1'"),
        ("n[1-]", "Invalid range: `1-'"),
        ("n[1,]", "Invalid range: `'"),
        ("n[1 -2]", "Invalid range: `1 -2'"),
        ("n[١-٣]", "Invalid range: `١-٣'"),
        ("n[1-70000]", "Too many hosts in range `1-70000'"),
        ("n[1", "Unmatched `['"),
        ("n1]", "Unmatched `]'"),
        ("n[[1-2]]", "Unmatched `['"),
        ("n[1]]", "Unmatched `]'"),
        ("n[0-99999999999999999999]", "Invalid range"),
        ("n[1-2]" * 40, "Too many hosts"),
        ("n[0-65535],m", "Too many hosts"),
    ],
)
def test_refuses_what_is_no_hostlist(text: str, message: str) -> None:
    with pytest.raises(HostlistError) as caught:
        hostlist.expand(text)
    assert message in str(caught.value)


def test_the_largest_range_is_accepted() -> None:
    assert len(hostlist.expand("n[0-65535]")) == hostlist.HOSTS_MAX


@pytest.mark.parametrize("text", ["[" * 100_000, "a," * 100_000, "n[1-2]" * 20_000, "n[" + "9" * 100_000 + "]"])
def test_long_nonsense_is_refused_at_once_and_not_repeated_whole(text: str) -> None:
    with pytest.raises(HostlistError) as caught:
        hostlist.expand(text)
    assert len(str(caught.value)) < 600


def test_a_long_name_is_one_name() -> None:
    assert hostlist.expand("\udcff9" * 50_000) == ["\udcff9" * 50_000]


@pytest.mark.parametrize(
    ("names", "ranged", "ordered"),
    [
        ("a1,a3,a2,b01,a2,b2,b03", "a[1,3,2],b01,a2,b[2,03]", "a[1-2,2-3],b[2,01,03]"),
        ("n1,n01,n001", "n[1,01,001]", "n[1,01,001]"),
        ("n09,n10,n11", "n[09-11]", "n[09-11]"),
        ("n99,n100", "n[99-100]", "n[99-100]"),
        ("n099,n100,n101", "n[099-101]", "n[099-101]"),
        ("n00,n01", "n[00-01]", "n[00-01]"),
        ("n1-ib,n2-ib", "n1-ib,n2-ib", "n1-ib,n2-ib"),
        ("r1n1,r1n2,r2n1,r2n2", "r1n[1-2],r2n[1-2]", "r1n[1-2],r2n[1-2]"),
        ("n1,n1,n1", "n[1,1,1]", "n[1,1,1]"),
        ("n3,n2,n1", "n[3,2,1]", "n[1-3]"),
        ("n1,m1,n2", "n1,m1,n2", "m1,n[1-2]"),
        ("n1,n2,m,n3", "n[1-2],m,n3", "m,n[1-3]"),
        ("1,2,3", "[1-3]", "[1-3]"),
        ("b1,a1,b2,a2,A1", "b1,a1,b2,a2,A1", "A1,a[1-2],b[1-2]"),
        ("n10,n9,n2", "n[10,9,2]", "n[2,9-10]"),
        ("n2,n02,n3,n03", "n[2,02,3,03]", "n[2-3,02-03]"),
        ("n1,n2,n3,n2,n3,n4", "n[1-3,2-4]", "n[1-2,2-3,3-4]"),
        ("n1,n3,n5,n7", "n[1,3,5,7]", "n[1,3,5,7]"),
    ],
)
def test_compresses_as_slurm_does(names: str, ranged: str, ordered: str) -> None:
    """(slurm) scontrol show hostlist and show hostlistsorted."""
    assert hostlist.compress(names.split(",")) == ranged
    assert hostlist.compress(hostlist.sort(names.split(","))) == ordered


def test_numbers_too_long_to_count_with_stay_text() -> None:
    name = "n" + "9" * 30
    assert hostlist.compress([name, name + "1"]) == f"{name},{name}1"
    assert hostlist.sort(["n" + "9" * 5000, "n1"]) == ["n1", "n" + "9" * 5000]


def test_sorts_numbers_inside_names_by_value() -> None:
    assert hostlist.sort(["r10n1", "r2n1", "r2n10", "r2n9"]) == ["r2n1", "r2n9", "r2n10", "r10n1"]


def test_sorted_form_names_each_host_once() -> None:
    assert hostlist.compress_sorted(["n2", "n1", "n2"]) == "n[1-2]"
