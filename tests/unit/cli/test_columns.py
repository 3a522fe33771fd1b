"""The grammar of `-o` and `-O`. Expected lines were printed by Slurm 22.05 for the same forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spritz.presentation.columns import WIDTH_MAX, Field, Lines, header_line, parse_letters, parse_names

FIELDS = {"j": Field("NAME", ("name",)), "t": Field("ST", ("state",))}
NAMES = {"name": FIELDS["j"], "state": FIELDS["t"]}
ROW = {"name": "names", "state": "PD"}


def letters(form: str) -> tuple[str, str, list[str]]:
    complaints: list[str] = []
    columns = parse_letters(form, FIELDS, complaints.append)
    lines = Lines(columns)
    return lines.line(0.0, [ROW[path] for path in lines.needs]), header_line(columns), complaints


def names(form: str) -> str:
    lines = Lines(parse_names(form, NAMES, lambda _: None))
    return lines.line(0.0, [ROW[path] for path in lines.needs])


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("%j %t", "names PD"),
        (' %j  "%t"|{y}%%', ' names  "PD"|{y}'),
        ("%10j|%.10j|%3j|%.3j|%0j|", "names     |     names|nam|nam|names|"),
        ("no field", "no field"),
        ("%", ""),
        ("", ""),
        (r"\n%j\t", r"\nnames\t"),
        ("%!", "%!"),
        ("%-10j|", "%-10j|"),
        ("a%%j", "anames"),
    ],
)
def test_letters(form: str, line: str) -> None:
    assert letters(form)[0] == line


@pytest.mark.parametrize(
    ("value", "form", "line"),
    [
        ("1-00:00:00", "%.5l|%5l|", "1-00:00:00|1-00:|"),
        ("UNLIMITED", "%.5l|%5l|", "UNLIM|UNLIM|"),
        ("0:03", "%.6l|%6l|%l", "  0:03|0:03  |0:03"),
    ],
)
def test_a_duration_to_the_right_is_never_cut_but_its_words_are(value: str, form: str, line: str) -> None:
    fields = {"l": Field("TIME_LIMIT", ("limit",), lambda now, limit: str(limit), duration=True)}
    columns = parse_letters(form, fields, lambda _: None)
    assert Lines(columns).line(0.0, [value]) == line
    assert header_line(columns).startswith("TIME_")


def test_unknown_letters_are_told() -> None:
    assert letters("%!x%j%?")[2] == ["!", "?"]


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("name,state", "names               PD                  "),
        ("NAME:8,State:.6", "names       PD"),
        ("Name:-,State:", "names-PD"),
        ("Name:|,State:,", "names|PD"),
        ("name:3", "nam"),
        ("name:.8|", "   names|"),
        ("nosuch", ""),
        ("", ""),
    ],
)
def test_names(form: str, line: str) -> None:
    assert names(form) == line


@given(st.text(max_size=200))
def test_any_text_is_a_form(form: str) -> None:
    line, header, _ = letters(form)
    assert len(line) <= WIDTH_MAX * 200
    assert isinstance(header, str)
    assert isinstance(names(form), str)


def test_an_absurd_width_does_not_fill_the_memory() -> None:
    assert len(letters("%" + "9" * 300 + "j")[0]) == WIDTH_MAX


def test_many_rows_make_the_lines_that_single_ones_make() -> None:
    """Also where values cannot be looked up: records, and lists of them."""
    from spritz.cli.listings.queue.jobs import DEFAULT_FORMAT
    from spritz.presentation.job.job_fields import LETTERS

    lines = Lines(parse_letters(DEFAULT_FORMAT + " %% %.3u|%E", LETTERS, lambda _: None))
    base: dict[str, object] = dict.fromkeys(lines.needs, 0)
    base |= {"state": "PENDING", "spec.name": "ä" * 9, "reason": "Resources"}
    base |= {"partition": "debug", "reason_detail": "", "spec.partitions": [], "allocation": None, "array": None}
    base |= {"dependencies": []}
    running: dict[str, object] = {
        "state": "RUNNING",
        "allocation": {"nodes": [{"node": "n1", "cpus": "1"}]},
        "spec.partitions": ["a", "b"],
    }
    others: list[dict[str, object]] = [{}, running, {"array": {"pending": "f"}}, {}, {"spec.partitions": ["a", "b"]}]
    rows = [[(base | {"id": number} | more)[path] for path in lines.needs] for number, more in enumerate(others)]
    for some in (rows, rows[:1], rows[3:], []):
        assert lines.lines(5.0, some) == [lines.line(5.0, row) + "\n" for row in some]
