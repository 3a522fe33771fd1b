"""`--help` is laid out as that of Slurm's command, which completion scripts read."""

from __future__ import annotations

from importlib import import_module

import pytest

from spritz.cli.call.options import Row, help_text

GROUPED = ("sinfo", "squeue", "sprio", "scancel", "sdiag", "sbcast", "sattach")
LISTED = ("scontrol", "sacct", "sacctmgr", "sreport", "sstat")


def _lines(command: str) -> list[str]:
    module = import_module(f"spritz.cli.{command}")
    return help_text(command, getattr(module, "_SYNOPSIS", "[OPTIONS]"), module.OPTIONS).splitlines()


@pytest.mark.parametrize("command", GROUPED)
def test_help_begins_with_the_usage_and_ends_with_options_for_help(command: str) -> None:
    lines = _lines(command)
    assert lines[0].startswith(f"Usage: {command} [")
    assert lines[1].startswith("  ")
    at = lines.index("Help options:")
    assert lines[at - 1] == ""
    assert [line.strip().partition(" ")[0] for line in lines[at + 1 :] if "--help" in line or "--usage" in line]


@pytest.mark.parametrize("command", ["sbatch", "srun", "salloc"])
def test_options_of_the_launchers_are_in_groups(command: str) -> None:
    lines = _lines(command)
    assert lines[:3] == [lines[0], "", "Parallel run options:"]
    assert lines[lines.index("Other options:") + 1].startswith("  -V, --version")


@pytest.mark.parametrize("command", LISTED)
def test_help_of_commands_with_keywords_is_a_list(command: str) -> None:
    lines = _lines(command)
    assert lines[0].startswith(f"{command} [<OPTION>]")
    assert lines[1] == "    Valid <OPTION> values are:"


def test_a_long_option_stands_on_a_line_of_its_own() -> None:
    rows = (Row("a-very-long-option-indeed", "a", "WITH-A-VALUE", "what it does"), Row("help", "h", "", "this text"))
    assert help_text("sinfo", "[OPTIONS]", rows).splitlines() == [
        "Usage: sinfo [OPTIONS]",
        "  -a, --a-very-long-option-indeed=WITH-A-VALUE",
        " " * 33 + "what it does",
        "",
        "Help options:",
        "  -h, --help".ljust(32) + " this text",
    ]
