"""docs/plugins.md names every field and plugin."""

from __future__ import annotations

from pathlib import Path

from spritz.config.plugins import CLI_FILTER, JOB_SUBMIT
from spritz.plugins.fields import FIELDS

PAGE = Path(__file__).parents[3] / "docs" / "plugins.md"


def test_the_page_has_every_name_and_where_it_is_refused_why() -> None:
    text = PAGE.read_text()
    names = [*FIELDS, "environment", *JOB_SUBMIT, *CLI_FILTER]
    assert [name for name in names if f"`{name}`" not in text] == []
    reasons = {field.refused for field in FIELDS.values() if not field.writable}
    assert [why for why in reasons if why not in text and why != "plugins cannot change it"] == []
