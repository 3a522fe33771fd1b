"""getopt_long(3). Messages are what sbatch and squeue 22.05.8 print through glibc, less the command's name."""

from __future__ import annotations

import pytest

from spritz.notation import getopt
from spritz.notation.getopt import NONE, OPTIONAL, REQUIRED, GetoptError, Option, Options

TABLE = Options(
    [
        Option("nodes", "N", REQUIRED),
        Option("nodelist", "w", REQUIRED),
        Option("nodefile", "F", REQUIRED),
        Option("no-kill", "k", OPTIONAL),
        Option("no-requeue"),
        Option("ntasks", "n", REQUIRED),
        Option("exclusive", "", OPTIONAL),
        Option("contiguous"),
        Option("hold", "H"),
        Option("verbose", "v"),
        Option("", "x", REQUIRED),
        Option("tasks", "", REQUIRED, "ntasks"),
        Option("taskes", "", REQUIRED, "ntasks"),
    ]
)


def keys(*arguments: str, stop_early: bool = False) -> list[tuple[str, str | None]]:
    return getopt.parse(arguments, TABLE, stop_early=stop_early)[0]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("-N2", [("nodes", "2")]),
        ("-N 2", [("nodes", "2")]),
        ("-N=2", [("nodes", "=2")]),
        ("--nodes=2", [("nodes", "2")]),
        ("--nodes 2", [("nodes", "2")]),
        ("--nodes=", [("nodes", "")]),
        ("--nodes -1", [("nodes", "-1")]),
        ("--nodes --", [("nodes", "--")]),
        ("--nodes=a=b", [("nodes", "a=b")]),
        ("-Hv", [("hold", None), ("verbose", None)]),
        ("-HvN2", [("hold", None), ("verbose", None), ("nodes", "2")]),
        ("-Hn 4", [("hold", None), ("ntasks", "4")]),
        ("-k 1", [("no-kill", None)]),
        ("-k1", [("no-kill", "1")]),
        ("--exclusive user", [("exclusive", None)]),
        ("--exclusive=user", [("exclusive", "user")]),
        ("--excl", [("exclusive", None)]),
        ("--nt=4", [("ntasks", "4")]),
        ("--task=4", [("ntasks", "4")]),
        ("-xyz", [("x", "yz")]),
    ],
)
def test_reads_options(line: str, found: list[tuple[str, str | None]]) -> None:
    assert keys(*line.split()) == found


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--foo", "unrecognized option '--foo'"),
        ("--foo=1", "unrecognized option '--foo=1'"),
        ("-z", "invalid option -- 'z'"),
        ("-Hz1", "invalid option -- 'z'"),
        ("-N", "option requires an argument -- 'N'"),
        ("-HN", "option requires an argument -- 'N'"),
        ("--nodes", "option '--nodes' requires an argument"),
        ("--nt", "option '--ntasks' requires an argument"),
        ("--contiguous=1", "option '--contiguous' doesn't allow an argument"),
        ("--cont=1", "option '--contiguous' doesn't allow an argument"),
        (
            "--no",
            "option '--no' is ambiguous; possibilities: '--nodes' '--nodelist' '--nodefile' '--no-kill' '--no-requeue'",
        ),
        ("--node=1", "option '--node=1' is ambiguous; possibilities: '--nodes' '--nodelist' '--nodefile'"),
        ("--=1", "option '--=1' is ambiguous; possibilities: "),
    ],
)
def test_complains_in_getopts_words(line: str, message: str) -> None:
    with pytest.raises(GetoptError) as caught:
        keys(*line.split())
    assert str(caught.value).startswith(message)
    if not message.endswith(" "):
        assert str(caught.value) == message


def test_other_arguments_are_moved_to_the_end() -> None:
    assert getopt.parse(["a", "-N2", "b", "-", "-H", "--", "-v"], TABLE) == (
        [("nodes", "2"), ("hold", None)],
        ["a", "b", "-", "-v"],
    )


def test_or_end_the_options_when_told_to() -> None:
    assert getopt.parse(["-N2", "script", "-H"], TABLE, stop_early=True) == ([("nodes", "2")], ["script", "-H"])
    assert getopt.parse(["-N2", "--", "-H"], TABLE, stop_early=True) == ([("nodes", "2")], ["-H"])
    assert getopt.parse(["-", "-H"], TABLE, stop_early=True) == ([], ["-", "-H"])


def test_the_same_option_may_come_twice_in_order() -> None:
    assert keys("-N1", "-H", "--nodes=2") == [("nodes", "1"), ("hold", None), ("nodes", "2")]


def test_aliases_count_as_one() -> None:
    assert keys("--tas=3") == [("ntasks", "3")]


def test_the_kinds_of_argument_differ() -> None:
    assert len({NONE, REQUIRED, OPTIONAL}) == 3
