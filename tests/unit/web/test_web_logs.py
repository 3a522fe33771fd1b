"""Pieces of logs: the end, what was added, what is before, and lines with a text."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spritz.web.logs import files_of
from spritz.web.reading import PIECE_BYTES, ranks, read, search


def test_a_long_log_is_opened_at_its_end_and_read_backwards(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [f"line {number}\n" for number in range(40_000)]
    path.write_text("".join(lines))
    piece = read(str(path))
    assert piece["end"] == piece["size"] == path.stat().st_size
    assert piece["text"].endswith("line 39999\n")
    assert len(piece["text"]) <= PIECE_BYTES
    before = read(str(path), before=piece["begin"])
    assert before["end"] == piece["begin"]
    assert before["text"] + piece["text"] == "".join(lines)[-len(before["text"] + piece["text"]) :]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read(str(tmp_path / "pipe"))["problem"] == "The output is not a regular file."
    assert search(str(tmp_path / "pipe"), "x")["problem"] == "The output is not a regular file."


def test_a_sparse_log_of_a_gigabyte_is_opened_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.seek(1 << 30)
        file.write(b"\nthe end\n")
    piece = read(str(path))
    assert piece["text"] == "the end\n"
    assert piece["size"] == (1 << 30) + 9


def test_what_is_added_follows_and_a_character_in_halves_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes("ä\n€".encode()[:-1])
    piece = read(str(path))
    assert piece["text"] == "ä\n"
    with path.open("ab") as file:
        file.write("€\n".encode()[-2:])
    more = read(str(path), since=piece["end"])
    assert more["text"] == "€\n"
    path.write_text("anew\n")
    assert read(str(path), since=500)["again"]


def test_what_is_no_file_is_said_in_words(tmp_path: Path) -> None:
    assert read(str(tmp_path / "none"))["problem"] == "There is no output yet."
    os.mkfifo(tmp_path / "pipe")
    assert read(str(tmp_path / "pipe"))["problem"] == "The output is not a regular file."
    assert read(str(tmp_path))["problem"]


def test_the_last_lines_with_a_text_are_found_with_their_places(tmp_path: Path) -> None:
    path = tmp_path / "log"
    text = "".join(f"{'Error' if number % 1000 == 0 else 'fine'} {number}\n" for number in range(300_000))
    path.write_text(text + "x" * 3_000_000 + " error at last\n")
    found = search(str(path), "eRRor")
    assert len(found["lines"]) == 200
    assert found["more"]
    assert found["lines"][-1][1].endswith("error at last")
    place, line = found["lines"][-2]
    assert text[place:].startswith(line)
    assert line == "Error 299000"


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("sbatch train.sh", "/home/a/slurm-7.out"),
        ("sbatch -J x -o out/%x-%j.log train.sh", "/home/a/out/train-7.log"),
        ("/usr/bin/sbatch --output=/tmp/%u_%A.out --wrap 'echo -o no'", "/tmp/alice_7.out"),
        ("srun hostname", ""),
        ("", ""),
    ],
)
def test_a_job_that_only_accounting_remembers_is_read_where_its_command_says(line: str, path: str) -> None:
    detail = {"working_directory": "/home/a", "job_id": 7, "submit_line": line, "name": "train", "user": "alice"}
    assert files_of(detail) == ([("output", path)] if path else [])


def test_the_ranks_of_a_runs_last_life_are_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for name in ("0-0.log", "1-1.log", "1-0.log", "1-srun.log", "job.log"):
        (tmp_path / "log" / name).touch()
    found = files_of({"stdout_expanded": "/x"}, ranks(str(tmp_path / "log")))
    assert [name for name, _ in found] == ["rank 0", "rank 1", "output"]
    assert found[1][1].endswith("log/1-1.log")
