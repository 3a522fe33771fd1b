"""The snapshot holds what a clone with the user's changes would, and the user's repository is left alone."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from spritz.experiments.code import snapshot
from spritz.experiments.errors import ExperimentError

IDENTITY = (
    "-c",
    "user.name=a",
    "-c",
    "user.email=a@b",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "protocol.file.allow=always",
)


def git(directory: Path, *words: str) -> str:
    return subprocess.run(["git", *IDENTITY, *words], cwd=directory, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with one commit."""
    path = tmp_path / "project"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    (path / ".gitignore").write_text("*.ckpt\n")
    (path / "train.py").write_text("print(1)\n")
    (path / "lib").mkdir()
    (path / "lib" / "net.py").write_text("x = 1\n")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "one")
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "home" / "snapshots.git"


def laid_down(store: Path, tree: str, target: Path) -> dict[str, str]:
    """Files of the tree as the job's script checks them out."""
    script = snapshot.checkout_lines(store, tree, str(target))
    subprocess.run(["bash", "-euc", script], check=True, cwd=target.parent)
    return {
        str(path.relative_to(target)): os.readlink(path) if path.is_symlink() else path.read_text()
        for path in sorted(target.rglob("*"))
        if (path.is_file() or path.is_symlink()) and path.name != ".git-snapshot-done"
    }


def test_changed_untracked_and_deleted_files_are_as_in_the_directory(
    project: Path, store: Path, tmp_path: Path
) -> None:
    (project / "train.py").write_text("print(2)\n")
    (project / "new file é.py").write_text("new\n")
    (project / "model.ckpt").write_text("large")
    (project / "lib" / "net.py").unlink()
    (project / "link").symlink_to("train.py")
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    before = git(project, "status", "--porcelain"), (project / ".git" / "index").read_bytes()
    taken = snapshot.take(project / "lib", store)
    assert (taken.root, taken.directory, taken.branch) == (str(project), "lib", "main")
    assert taken.commit == git(project, "rev-parse", "HEAD").strip()
    assert taken.dirty
    assert taken.unpushed
    assert laid_down(store, taken.tree, tmp_path / "code") == {
        ".gitignore": "*.ckpt\n",
        "link": "train.py",
        "new file é.py": "new\n",
        "run.sh": "#!/bin/sh\n",
        "train.py": "print(2)\n",
    }
    assert os.access(tmp_path / "code" / "run.sh", os.X_OK)
    assert (git(project, "status", "--porcelain"), (project / ".git" / "index").read_bytes()) == before


def test_a_clean_tree_is_the_commits_and_is_kept_when_the_repository_is_gone(
    project: Path, store: Path, tmp_path: Path
) -> None:
    taken = snapshot.take(project, store)
    assert not taken.dirty
    assert taken.tree == git(project, "rev-parse", "HEAD^{tree}").strip()
    project.rename(tmp_path / "elsewhere")
    git(store, "gc", "-q", "--prune=now")
    assert laid_down(store, taken.tree, tmp_path / "code")["lib/net.py"] == "x = 1\n"


def test_equal_trees_are_kept_once(project: Path, store: Path) -> None:
    first = snapshot.take(project, store)
    count = sum(1 for _ in store.rglob("*"))
    assert snapshot.take(project, store) == first
    assert sum(1 for _ in store.rglob("*")) == count


def test_no_objects_are_written_to_the_users_repository(project: Path, store: Path) -> None:
    (project / "train.py").write_text("print(3)\n")
    before = sorted((project / ".git" / "objects").rglob("*"))
    snapshot.take(project, store)
    assert sorted((project / ".git" / "objects").rglob("*")) == before


def test_spritzignore_leaves_out_tracked_files_too(project: Path, store: Path, tmp_path: Path) -> None:
    (project / ".spritzignore").write_text("lib/\nnotes*\n")
    (project / "notes.txt").write_text("x")
    files = laid_down(store, snapshot.take(project, store).tree, tmp_path / "code")
    assert sorted(files) == [".gitignore", ".spritzignore", "train.py"]


@pytest.mark.parametrize("outputs", [[], ["out"]])
@pytest.mark.parametrize("spritzignore", ["", "lib/\n"])
def test_what_is_tracked_although_git_ignores_it_is_in_it_and_no_change(
    project: Path, store: Path, outputs: list[str], spritzignore: str
) -> None:
    (project / ".gitignore").write_text("*.json\n")
    (project / ".spritzignore").write_text(spritzignore)
    (project / "conf.json").write_text("1")
    (project / "out").mkdir()
    (project / "out" / ".gitkeep").touch()
    git(project, "add", "-f", "-A")
    git(project, "commit", "-q", "-m", "two")
    (project / "other.json").write_text("1")
    taken = snapshot.take(project, store, outputs=outputs)
    names = snapshot.names(store, taken.tree)
    assert "conf.json" in names
    assert "other.json" not in names
    assert ("out/.gitkeep" in names, "lib/net.py" in names) == (not outputs, not spritzignore)
    assert not taken.dirty
    (project / "out" / ".gitkeep").write_text("what is left out does not count")
    assert snapshot.take(project, store, outputs=outputs).dirty == (not outputs)
    (project / "conf.json").write_text("2")
    assert snapshot.take(project, store, outputs=outputs).dirty


