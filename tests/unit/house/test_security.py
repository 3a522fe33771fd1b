"""docs/security.md names a test for what stops an attack: each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text()


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 25
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).exists() or not re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.M)
    ]
    assert missing == []


def test_every_attack_has_a_test_or_is_said_to_be_stopped_by_nothing() -> None:
    rows = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| to ")]
    assert len(rows) > 20
    unshown = [row[0].strip() for row in rows if "`tests/" not in row[2] and not row[1].startswith("nothing")]
    assert unshown == []
