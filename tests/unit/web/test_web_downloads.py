"""Files of runs are sent as they are, and nothing from outside of the run's directory is."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

from spritz.web import downloads
from tests.unit.web.dashboard import RUN, Dashboard


class Runs:
    """A dashboard that shows a run with these files."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.code = directory / "train-1" / "code"
        (self.code / "out").mkdir(parents=True)
        monkeypatch.setitem(RUN, "directory", str(self.code.parent))
        self.dashboard = Dashboard(directory, monkeypatch)

    def ask(self, *paths: str) -> list[httpx.Response]:
        """Answers to requests for these paths of files, one after the other."""

        async def asked() -> list[httpx.Response]:
            async with self.dashboard.serving():
                word = await self.dashboard.site.sessions.begin("vera")
                async with self.dashboard.browser(word) as browser:
                    answers = [await browser.get(f"/runs/train-1/file?{urlencode({'path': path})}") for path in paths]
            assert self.dashboard.site.downloads.running == 0
            return answers

        return asyncio.run(asked())


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path, monkeypatch)


def test_a_file_is_sent_whole_as_an_attachment(runs: Runs) -> None:
    content = os.urandom(3 * downloads.PIECE_BYTES + 7)
    (runs.code / "out" / "a é.pt").write_bytes(content)
    (runs.code / "empty").write_bytes(b"")
    answer, empty = runs.ask("out/a é.pt", "empty")
    assert answer.content == content
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''a%20%C3%A9.pt"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert (empty.status_code, empty.content) == (200, b"")


def test_nothing_outside_of_the_directory_is_sent(runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("for others")
    (runs.code.parent / "run.json").write_text("for others")
    (runs.code / "link").symlink_to(tmp_path / "secret")
    (runs.code / "folder").symlink_to(tmp_path)
    os.mkfifo(runs.code / "pipe")
    paths = (
        "../run.json", "out/../../run.json", str(tmp_path / "secret"), "/secret", "link", "folder/secret", "pipe",
        "out", "", ".", "..", "nothing", "a\0b", "out//x", "./run.json",
    )  # fmt: skip
    for path, answer in zip(paths, runs.ask(*paths), strict=True):
        assert answer.status_code in (400, 404), path
        assert "for others" not in answer.text, path
    (runs.code / "out").rmdir()
    for name in ("link", "folder", "pipe"):
        (runs.code / name).unlink()
    runs.code.rmdir()
    runs.code.symlink_to(tmp_path)
    (answer,) = runs.ask("secret")
    assert answer.status_code == 404


def test_there_is_a_limit_to_downloads_at_a_time(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    (runs.code / "x").write_text("1")
    monkeypatch.setattr(downloads, "DOWNLOADS_MAX", 0)
    assert "Too many files" in runs.ask("x")[0].text


def test_the_page_of_a_run_lists_its_files(runs: Runs) -> None:
    async def page() -> str:
        async with runs.dashboard.serving():
            word = await runs.dashboard.site.sessions.begin("vera")
            async with runs.dashboard.browser(word) as browser:
                assert 'hx-get="/runs/train-1/files"' in (await browser.get("/runs/train-1")).text
                return (await browser.get("/runs/train-1/files")).text

    text = asyncio.run(page())
    assert 'href="/runs/train-1/file?path=out%2Fa+b.pt"' in text
    assert "9 B" in text
