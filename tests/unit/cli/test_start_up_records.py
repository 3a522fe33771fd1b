"""Records of `model.queries` are loaded when they are asked for: every one has its place in the table of files."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from spritz.model import queries


def test_every_record_is_in_the_table_of_files() -> None:
    (directory,) = map(Path, queries.__path__)
    written = {
        (node.name, path.stem)
        for path in directory.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    assert written == set(queries._FILE_OF.items())
    for name, _ in written:
        assert getattr(queries, name).__name__ == name


def test_what_there_is_not_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'ListEverything'"):
        queries.ListEverything  # type: ignore[attr-defined]  # noqa: B018 - the look is the test
