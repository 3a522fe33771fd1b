"""The modes of a home with shared runs. What other users see then: tests/e2e/test_users_runs.py."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from spritz.experiments.access import sharing
from spritz.experiments.access.sharing import Audience
from spritz.experiments.code import cleaning, snapshot
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import home as home_of_runs
from spritz.experiments.job import submission
from spritz.experiments.records import record
from spritz.experiments.records.record import Run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPRITZ_HOME", str(tmp_path / "home"))
    return home_of_runs()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("print(1)\n")
    return tmp_path / "project"


def add(home: Path, project: Path, name: str, **values: object) -> Path:
    """A run whose directory has what submission, its job and its program leave."""
    code = submission.code_mapping(snapshot.take(project, home / "snapshots.git"))
    directory = record.make(home, name)
    run = Run(name=name, user="me", created_at=1.0, command=["x"], code=code, **values)  # type: ignore[arg-type]  # by name
    record.write(directory, run)
    (directory / "code").mkdir()
    for path in ("job.sh", "log/0-0.log", "log/notify.log", "code/private.txt", "code/result.txt"):
        (directory / path).write_text("x")
        (directory / path).chmod(0o600 if path == "code/private.txt" else 0o644)
    return directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_shared_run_is_open_and_all_else_is_closed(home: Path, project: Path) -> None:
    shared, other = add(home, project, "a-1"), add(home, project, "b-1")
    other.chmod(0o755)  # made by an earlier release
    assert sharing.share(home, shared, Audience(None)) == ""
    assert {path.name: mode(path) for path in home.iterdir()} == {
        "runs": 0o711, "shared-runs": 0o644, "snapshots.git": 0o700,
    }  # fmt: skip
    assert (mode(home), mode(shared), mode(other)) == (0o711, 0o755, 0o700)
    assert mode(shared / "run.json") & 0o044 == mode(shared / "log/0-0.log") & 0o044 == 0o044
    for closed in ("job.sh", "log/notify.log", "code/private.txt"):
        assert mode(shared / closed) == 0o600, closed
    (home / "later").mkdir(mode=0o755)
    home_of_runs()
    assert mode(home / "later") == 0o700
    assert mode(record.make(home, "c-1")) == 0o700
    record.edit(shared, note="x")
    assert mode(shared / record.EDITS) & 0o044 == 0o044
    assert sharing.shared(home) == ["a-1"]
    sharing.stop(home, shared)
    assert (mode(shared), sharing.shared(home), (shared / "objects").exists()) == (0o700, [], False)


def test_a_group_gets_what_is_shared_with_it(home: Path, project: Path) -> None:
    group = next((number for number in os.getgroups() if number != os.getegid()), os.getegid())
    shared = add(home, project, "a-1")
    sharing.share(home, shared, Audience(group))
    assert (mode(shared), shared.stat().st_gid) == (0o2750, group)
    assert (mode(shared / "run.json"), (shared / "run.json").stat().st_gid) == (0o640, group)


def test_the_code_travels_with_the_run(home: Path, project: Path, tmp_path: Path) -> None:
    """Into another's repository, from the run's directory alone."""
    shared = add(home, project, "a-1")
    sharing.share(home, shared, Audience(None))
    code = snapshot.Snapshot.of(record.read(shared).code)
    theirs = tmp_path / "theirs.git"
    with pytest.raises(ExperimentError):
        snapshot.receive(theirs, code, [tmp_path / "nowhere"])
    snapshot.receive(theirs, code, [shared / "objects"])
    sharing.stop(home, shared)
    assert snapshot.names(theirs, code.tree) == ["train.py"]
    for now in (3e9, 4e9):
        cleaning.remove_all_but({code.tree}, theirs, now)
    assert snapshot.names(theirs, code.tree) == ["train.py"]


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        (".env", "export WANDB_API_KEY='abc'\n", "WANDB_API_KEY"),
        ("conf/credentials.json", '{\n"client_secret": "abc"}', "client_secret"),
        ("deploy.pem", "-----BEGIN RSA PRIVATE KEY-----\n", "deploy.pem"),
        (".env", "DEBUG=1\nAPI_KEY=\n", ""),
        ("secrets.py", "token = next(tokens)\n", ""),
    ],
)
def test_code_with_a_file_of_secrets_is_not_shared(
    home: Path, project: Path, path: str, text: str, reason: str
) -> None:
    (project / path).parent.mkdir(exist_ok=True)
    (project / path).write_text(text)
    shared = add(home, project, "a-1")
    if not reason:
        sharing.share(home, shared, Audience(None))
        return
    with pytest.raises(ExperimentError, match=reason):
        sharing.share(home, shared, Audience(None))
    assert (mode(home), mode(shared)) == (0o700, 0o700)


def test_a_log_is_closed_until_secrets_in_it_are_masked(home: Path, project: Path) -> None:
    shared = add(home, project, "a-1", surroundings={"variables": {"TOKEN": "********"}})
    assert "its log stays closed" in sharing.share(home, shared, Audience(None))
    assert mode(shared / "log") == 0o700
    record.append(shared, "started", 1.0, restart=0)
    record.append(shared, "ended", 2.0, restart=0, status=0)
    assert sharing.share(home, shared, Audience(None)) == ""
    assert mode(shared / "log") & 0o055 == 0o055
