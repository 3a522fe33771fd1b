"""srun(1) MULTIPLE PROGRAM CONFIGURATION. (slurm) marks what srun 22.05.8 printed."""

from __future__ import annotations

import pytest

from spritz.notation.lines import multiprog
from spritz.notation.lines.multiprog import MultiProgError


def commands(text: str, tasks: int | None = None) -> list[str]:
    rules, total = multiprog.parse(text, "prog.conf", tasks)
    return [" ".join(multiprog.command(rules, task) or ["-"]) for task in range(total)]


def test_each_task_gets_its_program() -> None:
    """(slurm)"""
    text = "# comment\n0    echo zero %t %o\n1-2  echo middle %t %o\n\n*    echo rest %t %o\n"
    assert commands(text, 4) == ["echo zero 0 0", "echo middle 1 0", "echo middle 2 1", "echo rest 3 3"]


def test_offsets_count_through_all_ranges_of_a_line() -> None:
    """The example of the manual page."""
    text = "4-6 hostname\n1,7 echo task:%t\n0,2-3 echo offset:%o\n"
    assert commands(text, 8)[:4] == ["echo offset:0", "echo task:1", "echo offset:1", "echo offset:2"]


def test_the_file_says_how_many_tasks_there_are_if_nothing_else_does() -> None:
    assert commands("0-2 a") == ["a", "a", "a"]
    assert commands("* a") == ["a"]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("'echo %t \\n %o'", ["echo %t \\n %o"]),
        ("%t %o x%ty", ["1", "1", "x1y"]),
        ("a'b c'd", ["ab cd"]),
        ("b\\ c \\%t \\'q \\\\ z", ["b c", "%t", "'q", "\\", "z"]),
        ("''", [""]),
        ('"a b" "%t"', ['"a', 'b"', '"1"']),
        ("x%dy %%t a%", ["xy", "t", "a"]),
    ],
)
def test_single_quotes_and_backslashes_keep_letters_as_they_are(written: str, words: list[str]) -> None:
    """(slurm) Double quotes are letters like others, and `%` with another letter goes."""
    rules, _ = multiprog.parse(f"0-1 p {written}", "f", None)
    assert multiprog.command(rules, 1) == ["p", *words]


def test_lines_may_be_continued() -> None:
    assert commands("0 echo \\\n a \\\n b\n1 c") == ["echo a b", "c"]
    assert commands("0 echo a\\") == ["echo a"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("0 a", ["Configuration file prog.conf invalid, no record for task id 1"]),
        ("", ["Configuration file prog.conf invalid, no record for task id 0"]),
        ("0 a\n\nx b", ["Invalid task range specification (x)", "Line 3 of configuration file prog.conf invalid"]),
        ("0", ["Line 1 of configuration file prog.conf invalid"]),
        ("1-0 a", ["Invalid task range, 1-0", "Line 1 of configuration file prog.conf invalid"]),
        ("0-2 a", ["Invalid task id, 2 >= ntasks", "Line 1 of configuration file prog.conf invalid"]),
        ("0-1 a\n1 b", ["Duplicate record for task 1", "Line 2 of configuration file prog.conf invalid"]),
        (
            "* a\n0 b",
            ["Task range specification with asterisk must be last", "Line 2 of configuration file prog.conf invalid"],
        ),
        ("0-1 'a", ["Unmatched ' in ('a)", "Line 1 of configuration file prog.conf invalid"]),
        (", a", ["Invalid task range specification (,)", "Line 1 of configuration file prog.conf invalid"]),
    ],
)
def test_says_what_is_wrong_and_where(text: str, lines: list[str]) -> None:
    with pytest.raises(MultiProgError) as caught:
        multiprog.parse(text, "prog.conf", 2)
    assert list(caught.value.lines) == lines


def test_a_huge_rank_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(MultiProgError, match="Invalid task id"):
        multiprog.parse("0-2147483647 a", "f", None)
