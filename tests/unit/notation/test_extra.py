"""Examples of https://slurm.schedmd.com/extra_constraints.html, all of them."""

from __future__ import annotations

import pytest

from spritz.notation.extra import ExtraError, data_of, parse

NODE = data_of('{ "a": 1.23, "b": true, "c": 0, "foo": "bar", "zed": 23 }')


@pytest.mark.parametrize(
    "text",
    [
        "a=1.23",
        "a!=1.24",
        "a!=1.23|foo!=blah",
        "b=200",
        "b=true",
        "foo<baz",
        "(c<=0.0001&a=1.25)|zed=23.0",
        "((c<=0.0001&a=1.25)|zed=23.0)&(a<1|b=false|c>=0.00000001)",
        "((c<=0.0001&a=1.23),zed=23.0)",
        "a!=   b",
    ],
)
def test_fulfilled(text: str) -> None:
    assert parse(text).matches(NODE)


@pytest.mark.parametrize(
    "text",
    [
        "a!=1.23",
        "b=0",
        "b=false",
        "foo>baz",
        "((c<=0.0001&a=1.25)|zed=23.0)&(a<1|b=false|c>=0.00001)",
        "nothing=1",
        "nothing!=1",
        'foo="bar"',
        "a=   b",
        " a=1.23",
    ],
)
def test_not_fulfilled(text: str) -> None:
    assert not parse(text).matches(NODE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a,<=6",
        "a<=6<=",
        "a=5&&&b=5",
        "a=5|||b=5",
        "a====5",
        "b<=<=5",
        "a=5&()",
        "a=5&b=5|c=5",
        "(a=1)&(b=2)|(c=3)",
        "a=1(b=2)",
        "(a=1)(b=2)",
        "(((a=1)b=2))",
        " (a=b)",
        "(a=b",
        "a=b)",
        "a!b",
        "(" * 2000 + "a=1" + ")" * 2000,
    ],
)
def test_no_expression(text: str) -> None:
    with pytest.raises(ExtraError):
        parse(text)


def test_data_that_is_no_object_says_nothing() -> None:
    assert data_of("") == data_of("[1]") == data_of("load=1") == data_of("[" * 100_000) == {}
    assert not parse("a=1").matches(data_of('{"a": null}'))
