"""The tables that the compatibility pages are made of are complete and consistent."""

from __future__ import annotations

from importlib import import_module

import pytest
from tools.compatibility import entries, pages

from spritz.cli.call.options import Row

COMMANDS = ("squeue", "sinfo", "scancel", "scontrol")

#: long options of Slurm 25.05, from its manual pages and their predecessors'
SLURM = {
    "squeue": """account all array array-unique clusters expand-patterns federation Format format help hide iterate
        jobs json licenses local long me name nodelist noconvert noheader notme only-job-state partition
        priority qos reservation sibling sort start states steps usage user verbose version yaml""",
    "sinfo": """all clusters dead exact federation Format format future help hide iterate json list-reasons local
        long noconvert Node nodes noheader partition reservation responding sort states summarize usage
        verbose version yaml""",
    "scancel": """account admin-comment batch clusters cron ctld full help hurry interactive jobname me name nodelist
        partition qos quiet reservation sibling signal state usage user verbose version wckey""",
    "scontrol": """all clusters details federation future help hide json local oneliner quiet sibling uid verbose
        version yaml""",
}


def rows(command: str) -> tuple[Row, ...]:
    options: tuple[Row, ...] = import_module(f"spritz.cli.{command}").OPTIONS
    return options


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_slurms_is_done_or_refused(command: str) -> None:
    names = {row.name for row in rows(command)}
    assert set(SLURM[command].split()) <= names


@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_has_help_or_a_refusal_or_another_name(command: str) -> None:
    seen: set[str] = set()
    for row in rows(command):
        assert row.help or row.refused or row.alias, row.name
        assert row.name not in seen
        seen.add(row.name)
        if row.alias:
            assert row.alias in {other.name for other in rows(command)}


def test_every_keyword_and_entity_leads_somewhere() -> None:
    from spritz.cli.administration.control.show.entities import ENTITIES
    from spritz.cli.administration.control.verbs import VERBS

    places = [(verb.name, verb.at, verb.refused) for verb in VERBS]
    places += [(name, entity.at, entity.refused) for name, entity in ENTITIES.items()]
    for name, at, refused in places:
        assert bool(at) is not bool(refused), name
        if at:
            module, _, function = at.partition(":")
            assert callable(getattr(import_module(f"spritz.cli.administration.control.{module}"), function)), name


def test_the_pages_count_what_they_list() -> None:
    summary = next(line for line in pages.commands().splitlines() if line.startswith("| [scontrol]"))
    done, warned, refused = (int(cell) for cell in summary.split("|")[3:6])
    assert warned == 0
    assert done == sum(1 for row in rows("scontrol") if not row.refused)
    assert refused == sum(1 for row in rows("scontrol") if row.refused) > 0


def test_everything_that_is_refused_is_on_the_page_with_its_reason() -> None:
    page = pages.refused()
    refused = [
        entry
        for section in (*entries.options(), *entries.keywords(), *entries.fields())
        for entry in section.entries
        if entry.refused
    ]
    assert len(refused) > 90
    text = page.replace("\\|", "|")
    assert [entry.name for entry in refused if f"`{entry.name}`" not in text or entry.refused not in text] == []


def test_an_option_of_a_submission_is_on_the_page_for_each_command_that_has_it() -> None:
    page = pages.options()
    line = next(line for line in page.splitlines() if line.startswith("| `-a, --array="))
    assert [cell.strip() for cell in line.split("|")[-4:-1]] == ["yes", "–", "–"]
    assert page.count("| `--accel-bind=options` |") == 1


def test_the_subjects_are_all_in_the_overview() -> None:
    overview = pages.overview()
    names = {name.removeprefix("compatibility/") for name in pages.PAGES} - {"index.md"}
    assert [name for name in names if f"]({name})" not in overview] == []
    assert len(overview.splitlines()) < 45, "the overview fits one screen"