@pytest.mark.parametrize(
    "flags", [["--assume-unchanged"], ["--skip-worktree"], ["--assume-unchanged", "--skip-worktree"]]
)
def test_a_file_that_git_was_told_not_to_look_at_is_in_it_as_it_is(
    project: Path, store: Path, tmp_path: Path, flags: list[str]
) -> None:
    for flag in flags:
        git(project, "update-index", flag, "train.py", "lib/net.py")
    assert not snapshot.take(project, store).dirty
    (project / "train.py").write_text("local")
    (project / "lib" / "net.py").unlink()
    taken = snapshot.take(project, store)
    assert taken.dirty
    assert laid_down(store, taken.tree, tmp_path / "code")["train.py"] == "local"
    assert git(project, "status", "--short") == ""


def test_in_a_directory_without_git_a_file_that_is_ignored_now_is_not_in_it(store: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "a.py").write_text("1")
    (plain / "data.bin").write_text("2")
    assert "data.bin" in snapshot.names(store, snapshot.take(plain, store).tree)
    (plain / ".gitignore").write_text("*.bin\n")
    assert snapshot.names(store, snapshot.take(plain, store).tree) == [".gitignore", "a.py"]


def test_a_directory_without_git_is_kept_as_it_is(store: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    (plain / "sub").mkdir(parents=True)
    (plain / "a.py").write_text("1")
    (plain / "sub" / "b.py").write_text("2")
    first = snapshot.take(plain, store)
    assert (first.commit, first.root) == ("", str(plain))
    (plain / "a.py").write_text("changed")
    second = snapshot.take(plain, store)
    assert laid_down(store, first.tree, tmp_path / "one") == {"a.py": "1", "sub/b.py": "2"}
    assert laid_down(store, second.tree, tmp_path / "two") == {"a.py": "changed", "sub/b.py": "2"}
    assert not list(plain.rglob(".git"))


def test_a_repository_in_a_directory_without_git_is_in_it_with_its_files(store: Path, tmp_path: Path) -> None:
    plain, inside = tmp_path / "plain", tmp_path / "plain" / "sub" / "lib"
    inside.mkdir(parents=True)
    git(inside, "init", "-q", "-b", "main")
    (plain / "a.py").write_text("1")
    (inside / "b.py").write_text("old")
    (inside / "c.py").write_text("committed")
    git(inside, "add", "-A")
    git(inside, "commit", "-q", "-m", "one")
    snapshot.take(plain, store)
    (inside / "b.py").write_text("changed")
    (inside / "new.py").write_text("new")
    taken = snapshot.take(plain, store)
    assert list(taken.submodules) == ["sub/lib"]
    assert laid_down(store, taken.tree, tmp_path / "code") == {
        "a.py": "1", "sub/lib/b.py": "changed", "sub/lib/c.py": "committed", "sub/lib/new.py": "new",
    }  # fmt: skip


def test_a_path_with_a_line_break_is_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "a\nb").mkdir()
    git(tmp_path / "a\nb", "init", "-q")
    with pytest.raises(ExperimentError, match="has a line break"):
        snapshot.take(tmp_path / "a\nb", store)


def test_submodules_are_in_it_with_their_changed_files(project: Path, store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "main")
    (other / "data.py").write_text("old\n")
    git(other, "add", "-A")
    git(other, "commit", "-q", "-m", "one")
    git(project, "submodule", "--quiet", "add", str(other), "deps/other")
    git(project, "commit", "-q", "-m", "with a submodule")
    assert not snapshot.take(project, store).dirty
    (project / "deps" / "other" / "data.py").write_text("changed\n")
    taken = snapshot.take(project, store)
    assert taken.dirty
    assert list(taken.submodules) == ["deps/other"]
    assert laid_down(store, taken.tree, tmp_path / "code")["deps/other/data.py"] == "changed\n"
    git(project / "deps" / "other", "commit", "-qam", "two")
    assert snapshot.take(project, store).dirty


