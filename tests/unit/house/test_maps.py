"""The map of each package names all of its modules, and no others."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import spritz
import spritz_testing

#: the product, and what its tests stand on
ROOTS = Path(spritz.__file__).parent, Path(spritz_testing.__file__).parent

#: Packages so small that their modules' own docstrings are map enough.
_FEW = 5

#: A package whose modules are all alike says so instead of naming each.
_ALIKE = ("one module per", "a file for each noun")

#: At the beginning of a map's line: names of modules in backticks, with commas between them.
_LEADING = re.compile(r"^(?:`[a-z_][a-z0-9_]*/?`(?:, )?)+")


def modules_of(package: Path) -> set[str]:
    files = {path.stem for path in [*package.glob("*.py"), *package.glob("*.c")]} - {"__init__", "__main__"}
    return {name.lstrip("_") for name in files} | {path.parent.name for path in package.glob("*/__init__.py")}


def docstring_of(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""


PACKAGES = {
    path.parent.relative_to(root.parent).as_posix(): path.parent
    for root in ROOTS
    for path in sorted(root.rglob("__init__.py"))
    if path.parent.name != "versions" and path.parent not in ROOTS and len(modules_of(path.parent)) > _FEW
}


@pytest.mark.parametrize("name", PACKAGES)
def test_every_module_is_on_the_map(name: str) -> None:
    package = PACKAGES[name]
    text = docstring_of(package)
    if any(words in text.lower() for words in _ALIKE):
        return
    missing = {module for module in modules_of(package) if not re.search(rf"\b{module}\b", text)}
    assert not missing, f"{name}/__init__.py does not say what these are"


@pytest.mark.parametrize("name", PACKAGES)
def test_the_map_names_modules_that_exist(name: str) -> None:
    package = PACKAGES[name]
    text = docstring_of(package).partition("Map\n---\n")[2].partition("\n\n")[0]
    leading = {word for line in text.splitlines() if (found := _LEADING.match(line)) for word in found[0].split("`")}
    named = {word.rstrip("/") for word in leading if word.strip(", ")}
    assert named <= modules_of(package), f"{name}/__init__.py names what is not there"
