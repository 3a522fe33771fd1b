"""Pages say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from tools import docs

_ROOT = Path(__file__).resolve().parents[3]


def test_generated_pages_are_current() -> None:
    assert docs.stale() == [], "run `make docs`"


def test_the_architecture_names_every_package_and_the_layers_that_are_held() -> None:
    page = (_ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    contracts = (_ROOT / ".importlinter").read_text(encoding="utf-8")
    held = contracts.split("layers =\n", 1)[1].split("exhaustive", 1)[0].replace("(", "").replace(")", "")
    (shown,) = re.findall(r"^    sim > .*(?:\n +>.*)*", page, re.MULTILINE)
    assert " > ".join(line.strip() for line in held.splitlines() if line.strip()) == " ".join(shown.split())
    packages = {path.name for path in (_ROOT / "src/spritz").iterdir() if (path / "__init__.py").exists()}
    assert packages - set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set()
