"""Counts per node, distributions and bindings. (slurm) marks messages of 22.05.8."""

from __future__ import annotations

import pytest

from spritz.notation.layout import cpubind, distribution, taskcounts
from spritz.notation.layout.cpubind import BindError, Binding
from spritz.notation.layout.distribution import Distribution, DistributionError
from spritz.notation.layout.taskcounts import TaskCountError


def test_counts_per_node_go_both_ways() -> None:
    assert taskcounts.format([2, 2, 2, 1]) == "2(x3),1"
    assert taskcounts.parse("2(x3),1") == [2, 2, 2, 1]
    assert taskcounts.format([]) == ""
    assert taskcounts.parse("") == []


@pytest.mark.parametrize(
    "text", ["x", "2(x0)", "2(x3", "2(3)", "2,", "-1", "2(x99999999)", "1(x60000),1(x60000)", "2(x3)4"]
)
def test_refuses_what_is_no_list_of_counts(text: str) -> None:
    with pytest.raises(TaskCountError):
        taskcounts.parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("block", Distribution("block")),
        ("Cyclic", Distribution("cyclic")),
        ("block:cyclic:fcyclic", Distribution("block", "cyclic", "fcyclic")),
        ("*", Distribution()),
        ("*:*", Distribution()),
        ("*:cyclic", Distribution("", "cyclic")),
        ("block:", Distribution("block")),
        ("plane=4", Distribution("plane", plane_size=4)),
        ("arbitrary", Distribution("arbitrary")),
        ("block,Pack", Distribution("block", pack=True)),
        ("block,nopack", Distribution("block", pack=False)),
        ("pack", Distribution(pack=True)),
        ("plane=2,Pack", Distribution("plane", plane_size=2, pack=True)),
    ],
)
def test_reads_distributions(text: str, value: Distribution) -> None:
    assert distribution.parse(text) == value


@pytest.mark.parametrize(
    "text", ["", "x", "fcyclic", "block:x", "block,Pack,x", "block,x", ",", "a:b:c:d", "block:block:block:block"]
)
def test_refuses_what_is_no_distribution(text: str) -> None:
    """(slurm)"""
    with pytest.raises(DistributionError, match="^Invalid --distribution specification") as caught:
        distribution.parse(text)
    assert caught.value.detail == ""


@pytest.mark.parametrize("text", ["plane", "plane=", "plane=0", "plane=x", "plane=2:block", "plane=-1"])
def test_a_plane_needs_its_size(text: str) -> None:
    """(slurm)"""
    with pytest.raises(DistributionError) as caught:
        distribution.parse(text)
    assert caught.value.detail == "Invalid plane size or size not specified"


def test_prints_distributions_for_the_environment() -> None:
    assert distribution.format(Distribution("block", "cyclic")) == "block:cyclic"
    assert distribution.format(Distribution("", "cyclic")) == "*:cyclic"
    assert distribution.format(Distribution("plane", plane_size=4)) == "plane"


@pytest.mark.parametrize(
    ("text", "binding"),
    [
        ("none", Binding("none")),
        ("q", Binding(verbose=False)),
        ("verbose,cores", Binding("cores", verbose=True)),
        ("cores,threads", Binding("threads")),
        ("socket", Binding("sockets")),
        ("rank_ldom", Binding("rank_ldom")),
        ("map_cpu:0,1", Binding("map_cpu", (0, 1))),
        ("map_cpu:0*2,1", Binding("map_cpu", (0, 0, 1))),
        ("map_cpu:0x10", Binding("map_cpu", (16,))),
        ("mask_cpu:0x3,0xC,f", Binding("mask_cpu", (3, 12, 15))),
        ("v,map_ldom:0,1", Binding("map_ldom", (0, 1), True)),
        ("map_cpu:0,1,v", Binding("map_cpu", (0, 1), True)),
        ("mask_ldom:1", Binding("mask_ldom", (1,))),
    ],
)
def test_reads_cpu_bindings(text: str, binding: Binding) -> None:
    assert cpubind.parse_cpu_bind(text) == binding
    assert cpubind.parse_cpu_bind(cpubind.format(binding)) == binding


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("map_cpu", 'missing list for "--cpu-bind=map_cpu:<list>"'),
        ("mask_cpu:", 'missing list for "--cpu-bind=mask_cpu:<list>"'),
        ("map_cpu:x", "Failed to validate number: x, the offending character is x"),
        ("mask_cpu:zz", "Failed to validate number: zz, the offending character is z"),
        ("map_cpu:0-3", "Failed to validate number: 0-3, the offending character is -"),
        ("boards", 'unrecognized --cpu-bind argument "boards"'),
        ("x", 'unrecognized --cpu-bind argument "x"'),
        ("", 'unrecognized --cpu-bind argument ""'),
        ("cores:1", 'unrecognized --cpu-bind argument "cores:1"'),
    ],
)
def test_refuses_cpu_bindings_in_slurms_words(text: str, message: str) -> None:
    """(slurm)"""
    with pytest.raises(BindError) as caught:
        cpubind.parse_cpu_bind(text)
    assert str(caught.value) == message


def test_reads_memory_bindings() -> None:
    assert cpubind.parse_mem_bind("v,local") == Binding("local", verbose=True)
    assert cpubind.parse_mem_bind("map_mem:0,1") == Binding("map_mem", (0, 1))
    assert cpubind.parse_mem_bind("sort,prefer") == Binding(flags=("sort", "prefer"))
    assert cpubind.parse_mem_bind("sort,nosort") == Binding(flags=("nosort",))
    with pytest.raises(BindError, match='^unrecognized --mem-bind argument "x"$'):
        cpubind.parse_mem_bind("x")
    with pytest.raises(BindError, match='^missing list for "--mem-bind=map_mem:<list>"$'):
        cpubind.parse_mem_bind("map_mem")


@pytest.mark.parametrize(
    ("text", "binding"),
    [
        ("closest", Binding("closest")),
        ("verbose,closest", Binding("closest", verbose=True)),
        ("none", Binding("none")),
        ("map_gpu:0,1", Binding("map_gpu", (0, 1))),
        ("map:0*2", Binding("map_gpu", (0, 0))),
        ("mask_gpu:0x3,1", Binding("mask_gpu", (3, 1))),
        ("per_task:2", Binding("per_task", (2,))),
        ("single:1", Binding("single", (1,))),
    ],
)
def test_reads_gpu_bindings(text: str, binding: Binding) -> None:
    assert cpubind.parse_gpu_bind(text) == binding
    assert cpubind.parse_gpu_bind(cpubind.format(binding)) == binding


@pytest.mark.parametrize(
    "text",
    ["", "x", "verbose", "verbose,", "map_gpu:", "map_gpu:x", "mask_gpu:zz", "per_task:0", "per_task:x", "single:"],
)
def test_refuses_gpu_bindings(text: str) -> None:
    with pytest.raises(BindError, match="^Invalid --gpu-bind argument: "):
        cpubind.parse_gpu_bind(text)


def test_prints_lists_for_the_environment() -> None:
    assert cpubind.format_values(Binding("mask_cpu", (3, 12))) == "0x3,0xC"
    assert cpubind.format_values(Binding("map_cpu", (0, 1))) == "0,1"


@pytest.mark.parametrize(
    ("given", "shown"),
    [("*", "block"), ("*:*", "block:cyclic"), ("*:block:*", "block:block:block"), ("*,pack", "block,pack")],
)
def test_stars_of_a_distribution_are_told_in_words(given: str, shown: str) -> None:
    assert distribution.without_stars(given) == shown
