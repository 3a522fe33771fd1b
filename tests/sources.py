"""A copy of what an installation is made from: building in the tree would leave files there."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]


def copy_sources(target: Path) -> None:
    """What pip needs of this project, in a new directory."""
    target.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "constraints.txt", "setup.py"):
        shutil.copy(ROOT / name, target)
    for name in ("src", "packaging", "launcher"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so"))
