"""Release notes and their fragments are short, and a release needs both in order. Source: changelog.d/README.md."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tools import release

_ROOT = Path(__file__).resolve().parents[3]


def test_fragments_are_short_and_well_named() -> None:
    assert [fault for path in release.fragments() for fault in release.faults(path)] == []


def test_the_types_are_those_that_are_assembled() -> None:
    table = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["towncrier"]
    assert tuple(entry["directory"] for entry in table["type"]) == release.TYPES


def test_lines_of_the_changelog_are_as_wide_as_those_of_other_pages() -> None:
    lines = (_ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
    assert [line for line in lines if len(line) > 120] == []


def test_the_pages_that_the_changelog_links_to_exist() -> None:
    text = (_ROOT / "CHANGELOG.md").read_text("utf-8")
    links = {part.split(")", 1)[0].split("#")[0] for part in text.split("](")[1:]}
    assert links, "it links to pages"
    assert [link for link in sorted(links) if not (_ROOT / link).exists()] == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("+gpus.added.md", "x" * 221, "221 characters"),
        ("+gpus.added.md", "\n", "empty"),
        ("+gpus.added.md", "- `spritz gpus`.\n", "bullet"),
        ("+gpus.added.md", "One.\n\nTwo.\n", "several paragraphs"),
        ("gpus.added.md", "`spritz gpus`.\n", "name"),
        ("+gpus.new.md", "`spritz gpus`.\n", "name"),
        ("+gpus.added.2.md", "`spritz gpus`.\n", "name"),
    ],
)
def test_a_fragment_with_a_fault_is_named(tmp_path: Path, name: str, text: str, fault: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    (found,) = release.faults(path)
    assert found.startswith(name)
    assert fault in found


def test_a_fragment_of_two_lines_has_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "+gpus.added.md"
    path.write_text(f"{'x' * 110}\n{'x' * 109}\n")
    assert list(release.faults(path)) == []


@pytest.mark.parametrize(
    ("changelog", "fragment", "lacks"),
    [
        ("# Changelog\n\n## 1.1.0 (2026-01-02)\n\n## 1.0.0 (2026-01-01)\n", "", []),
        ("# Changelog\n\n## 1.0.0 (2026-01-01)\n", "", ["has no section"]),
        ("# Changelog\n\n## 1.0.0 (2026-01-01)\n\n## 1.1.0 (2026-01-02)\n", "", ["not the first"]),
        ("# Changelog\n\n## 1.1.0 (unreleased)\n", "", ["date"]),
        ("# Changelog\n\n## 1.1.0\n", "", ["date"]),
        ("# Changelog\n\n## 1.1.0 (2026-01-02)\n", "+late.fixed.md", ["+late.fixed.md"]),
    ],
)
def test_a_release_needs_its_section_and_no_fragment(
    tmp_path: Path, changelog: str, fragment: str, lacks: list[str]
) -> None:
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    (tmp_path / "changelog.d").mkdir()
    for name in filter(None, ("README.md", fragment)):
        (tmp_path / "changelog.d" / name).write_text("Text.\n")
    found = list(release.missing("1.1.0", tmp_path))
    assert len(found) == len(lacks)
    assert all(words in line for words, line in zip(lacks, found, strict=True))
