"""No folder has more modules on one level than a reader takes in; those that have more get fewer."""

from __future__ import annotations

from pathlib import Path

import pytest

import spritz
import spritz_testing

MODULES_MAX = 25

#: Folders that have more, with their numbers today. A number may only fall; a folder with few enough leaves the table.
MORE = {
    "spritz": 30,
}

ROOTS = Path(spritz.__file__).parent, Path(spritz_testing.__file__).parent
FOLDERS = {
    path.parent.relative_to(root.parent).as_posix(): path.parent
    for root in ROOTS
    for path in sorted(root.rglob("__init__.py"))
}


def size_of(folder: Path) -> int:
    """Modules and packages in it."""
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    return len(modules) + len(list(folder.glob("*/__init__.py")))


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_has_few_modules_on_one_level(name: str) -> None:
    size, most = size_of(FOLDERS[name]), MORE.get(name, MODULES_MAX)
    assert size <= most, f"{name} has {size} modules on one level: give it packages by idea"
    assert name not in MORE or size == most, f"{name} has {size} modules now: write that into MORE"


def test_the_table_names_folders_that_have_more() -> None:
    assert not {name for name, most in MORE.items() if name not in FOLDERS or most <= MODULES_MAX}
