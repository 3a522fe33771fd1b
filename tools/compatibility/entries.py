"""What the commands' tables say: each option, field, keyword and key of Slurm, and whether it works or is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

from spritz.cli.call.options import Row
from spritz.presentation.columns import Field
from tools.commands import COMMANDS

#: Commands whose options are mostly the same.
SUBMISSION = ("sbatch", "srun", "salloc")

#: (title, module, name of its table) of the fields of listings
_FIELDS = (
    ("squeue letters for jobs", "spritz.presentation.job.job_fields", "LETTERS"),
    ("squeue names for jobs", "spritz.presentation.job.job_fields", "NAMES"),
    ("squeue letters for steps", "spritz.presentation.job.step_fields", "LETTERS"),
    ("squeue names for steps", "spritz.presentation.job.step_fields", "NAMES"),
    ("sinfo letters", "spritz.presentation.node.node_fields", "LETTERS"),
    ("sinfo names", "spritz.presentation.node.node_fields", "NAMES"),
    ("sprio letters", "spritz.presentation.priority_fields", "LETTERS"),
    ("sacct fields", "spritz.presentation.accounting.accounting_fields", "FIELDS"),
    ("sstat fields", "spritz.presentation.accounting.running_step_fields", "FIELDS"),
    ("sshare fields", "spritz.presentation.accounting.share_fields", "FIELDS"),
)


@dataclass(frozen=True)
class Entry:
    """`name` as users write it; `refused`: why it is refused ("": it works); `meaning`: what it does; `no_effect`:
    whether it is taken with a warning.
    """

    name: str
    refused: str = ""
    meaning: str = ""
    no_effect: bool = False


@dataclass(frozen=True)
class Section:
    title: str
    entries: tuple[Entry, ...]

    @property
    def refused(self) -> int:
        return sum(1 for entry in self.entries if entry.refused)

    @property
    def done(self) -> int:
        return len(self.entries) - self.refused - self.without_effect

    @property
    def without_effect(self) -> int:
        return sum(1 for entry in self.entries if entry.no_effect)


def options() -> list[Section]:
    """The options of each command."""
    return [Section(command, tuple(_option(row) for row in rows(command))) for command in COMMANDS]


def fields() -> list[Section]:
    """The fields of each listing."""
    return [Section(title, tuple(_fields(getattr(import_module(module), name)))) for title, module, name in _FIELDS]


def keywords() -> list[Section]:
    """What follows `scontrol`: keywords, nouns of `show`, keys of `update`."""
    return [
        Section("scontrol keywords", tuple(_verbs())),
        Section("scontrol show", tuple(_nouns())),
        Section("scontrol update JobId", tuple(_job_keys())),
        Section("scontrol update NodeName", tuple(_node_keys())),
        Section("scontrol update PartitionName", tuple(_partition_keys())),
    ]


def request_fields() -> Section:
    """Fields of a job that is submitted by REST, those that are refused."""
    refused: dict[str, str] = getattr(import_module("spritz.rest.operations.job_fields"), "_REFUSED")  # noqa: B009
    return Section("REST fields of a job", tuple(Entry(name, why) for name, why in refused.items()))


def rows(command: str) -> tuple[Row, ...]:
    """The command's own table of options."""
    table: tuple[Row, ...] = import_module(f"spritz.cli.{command}").OPTIONS
    return table


def _option(row: Row) -> Entry:
    words = [f"-{row.short}"] if row.short else []
    if row.name:
        words.append(f"--{row.name}")
    # `=VALUE` may be omitted where the table has it in brackets.
    metavar = row.metavar if row.metavar.startswith("[") else f"={row.metavar}" if row.metavar else ""
    meaning = row.help or row.no_effect or (f"the same as --{row.alias}" if row.alias else "")
    return Entry(", ".join(words) + metavar, row.refused, meaning, bool(row.no_effect))


def _fields(table: Mapping[str, Field]) -> Iterator[Entry]:
    for name, field in sorted(table.items(), key=lambda item: (item[0].lower(), item[0].swapcase())):
        yield Entry(f"%{name}" if len(name) == 1 else name, field.refused, _heading(field))


def _heading(field: Field) -> str:
    """The field's heading; and the text of a field that always has the same."""
    if field.refused or field.needs or not field.header or field.header == "CLUSTER":
        return field.header
    return f"{field.header}; always {field.render(0.0) or 'empty'}: Spritz has no data for it"


def _verbs() -> Iterator[Entry]:
    from spritz.cli.administration.control.verbs import VERBS

    return (Entry(verb.name, verb.refused, verb.help) for verb in VERBS)


def _nouns() -> Iterator[Entry]:
    from spritz.cli.administration.control.show.entities import ENTITIES

    return (Entry(name, entity.refused) for name, entity in ENTITIES.items())


def _job_keys() -> list[Entry]:
    from spritz.cli.administration.control.update.job_keys import KEYS

    known = [Entry(name, key.refused) for name, key in KEYS.items()]
    return sorted([*known, Entry("TimeLimit", "", "a limit, or + or - and a time")], key=lambda entry: entry.name)


def _node_keys() -> Iterator[Entry]:
    from spritz.cli.administration.control.update.node import KEYS, REFUSED_STATES, STATES

    refused = ", ".join(f"{name} ({why})" for name, why in REFUSED_STATES.items())
    states = f"{', '.join(STATES)}; refused: {refused}"
    return (Entry(name, key.refused, states if name == "State" else "") for name, key in KEYS.items())


def _partition_keys() -> list[Entry]:
    from spritz.cli.administration.control.update.partition import FIELDS as DONE
    from spritz.cli.administration.control.update.partition import REFUSED

    entries = [*(Entry(name) for name in DONE), *(Entry(name, why) for name, why in REFUSED.items())]
    return sorted(entries, key=lambda entry: entry.name)
