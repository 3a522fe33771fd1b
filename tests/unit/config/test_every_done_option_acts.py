"""No option of a command is decoration: what is not refused is read, and what it fills is used.

As crude as its sister for configuration keys, and as honest. Source of the options: the commands' own tables.
"""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from spritz.cli.jobs.submit.rows import rows_of
from spritz.model.job.duties import FIELDS
from spritz.model.job.record import JobSpec
from spritz.model.job.step import IDLE, StepSpec
from tests.unit.config.sources import names

#: One process reads the sources, once.
pytestmark = pytest.mark.xdist_group("sources")

#: Fields that declare that nothing acts on them.
_IDLE = {
    JobSpec: {name for name, duty in FIELDS.items() if duty.idle},
    StepSpec: set(IDLE),
}

_SHOWING = ("presentation/", "config/")


@cache
def _texts() -> frozenset[str]:
    """Every string outside the table of options."""
    return frozenset(text for name, found in names().items() if not name.endswith("/rows.py") for text in found.strings)


@cache
def _attributes() -> frozenset[str]:
    return frozenset(
        attribute for name, found in names().items() if not name.startswith(_SHOWING) for attribute in found.attributes
    )


@pytest.mark.parametrize("letter", ["b", "a", "s"])
def test_every_option_that_is_not_refused_is_read(letter: str) -> None:
    taken = {row.name for row in rows_of(letter) if not row.refused and not row.no_effect and not row.alias}
    assert taken - _texts() == set(), "options in cli/jobs/submit/rows.py that nothing looks for"


@pytest.mark.parametrize("record", [JobSpec, StepSpec])
def test_what_options_fill_is_used(record: type[msgspec.Struct]) -> None:
    unused = {name for name in record.__struct_fields__ if name not in _attributes()}
    assert unused - _IDLE[record] == set(), "fields of requests that nothing acts on"
    assert _IDLE[record] <= set(record.__struct_fields__), "fields that are gone"
