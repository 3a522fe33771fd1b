"""TRES lists, GRES requests and what listings show of them."""

from __future__ import annotations

import pytest

from spritz.notation import gres, tres
from spritz.notation.gres import GresError, GresRequest
from spritz.notation.tres import TresError


def test_tres_lists_go_both_ways_in_order() -> None:
    text = "cpu=4,mem=8G,node=1,billing=4,gres/gpu=2,gres/gpu:A100=2"
    pairs = (("cpu", 4), ("mem", 8192), ("node", 1), ("billing", 4), ("gres/gpu", 2), ("gres/gpu:A100", 2))
    assert tres.parse(text) == pairs
    assert tres.format(pairs) == text


def test_tres_memory_has_units_and_counts_may() -> None:
    assert tres.parse("CPU=1k,mem=1536") == (("cpu", 1024), ("mem", 1536))
    assert tres.format([("mem", 1536), ("cpu", 2048)]) == "mem=1.50G,cpu=2048"
    assert tres.format([("mem", 1536)], convert=False) == "mem=1536M"
    assert tres.parse("") == ()


@pytest.mark.parametrize(
    "text",
    [
        "cpu",
        "cpu=",
        "=1",
        "cpu=x",
        "cpu=-1",
        "cpu=1,cpu=2",
        "cpu=1,",
        "mem=1.0001G",
        "cpu=9223372036854775808",
        "cpu=" + "9" * 99,
    ],
)
def test_refuses_what_is_no_tres_list(text: str) -> None:
    with pytest.raises(TresError, match="Invalid TRES specification"):
        tres.parse(text)


@pytest.mark.parametrize(
    ("text", "requests"),
    [
        ("", []),
        ("none", []),
        ("NONE", []),
        ("gpu", [GresRequest("gpu")]),
        ("gpu:2", [GresRequest("gpu", "", 2)]),
        ("gpu:0", [GresRequest("gpu", "", 0)]),
        ("gpu:1k", [GresRequest("gpu", "", 1024)]),
        ("gpu:a100", [GresRequest("gpu", "a100")]),
        ("gpu:a100:2", [GresRequest("gpu", "a100", 2)]),
        ("gpu:1g.5gb:2", [GresRequest("gpu", "1g.5gb", 2)]),
        ("gres:gpu:2", [GresRequest("gpu", "", 2)]),
        ("gres/gpu=2", [GresRequest("gpu", "", 2)]),
        ("gres/gpu:a100=2", [GresRequest("gpu", "a100", 2)]),
        ("gres/gpu:2", [GresRequest("gpu", "", 2)]),
        ("gpu:2,shard:4", [GresRequest("gpu", "", 2), GresRequest("shard", "", 4)]),
        ("gpu:1,gpu:2", [GresRequest("gpu", "", 3)]),
    ],
)
def test_reads_gres_requests(text: str, requests: list[GresRequest]) -> None:
    assert gres.parse(text) == tuple(requests)


@pytest.mark.parametrize(
    "text",
    [
        "gpu:",
        ":1",
        "gpu=1",
        "gpu:a:b:1",
        "gpu:a:x",
        "gpu:-1",
        "gpu:1.5",
        "gpu:" + "9" * 30,
        "gpu:" + "9" * 17,
        f"gpu:{1 << 53},gpu:1",
        "gpu,,gpu",
        "g pu",
        "gpu:\udcff",
        "gres/gpu=x",
        "a\0",
    ],
)
def test_refuses_what_is_no_gres(text: str) -> None:
    with pytest.raises(GresError, match=r"^Invalid generic resource \(gres\) specification"):
        gres.parse(text)


@pytest.mark.parametrize(
    ("text", "requests"),
    [
        ("2", [GresRequest("gpu", "", 2)]),
        ("0", [GresRequest("gpu", "", 0)]),
        ("a100:2", [GresRequest("gpu", "a100", 2)]),
        ("a100", [GresRequest("gpu", "a100")]),
        ("a100:1,h100:2", [GresRequest("gpu", "a100"), GresRequest("gpu", "h100", 2)]),
    ],
)
def test_reads_gpu_counts(text: str, requests: list[GresRequest]) -> None:
    assert gres.parse_gpus(text) == tuple(requests)


@pytest.mark.parametrize("text", ["", "-1", "a:b:1", ":1", "a:", "1.5", "1,"])
def test_refuses_what_is_no_gpu_count(text: str) -> None:
    with pytest.raises(GresError):
        gres.parse_gpus(text)


def test_shows_devices_and_capacity() -> None:
    assert gres.format_indexes("gpu", "a100", 2, 0b11) == "gpu:a100:2(IDX:0-1)"
    assert gres.format_indexes("gpu", "", 3, 0b1011) == "gpu:3(IDX:0-1,3)"
    assert gres.format_indexes("gpu", "", 0, 0) == "gpu:0(IDX:N/A)"
    assert gres.format_capacity("gpu", "a100", 8, "0-1") == "gpu:a100:8(S:0-1)"
    assert gres.format_capacity("gpu", "", 8) == "gpu:8"
