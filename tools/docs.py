"""Writes the generated pages of `docs/` from the code (`--check`: fails if one is not current)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tools import compatibility
from tools.wrap import wrap

DOCS = Path(__file__).resolve().parent.parent / "docs"


def _configuration() -> str:
    from tools import configuration

    return configuration.markdown()


def _commands() -> str:
    from tools import commands

    return commands.markdown()


def _decisions() -> str:
    from tools import decisions

    return decisions.markdown()


def _rest() -> str:
    from tools import rest

    return rest.markdown()


#: page -> what writes it; long lines are wrapped afterwards
PAGES: dict[str, Callable[[], str]] = {
    "reference/slurm.conf.md": _configuration,
    "reference/commands.md": _commands,
    "reference/rest.md": _rest,
    "decisions/index.md": _decisions,
    **compatibility.PAGES,
}


def stale() -> list[str]:
    """Pages that are not what the code says."""
    return [
        name
        for name, make in PAGES.items()
        if not (DOCS / name).exists() or (DOCS / name).read_text(encoding="utf-8") != wrap(make())
    ]


def main(argv: list[str]) -> int:
    """0; 1 with --check if a page is not current."""
    if argv == ["--check"]:
        old = stale()
        for name in old:
            print(f"docs/{name} is not current: run `make docs`")
        return 1 if old else 0
    for name, make in PAGES.items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wrap(make()), encoding="utf-8")
        print(f"docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
