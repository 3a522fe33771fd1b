"""Constraints: sbatch(1) --constraint. (slurm) marks what sbatch 22.05.8 accepted or refused."""

from __future__ import annotations

import pytest

from spritz.notation import features
from spritz.notation.features import Feature, FeatureError, Group


@pytest.mark.parametrize(
    ("text", "node", "serves"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a&b", "a b", True),
        ("a&b", "a", False),
        ("a,b", "a", False),
        ("a|b", "b", True),
        ("a|b", "c", False),
        ("(a|b)&c", "b c", True),
        ("(a|b)&c", "a b", False),
        ("(a&b)|c", "c", True),
        ("[a|b]", "b", True),
        ("[a|b]&c", "b", False),
        ("[(a&b)|c]", "a b", True),
        ("[a*2&b*4]", "a", True),
        ("a*2", "", True),
        ("c&a*2", "a", False),
        ("c&a*2", "c", True),
    ],
)
def test_tells_whether_a_node_may_serve(text: str, node: str, serves: bool) -> None:
    constraint = features.parse(text)
    assert constraint is not None
    assert constraint.matches(set(node.split())) is serves


@pytest.mark.parametrize(
    "text",
    [
        "!a",
        "&a",
        "a&",
        "a||b",
        "(a",
        "a)",
        "[a",
        "a]",
        "a*0",
        "a*x",
        "a*",
        "a b",
        "[[a]]",
        "((a|b))",
        "[a*1|b*2]",
        "(a*1)",
        "a&b|c",
        "()",
        "[]",
        "*2",
        "a(b)",
        "a*-1",
        "a*99999999999",
        'a"b',
        "a\0",
        "(a|[b])",
        "a\udcff",
    ],
)
def test_refuses_what_is_no_constraint(text: str) -> None:
    """(slurm) for the first seventeen."""
    with pytest.raises(FeatureError, match="^Invalid feature specification"):
        features.parse(text)


def test_no_text_is_no_constraint() -> None:
    assert features.parse("") is None
    assert features.format(None) == ""
    assert features.names(None) == []


def test_matching_or_gives_alternatives_for_all_nodes() -> None:
    constraint = features.parse("[a|b]&c")
    assert constraint is not None
    assert [features.format(choice) for choice in features.alternatives(constraint)] == ["a&c", "b&c"]
    plain = features.parse("a|b")
    assert plain is not None
    assert features.alternatives(plain) == [plain]


def test_counts_are_per_part_and_their_parts_test_single_nodes() -> None:
    constraint = features.parse("[(a&b)*2&c*4]")
    assert constraint is not None
    wanted = features.counts(constraint)
    assert wanted == [(Group("and", (Feature("a"), Feature("b"))), 2), (Feature("c"), 4)]
    assert wanted[1][0].matches({"c"})
    assert not wanted[1][0].matches({"a"})
    assert features.counts(Feature("a")) == []


@pytest.mark.parametrize(
    ("text", "sets", "nodes"),
    [
        ("a", [], 0),
        ("a*2", [["a", 2]], 2),
        ("a*2&b*4", [["a", 2], ["b", 4]], 4),
        ("[a*2&b*4]", [["a", 2, "b", 4]], 6),
        ("[(a&b)*2&c*1]&d", [["a&b", 2, "c", 1]], 3),
        ("[a|b]&c*2", [["c", 2]], 2),
        ("a*2&", [], 0),
    ],
)
def test_nodes_count_for_one_feature_of_brackets_alone(text: str, sets: list[list[object]], nodes: int) -> None:
    """Six nodes for `[a*2&b*4]`, four for `a*2&b*4`."""
    assert features.nodes_counted(text) == nodes
    if text.endswith("&"):
        return
    constraint = features.parse(text)
    assert constraint is not None
    way = features.alternatives(constraint)[0]
    assert sets == [
        [item for part, count in pairs for item in (features.format(part), count)]
        for pairs in features.counted_sets(way)
    ]


def test_alternatives_do_not_multiply_without_bound() -> None:
    constraint = features.parse("&".join(["[a|b]"] * 20))
    assert constraint is not None
    with pytest.raises(FeatureError, match="alternatives"):
        features.alternatives(constraint)


@pytest.mark.parametrize(
    "text",
    ["a", "a&b", "a|b", "(a|b)&c", "[a|b]&c", "a*2&b*4", "(a&b)*2&c*1", "[(a&b)*2&c*1]&d", "[(a&b)|c]", "gpu_mem:16G"],
)
def test_is_printed_as_written(text: str) -> None:
    assert features.format(features.parse(text)) == text


def test_names_are_listed_once() -> None:
    assert features.names(features.parse("(a|b)&a&c")) == ["a", "b", "c"]
