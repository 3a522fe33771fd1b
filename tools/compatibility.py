"""`docs/compatibility.md`: every option, field, keyword and key of Slurm's that we know, done or refused.

Made of the very tables that the commands parse and print with, so that the page cannot promise what is not there; and
of what the comparison with a real Slurm sets aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec

from spritz.cli.options import Row
from spritz.presentation.columns import Field

#: Slurm's commands, in the order of the page
COMMANDS = (
    *(
        "sbatch",
        "srun",
        "salloc",
        "sattach",
        "sbcast",
        "sgather",
        "scrontab",
        "strigger",
        "squeue",
        "sinfo",
        "sprio",
        "scancel",
        "scontrol",
        "sacct",
    ),
    *("sacct", "sacctmgr", "sreport", "sstat", "sdiag", "sshare"),
)

INTRODUCTION = """\
# Compatibility with Slurm

Generated from the tables that the commands parse with (`make docs`); do not edit. The level is that of Slurm 25.05.

An option, field, keyword or key is *done* when it does what Slurm's manual page says, or *refused*: using it is an
error that names it and says why. Nothing is accepted and ignored. What Slurm itself has and is in no table here is
unknown to the command and refused as such.
"""

#: (title, module, name of its table) of the fields of listings
FIELDS = (
    ("squeue letters for jobs", "spritz.presentation.job_fields", "LETTERS"),
    ("squeue names for jobs", "spritz.presentation.job_fields", "NAMES"),
    ("squeue letters for steps", "spritz.presentation.step_fields", "LETTERS"),
    ("squeue names for steps", "spritz.presentation.step_fields", "NAMES"),
    ("sinfo letters", "spritz.presentation.node_fields", "LETTERS"),
    ("sinfo names", "spritz.presentation.node_fields", "NAMES"),
    ("sprio letters", "spritz.presentation.priority_fields", "LETTERS"),
    ("sacct fields", "spritz.presentation.accounting_fields", "FIELDS"),
    ("sstat fields", "spritz.presentation.running_step_fields", "FIELDS"),
    ("sshare fields", "spritz.presentation.share_fields", "FIELDS"),
)

#: what a table of ours says of each entry: name, why it is refused ("" if it works), what it means
Entry = tuple[str, str, str]


def markdown() -> str:
    """The whole page."""
    sections = dict(_sections())
    lines = [INTRODUCTION, "| what | done | refused |", "|---|---|---|"]
    for title, entries in sections.items():
        done = sum(1 for _, refused, _ in entries if not refused)
        lines.append(f"| [{title}](#{_anchor(title)}) | {done} | {len(entries) - done} |")
    lines += ["", *_configuration(), "", *_differences()]
    for title, entries in sections.items():
        lines += ["", f"## {title}", ""]
        lines += _table(entries) if entries else ["Not built yet.", ""]
    return "\n".join(lines).rstrip() + "\n"


def _sections() -> Iterable[tuple[str, list[Entry]]]:
    for command in COMMANDS:
        yield f"{command} options", _options(command)
    for title, module, name in FIELDS:
        yield title, _fields(getattr(import_module(module), name))
    yield "scontrol keywords", _keywords()
    yield "scontrol show entities", _entities()
    yield "scontrol update JobId keys", _job_keys()
    yield "scontrol update NodeName keys", _node_keys()
    yield "scontrol update PartitionName keys", _partition_keys()


def _options(command: str) -> list[Entry]:
    if find_spec(f"spritz.cli.{command}") is None:
        return []
    rows: tuple[Row, ...] = import_module(f"spritz.cli.{command}").OPTIONS
    return [_option(row) for row in rows]


def _option(row: Row) -> Entry:
    words = [f"-{row.short}"] if row.short else []
    if row.name:
        words.append(f"--{row.name}")
    # `=VALUE` may be left away where the table has it in brackets.
    metavar = row.metavar if row.metavar.startswith("[") else f"={row.metavar}" if row.metavar else ""
    meaning = row.help or (f"the same as --{row.alias}" if row.alias else "")
    return ", ".join(words) + metavar, row.refused, meaning


def _fields(fields: Mapping[str, Field]) -> list[Entry]:
    return [
        (f"%{name}" if len(name) == 1 else name, field.refused, _field(field))
        for name, field in sorted(fields.items(), key=lambda item: (item[0].lower(), item[0].swapcase()))
    ]


def _field(field: Field) -> str:
    """Its heading; and the text of those that can only have one."""
    if field.refused or field.needs or not field.header or field.header == "CLUSTER":
        return field.header
    return f"{field.header}; always {field.render(0.0) or 'empty'}: what it tells of is not built"


def _keywords() -> list[Entry]:
    from spritz.cli.control.verbs import VERBS

    return [(verb.name, verb.refused, verb.help) for verb in VERBS]


def _entities() -> list[Entry]:
    from spritz.cli.control.show import ENTITIES

    return [(name, entity.refused, "") for name, entity in ENTITIES.items()]


def _job_keys() -> list[Entry]:
    from spritz.cli.control.job_keys import KEYS

    known = [(name, key.refused, "") for name, key in KEYS.items()]
    return sorted([*known, ("TimeLimit", "", "a limit, or + or - and a time")])


def _node_keys() -> list[Entry]:
    from spritz.cli.control.update_node import KEYS, REFUSED_STATES, STATES

    refused = ", ".join(f"{name} ({why})" for name, why in REFUSED_STATES.items())
    meaning = f"{', '.join(STATES)}; refused: {refused}"
    return [(name, key.refused, meaning if name == "State" else "") for name, key in KEYS.items()]


def _partition_keys() -> list[Entry]:
    from spritz.cli.control.update_partition import FIELDS as DONE
    from spritz.cli.control.update_partition import REFUSED

    return sorted([*((name, "", "") for name in DONE), *((name, why, "") for name, why in REFUSED.items())])


def _differences() -> list[str]:
    """What is meant to be otherwise, as the side-by-side comparison sets it aside (`tests/conformance/meant.txt`)."""
    from tests.conformance.meant import read

    lines = ["## What commands print otherwise than Slurm 22.05", "", "| what | why |", "|---|---|"]
    return lines + [f"| {what} | {why} |" for what, why in read().reasons if why]


def _configuration() -> list[str]:
    from tools.configuration import counts

    found = counts()
    return [
        "Keys of configuration files are in [reference/slurm.conf.md](reference/slurm.conf.md): "
        + ", ".join(f"{count} {word}" for word, count in found.items())
        + ".",
    ]


def _table(entries: Iterable[Entry]) -> list[str]:
    lines = ["| name | state | |", "|---|---|---|"]
    for name, refused, meaning in entries:
        cells = (f"`{name}`", "refused" if refused else "done", refused or meaning)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def _anchor(title: str) -> str:
    """As Markdown viewers make anchors of headings."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -")
    return kept.replace(" ", "-")