def test_files_under_lfs_have_their_content(project: Path, store: Path, tmp_path: Path) -> None:
    (project / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (project / "weights.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n")
    off = ("-c", "filter.lfs.clean=", "-c", "filter.lfs.process=", "-c", "filter.lfs.required=false")
    git(project, *off, "add", "-A")
    git(project, *off, "commit", "-q", "-m", "pointer")
    (project / "weights.bin").write_text("real")  # as git-lfs would have it in the work tree
    files = laid_down(store, snapshot.take(project, store).tree, tmp_path / "code")
    assert files["weights.bin"] == "real"


@pytest.mark.parametrize("attributes", [".gitattributes", "data/.gitattributes", ".git/info/attributes"])
@pytest.mark.parametrize("name", ["lfs", "crypt"])
def test_files_that_a_filter_stores_otherwise_have_their_content(
    project: Path, store: Path, tmp_path: Path, attributes: str, name: str
) -> None:
    """Pointers of Git LFS wherever it is told of, encrypted files, notebooks without outputs."""
    contents = {"data/weights.bin": "real", 'data/"odd ü.bin': "x", "data/tool.bin": "#!/bin/sh\n"}
    (project / "data").mkdir()
    for path, text in contents.items():
        (project / path).write_text(text)
        (project / path).chmod(0o755 if "tool" in path else 0o644)
        os.utime(project / path, (1e9, 1e9))  # so that git does not look at it again
    (project / "data" / "link.bin").symlink_to("weights.bin")
    (project / attributes).write_text(f"*.bin filter={name} -text\n")
    clean = {"lfs": "echo version https://git-lfs.github.com/spec/v1", "crypt": "tr a-z A-Z"}[name]
    git(project, "config", f"filter.{name}.clean", clean)
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "filtered")
    assert git(project, "show", "HEAD:data/weights.bin") != "real"
    taken = snapshot.take(project, store)
    assert not taken.dirty
    files = laid_down(store, taken.tree, tmp_path / "code")
    assert {path: files[path] for path in contents} == contents
    assert (tmp_path / "code" / "data" / "link.bin").is_symlink()
    assert os.access(tmp_path / "code" / "data" / "tool.bin", os.X_OK)


@pytest.mark.parametrize("kind", ["in git", "without git", "an older store"])
def test_filters_of_all_the_user_s_repositories_leave_files_as_they_are(
    project: Path, store: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "attributes").write_text("*.ipynb filter=strip\n")
    (tmp_path / ".gitconfig").write_text(f"""\
[core]
    attributesFile = {tmp_path}/attributes
[filter "strip"]
    clean = tr a-z A-Z
    smudge = tr a-z b-za
""")
    directory = tmp_path / "plain" if kind == "without git" else project
    directory.mkdir(exist_ok=True)
    if kind == "an older store":
        snapshot.take(project, store)
        (store / "info" / "attributes").unlink()
    (directory / "x.ipynb").write_text("as it is")
    files = laid_down(store, snapshot.take(directory, store).tree, tmp_path / "code")
    assert files["x.ipynb"] == "as it is"


def test_a_large_file_is_refused_by_name_before_it_is_read(project: Path, store: Path) -> None:
    with (project / "data.tar").open("wb") as file:
        file.truncate(20 << 30)
    with pytest.raises(ExperimentError, match=r"data\.tar \(20\.0 GB\)") as refused:
        snapshot.take(project, store)
    assert ".spritzignore" in refused.value.hint


def test_too_much_in_all_is_refused(project: Path, store: Path) -> None:
    for number in range(4):
        (project / f"part{number}").write_bytes(b"x" * 1000)
    with pytest.raises(ExperimentError, match=r"3\.9 KB of changed and untracked files"):
        snapshot.take(project, store, tree_bytes_max=3000)


def test_two_first_snapshots_at_once_make_one_repository(project: Path, store: Path) -> None:
    found: list[snapshot.Snapshot] = []
    threads = [threading.Thread(target=lambda: found.append(snapshot.take(project, store))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len({taken.tree for taken in found}) == 1
    assert [path.name for path in store.parent.iterdir()] == ["snapshots.git"]


def test_variables_of_a_hook_do_not_lead_to_another_repository(
    project: Path, store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "none"))
    assert snapshot.take(project, store).branch == "main"


def test_the_home_of_runs_inside_the_tree_is_left_out(project: Path, tmp_path: Path) -> None:
    store = project / ".runs" / "snapshots.git"
    first = snapshot.take(project, store)
    assert snapshot.take(project, store).tree == first.tree
    assert sorted(laid_down(store, first.tree, tmp_path / "code")) == [".gitignore", "lib/net.py", "train.py"]


def test_the_users_home_is_no_project(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ExperimentError, match="is no project"):
        snapshot.take(tmp_path, store)


def test_too_many_new_files_are_refused_by_their_directory(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    for number in range(12):
        (project / "data" / str(number)).write_text("x")
    with pytest.raises(ExperimentError, match=r"12 changed and untracked files are too many .*data \(12\)"):
        snapshot.take(project, tmp_path / "store.git", files_max=10)
    (project / ".spritzignore").write_text("data/\n")
    assert snapshot.take(project, tmp_path / "store.git", files_max=10).tree


def test_a_sparse_file_of_20_gigabytes_is_refused_without_being_read(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    with (tmp_path / "project" / "large").open("w") as file:
        file.truncate(20 << 30)
    with pytest.raises(ExperimentError, match=r"large \(20.0 GB\)"):
        snapshot.take(tmp_path / "project", tmp_path / "store.git")
