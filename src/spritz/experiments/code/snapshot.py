"""Snapshots of the working tree, stored by content, so that later edits do not affect a job that runs from one.

A snapshot is a git tree in a bare repository of Spritz, with a commit that keeps it. The user's repository is only
read: its index is copied, so that only files that have changed since are read, and new objects go into Spritz's
repository. Objects of the user's repository are copied too, so a snapshot outlives it. For a directory without git, the
same is done from an empty index, which is kept for the next snapshot.

A snapshot contains tracked files, and untracked files that are not ignored; `.spritzignore` (patterns as in .gitignore)
excludes more. It contains the files of submodules, and the contents of files that a filter of git stores otherwise, as
Git LFS does by pointers.

Source: git-add(1), git-write-tree(1), git-pack-objects(1), gitattributes(5).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from spritz.experiments import imports
from spritz.experiments.code import outputs as persistent
from spritz.experiments.errors import ExperimentError
from spritz.experiments.home import file_time, locked

IGNORE_FILE = ".spritzignore"
#: File in a checkout that is complete; its time is that of the files.
MARK = ".git-snapshot-done"
#: Limits of a file and of a snapshot in bytes: a snapshot is for code. The caller may raise them.
FILE_BYTES_MAX = 100 << 20
TREE_BYTES_MAX = 1 << 30
#: Most changed and untracked files; each costs time at submission, and again in each job's checkout.
FILES_MAX = 20_000

#: Options with which git stores contents unchanged: no clean or smudge filter, no line endings, no hooks.
_PLAIN = (
    *("-c", "filter.lfs.clean=", "-c", "filter.lfs.smudge=", "-c", "filter.lfs.process="),
    *("-c", "filter.lfs.required=false", "-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "core.safecrlf=false", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false"),
    *("-c", "core.looseCompression=1", "-c", "gc.auto=0", "-c", "advice.addEmbeddedRepo=false"),
)
#: Paths in one command of git.
_WORDS_MAX = 1000
#: The file with patterns of what snapshots leave out
_OURS = "left-out"
#: A snapshot that is taken again later than this gets a new commit, so that its age says when it was last taken
_FRESH_SECONDS = 600.0
#: Seconds to wait for a cleaner: NFS keeps the lock of a machine that has failed.
_CLEANER_SECONDS = 60.0
#: Suffixes of what Python imports.
_MODULES = (".py", ".so")
#: Name of an object, which is no option; "" where there is none.
_OBJECT = re.compile(r"[0-9A-Za-z]*")
#: Name of the directory of a source's checkout.
_SOURCE = re.compile(r"\w[\w.-]*")
#: Attributes of all files in our repository: filters that the user has configured for all of theirs stay away.
_ATTRIBUTES = "* -filter\n"
#: Name of a filter that a pathspec can have.
_ATTRIBUTE = re.compile(r"[\w-]+", re.ASCII)
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class Snapshot:
    """The code of a run: a tree in the user's repository of snapshots, and where it came from."""

    #: git object name of the tree in our repository
    tree: str
    #: base directory of the tree's paths
    root: str
    #: the working directory, relative to `root`
    directory: str
    #: commit of the user's repository; "" without one
    commit: str = ""
    branch: str = ""
    remote: str = ""
    #: whether the files differ from those of `commit`, and of its submodules' commits
    dirty: bool = False
    #: whether no remote branch has `commit`, so that others cannot get it
    unpushed: bool = False
    #: paths of submodules -> their commits
    submodules: Mapping[str, str] = field(default_factory=dict)
    #: other working trees from which the run imports
    sources: tuple[Source, ...] = ()
    #: what the run may import that no snapshot has, each with the reason
    unfrozen: tuple[str, ...] = ()
    #: links that lead out of the project and are others in the checkout (`outward`): path -> where they lead
    outward: tuple[tuple[str, str], ...] = ()
    #: the interpreter's paths into these trees, as it has them and resolved, and the environment that it is of
    paths: tuple[tuple[str, str], ...] = ()
    prefix: str = ""
    #: the run uses the working tree, and this is how it was at submission; `tree` is "" if that is not known
    in_place: bool = False

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> Snapshot:
        """The snapshot of a record (`dataclasses.asdict`). Raises msgspec.ValidationError if it is none: the record may
        be damaged, or another user's, and its values are words of git and places of files.
        """
        known = {name: value for name, value in mapping.items() if name in cls.__dataclass_fields__}
        code = msgspec.convert(known, cls)
        objects = [code.tree, code.commit, *code.submodules.values()]
        for source in code.sources:
            objects += [source.tree, source.commit, *source.submodules.values()]
        for name in objects:
            if not _OBJECT.fullmatch(name):
                raise msgspec.ValidationError(f"code: {name!r} is no object of git")
        for source in code.sources:
            if not _SOURCE.fullmatch(source.name):
                raise msgspec.ValidationError(f"a source of its code cannot be named {source.name}")
        return code


@dataclass(frozen=True)
class Source:
    """A working tree beside the project that an editable installation, a .pth file or PYTHONPATH brings in."""

    root: str
    tree: str
    #: a directory of its own for its checkout
    name: str
    commit: str = ""
    dirty: bool = False
    #: paths of submodules -> their commits
    submodules: Mapping[str, str] = field(default_factory=dict)


def take(
    directory: Path,
    store: Path,
    *,
    file_bytes_max: int = FILE_BYTES_MAX,
    tree_bytes_max: int = TREE_BYTES_MAX,
    files_max: int = FILES_MAX,
    modules: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> Snapshot:
    """Store the tree around `directory` in the repository `store`. `modules`: directories from which Python imports,
    whose modules belong to it even where git ignores them (compiled and generated ones). `outputs`: paths relative to
    `directory` that are left out.

    Raises ExperimentError if git is missing or fails, and, naming them, for files that are too large.
    """
    if shutil.which("git") is None:
        raise ExperimentError("git: not found", hint="snapshots of code need git on PATH; --no-snapshot runs in place")
    directory = Path(os.path.realpath(directory))
    if "\n" in str(directory):  # git's lines could not be told apart
        raise ExperimentError(f"{str(directory)!r}: a project whose path has a line break cannot be recorded")
    _make_store(store)
    with _shared_lock(store):
        return _take(directory, store, _Limits(file_bytes_max, tree_bytes_max, files_max), modules, outputs)


def _take(
    directory: Path, store: Path, limits: _Limits, modules: Sequence[str], outputs: Sequence[str] = ()
) -> Snapshot:
    repository = _repository_of(directory)
    root = repository.root if repository is not None else None
    if root is None and directory in (Path("/"), Path(os.path.realpath(Path.home()))):
        raise ExperimentError(
            f"{directory} is no project: a snapshot would hold all of it",
            hint="run in the project's directory, or with --no-snapshot",
        )
    base = root if root is not None else directory
    excluded = persistent.patterns(str(base), directory, outputs)
    stored = _tree_of(base, store, limits, repository, modules, excluded)
    if root is None or repository is None:
        _keep(store, stored.tree, ())
        return Snapshot(stored.tree, str(directory), ".", submodules=stored.submodules)
    commit, at_commit, branch = _head_of(root)
    _keep(store, stored.tree, (repository.common / "objects",))
    return Snapshot(
        tree=stored.tree,
        root=str(root),
        directory=os.path.relpath(directory, root),
        commit=commit,
        branch=branch,
        remote=_git(root, "remote", "get-url", "origin", check=False).strip(),
        dirty=stored.committed != at_commit or stored.inside_changed,
        unpushed=bool(commit)
        and not (
            repository.has_remote_branches() and _git(root, "branch", "-r", "--contains", commit, check=False).strip()
        ),
        submodules=stored.submodules,
    )


@contextmanager
def _shared_lock(store: Path) -> Iterator[None]:
    """Keeps cleaners away where there are locks. Without one a snapshot is safe too (`cleaning`), so it is taken."""
    with ExitStack() as stack:
        with suppress(ExperimentError):
            stack.enter_context(locked(store / "lock", fcntl.LOCK_SH, wait_seconds=_CLEANER_SECONDS))
        yield


def keep_with(store: Path, tree: str, source: str) -> None:
    """Keep the tree of a source as long as the snapshot of the project that it belongs to."""
    commit = _git(store, "--git-dir", str(store), "rev-parse", f"refs/snapshots/{source}").strip()
    _git(store, "--git-dir", str(store), "update-ref", f"refs/sources/{tree}/{source}", commit)


def pack(store: Path, trees: Sequence[str], target: Path) -> None:
    """Write the objects of the trees below `target`, a directory like git's `objects`. Raises ExperimentError."""
    (target / "pack").mkdir(parents=True, exist_ok=True)
    words = ("pack-objects", "--revs", "-q", "--window=0", str(target / "pack" / "pack"))
    _Git(store, {}, ("--git-dir", str(store)))(*words, given="".join(f"{tree}\n" for tree in trees))


def receive(store: Path, code: Snapshot, places: Sequence[Path]) -> None:
    """Store the trees of another user's snapshot, from directories of objects. Raises ExperimentError if they lack any.

    git is not run in the other's repository, whose configuration may start programs; and the names of objects are
    computed again, so that none has another content than its name says.
    """
    _make_store(store)
    trees = [code.tree, *(source.tree for source in code.sources)]
    at = ("--git-dir", str(store))
    with _shared_lock(store):
        for tree in trees:
            if _run(store, (*at, "rev-list", "--objects", "--quiet", tree)).returncode:
                environment = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(map(str, places))}
                given = os.fsencode(f"{tree}\n")
                packed = _run(store, (*at, "pack-objects", "--revs", "-q", "--stdout"), environment, given)
                if packed.returncode:
                    raise _failed(("pack-objects",), packed)
                stored = _run(store, (*at, "index-pack", "--stdin", "--strict"), given=packed.stdout)
                if stored.returncode:
                    raise _failed(("index-pack",), stored)
            _keep(store, tree, ())
        for source in code.sources:
            keep_with(store, code.tree, source.tree)


def missing(store: Path, tree: str, paths: Sequence[str]) -> list[str]:
    """Those of the paths that the tree does not have. Raises ExperimentError."""
    present: set[str] = set()
    for begin in range(0, len(paths), _WORDS_MAX):
        words = ("ls-tree", "-z", "--name-only", tree, "--", *paths[begin : begin + _WORDS_MAX])
        present.update(_names(_git(store, "--git-dir", str(store), *words)))
    return [path for path in paths if path not in present and path != "."]


def files(store: Path, tree: str, paths: Sequence[str]) -> set[str]:
    """Those of the paths that are files of the tree. Raises ExperimentError."""
    if not paths:
        return set()
    entries = _names(_git(store, "--git-dir", str(store), "ls-tree", "-z", tree, "--", *paths))
    return {name for meta, _, name in (entry.partition("\t") for entry in entries) if " blob " in meta}


def mode(store: Path, tree: str, path: str) -> str:
    """Git's mode of a path of the tree, such as 100755; "" if the tree does not have it. Raises ExperimentError."""
    entries = _names(_git(store, "--git-dir", str(store), "ls-tree", "-z", tree, "--", path))
    return entries[0].partition(" ")[0] if entries else ""


def links(store: Path, tree: str) -> list[str]:
    """Paths of the tree's symbolic links. Raises ExperimentError."""
    entries = _names(_git(store, "--git-dir", str(store), "ls-tree", "-r", "-z", tree))
    return [entry.partition("\t")[2] for entry in entries if entry.startswith("120000")]


def ignored(root: Path, paths: Sequence[str]) -> list[str]:
    """What a snapshot leaves out of the paths below `root`, a directory as one path where all of it is left out.

    Raises ExperimentError.
    """
    with tempfile.TemporaryDirectory(prefix="index-") as scratch:
        environment = {}
        base: tuple[str, ...] = ()
        if _repository_of(root) is None:
            _git(Path(scratch), "init", "-q", "--bare", scratch)
            base = ("--git-dir", scratch, "--work-tree", str(root))
            environment["GIT_INDEX_FILE"] = str(Path(scratch) / "index")
        git = _Git(root, environment, base)
        if (exclude := git.exclude_file(Path(scratch), Path(scratch))) is not None:
            git.base = (*git.base, "-c", f"core.excludesFile={exclude}")
        found = _names(git("ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory", "--", *paths))
    return [name.rstrip("/") for name in found]


def names(store: Path, tree: str) -> list[str]:
    """Paths of the tree's files; empty if the tree is gone."""
    done = subprocess.run(
        ["git", f"--git-dir={store}", "ls-tree", "-r", "-z", "--name-only", tree], capture_output=True, check=False
    )
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def diff(store: Path, old: str, new: str, *options: str) -> str:
    """The changes between two trees, as `git diff` shows them."""
    return _git(store, "--git-dir", str(store), "diff", *options, old, new)


def checkout_lines(store: Path, tree: str, target: str, without: Sequence[str] = ()) -> str:
    """Shell commands that atomically check the tree out into `$target`, `without` some paths, or put back what
    `trimming` has removed.
    """
    excluding = ""
    if without:
        excluding = (
            f"frozen --literal-pathspecs ls-files -z -- {shlex.join(without)} |\n"
            '        frozen --work-tree="$made" update-index -z --force-remove --stdin &&\n        '
        )
    return f"""\
frozen() {{ GIT_INDEX_FILE=$index git --git-dir={_quoted(store)} {plain_words()} "$@"; }}
if [ ! -e {target}/{MARK} ]; then
    index=$(mktemp); made={target}.${{SLURM_JOB_ID:-0}}.$$; rm -rf "$made"; mkdir -p "$made"
    frozen read-tree {tree} && {excluding}frozen --work-tree="$made" checkout-index -a -q -f &&
        touch "$made/{MARK}" && mv -T "$made" {target} 2> /dev/null
    rm -rf "$index" "$made"
    [ -e {target}/{MARK} ] || {{ echo "spritz: cannot check out the snapshot {tree}" >&2; exit 66; }}
elif [ -e {target}-removed.part ] || [ -e {target}-removed.txt ]; then
    index=$(mktemp)
    (
        [ -e {target}-removed.gone ] && gone={target}-removed.gone || gone=/dev/null
        cd {target} && frozen read-tree {tree} &&
            frozen --work-tree=. update-index -z --force-remove --stdin < "$gone" &&
            frozen --work-tree=. ls-files -z -d > "$index.gone" &&
            frozen --work-tree=. checkout-index -q -z --stdin < "$index.gone" &&
            xargs -0 -r touch -c -h -r {MARK} -- < "$index.gone" &&
            rm -f {target}-removed.part {target}-removed.txt && rm -f {target}-removed.gone
    ) || {{ echo "spritz: cannot put back the files of the snapshot {tree}" >&2; exit 66; }}
    rm -f "$index" "$index.gone"
fi
"""


def plain_words() -> str:
    """Options of git, for the shell."""
    return " ".join(f"'{word}'" if "=" in word else word for word in _PLAIN)


def check_out(store: Path, tree: str, target: Path) -> None:
    """Lay the tree's files down in a new directory. Raises ExperimentError."""
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="index-") as scratch:
        git = _Git(store, {"GIT_INDEX_FILE": str(Path(scratch) / "index")}, ("--git-dir", str(store)))
        git("read-tree", tree)
        git("--work-tree", str(target), "checkout-index", "-a", "-q", "-f")


def adopt(store: Path, directory: Path, submodules: Mapping[str, str] = MappingProxyType({})) -> str:
    """Store all files of the directory as a snapshot; returns its tree. `submodules` (path -> commit) that have no
    files there were not checked out. Raises ExperimentError.
    """
    _make_store(store)
    with _shared_lock(store), tempfile.TemporaryDirectory(prefix="index-", dir=store) as scratch:
        base = ("--git-dir", str(store), "--work-tree", str(directory))
        git = _Git(directory, {"GIT_INDEX_FILE": str(Path(scratch) / "index")}, base)
        git("add", "-A", "-f", ".")
        for path, commit in submodules.items():
            if not git("ls-files", "-z", "--", path):
                git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}")
        tree = git("write-tree").strip()
        _keep(store, tree, ())
        return tree


def git_output(cwd: Path, *words: str, check: bool = False) -> str:
    """What git prints in a repository of the user's; "" for a failure, which with `check` is an ExperimentError."""
    return _git(cwd, *words, check=check)


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


@dataclass
class _Limits:
    file_bytes_max: int
    tree_bytes_max: int
    files_max: int
    seen: int = 0
    files: int = 0

    def need(self, root: Path, names: Iterable[str]) -> None:
        """Raises ExperimentError, naming the largest, if files that would be read are too large or too many."""
        names = list(names)
        self.files += len(names)
        if self.files > self.files_max:
            folders = Counter(name.rpartition("/")[0] for name in names).most_common(3)
            listed = ", ".join(f"{folder or '.'} ({count})" for folder, count in folders)
            raise ExperimentError(
                f"{self.files} changed and untracked files are too many for a snapshot of code (limit "
                f"{self.files_max}); most are in {listed}",
                hint=f"name data in .gitignore or {IGNORE_FILE}, or raise snapshot: max_files in spritz.yaml",
            )
        sizes = []
        for name in names:
            with suppress(OSError):
                status = os.lstat(root / name)
                sizes.append((status.st_size, name))
        large = sorted((item for item in sizes if item[0] > self.file_bytes_max), reverse=True)
        if large:
            listed = ", ".join(f"{name} ({_size(size)})" for size, name in large[:5])
            more = f" and {len(large) - 5} more" if len(large) > 5 else ""
            raise ExperimentError(
                f"too large for a snapshot of code (limit {_size(self.file_bytes_max)} a file): {listed}{more}",
                hint=f"name data and checkpoints in .gitignore or {IGNORE_FILE}, or raise snapshot: max_file in "
                "spritz.yaml",
            )
        self.seen += sum(size for size, _ in sizes)
        if self.seen > self.tree_bytes_max:
            largest = ", ".join(f"{name} ({_size(size)})" for size, name in sorted(sizes, reverse=True)[:5])
            raise ExperimentError(
                f"{_size(self.seen)} of changed and untracked files are too much for a snapshot of code (limit "
                f"{_size(self.tree_bytes_max)}); the largest: {largest}",
                hint=f"name data and checkpoints in .gitignore or {IGNORE_FILE}, or raise snapshot: max_total in "
                "spritz.yaml",
            )


def _size(count: int) -> str:
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def _make_store(store: Path) -> None:
    attributes = store / "info" / "attributes"
    if (store / "HEAD").exists():
        if not attributes.exists():  # as in one of an earlier release
            attributes.write_text(_ATTRIBUTES)
        return
    store.parent.mkdir(parents=True, exist_ok=True)
    # If two first runs start at the same time, each creates a repository, and one of them gets the name.
    repository = Path(tempfile.mkdtemp(prefix="snapshots-", dir=store.parent))
    _git(repository, "init", "-q", "--bare", str(repository))
    (repository / "info").mkdir(exist_ok=True)
    (repository / "info" / attributes.name).write_text(_ATTRIBUTES)
    try:
        repository.rename(store)
    except OSError:
        shutil.rmtree(repository, ignore_errors=True)
        if not (store / "HEAD").exists():
            raise


@dataclass(frozen=True)
class _Repository:
    """A work tree of the user."""

    root: Path
    #: the git directory with the objects: of linked work trees the one that they share
    common: Path
    index: Path

    def has_remote_branches(self) -> bool:
        if (self.common / "refs" / "remotes").exists() or (self.common / "reftable").exists():
            return True
        try:
            return b" refs/remotes/" in (self.common / "packed-refs").read_bytes()
        except OSError:
            return False


def _repository_of(directory: Path) -> _Repository | None:
    """The repository around the directory, by a single call of git, since each call costs some milliseconds."""
    done = _run(directory, ("rev-parse", "--show-toplevel", "--git-common-dir", "--git-path", "index"))
    if done.returncode == 0:
        root, common, index, *_ = (os.fsdecode(line) for line in done.stdout.split(b"\n"))
        return _Repository(Path(root), (directory / common).resolve(), (directory / index).resolve())
    if b"dubious ownership" in done.stderr:
        raise ExperimentError(
            f"git does not trust the repository around {directory}, which belongs to another user",
            hint=f"git config --global --add safe.directory {directory}",
        )
    return None


def _head_of(root: Path) -> tuple[str, str, str]:
    """(commit, its tree, branch); "" for missing ones."""
    lines = _git(root, "rev-parse", "HEAD", "HEAD^{tree}", "--symbolic-full-name", "HEAD", check=False).splitlines()
    if len(lines) < 2:
        return "", "", _git(root, "symbolic-ref", "-q", "--short", "HEAD", check=False).strip()
    branch = lines[2] if len(lines) == 3 else ""
    return lines[0], lines[1], branch.removeprefix("refs/heads/") if branch != "HEAD" else ""


@dataclass(frozen=True)
class _Stored:
    """A tree of our repository."""

    tree: str
    #: with the commits of submodules, what filters store and what is left out of snapshots, as a commit has it
    committed: str
    #: paths of submodules -> their commits
    submodules: Mapping[str, str]
    #: whether files of submodules differ from those of the commits that the index has
    inside_changed: bool


def _tree_of(
    root: Path, store: Path, limits: _Limits, repository: _Repository | None, modules: Sequence[str] = (),
    excluded: Sequence[str] = (),
) -> _Stored:  # fmt: skip
    """The tree of the files below `root`."""
    with tempfile.TemporaryDirectory(prefix="index-", dir=store) as scratch:
        index = Path(scratch) / "index"
        kept = None
        if repository is not None:
            own_index = repository.index
            environment = {
                "GIT_INDEX_FILE": str(index),
                "GIT_OBJECT_DIRECTORY": str(store / "objects"),
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(repository.common / "objects"),
            }
            base: tuple[str, ...] = ()
        else:
            kept = own_index = store / "indexes" / hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
            environment = {"GIT_INDEX_FILE": str(index)}
            base = ("--git-dir", str(store), "--work-tree", str(root))
        with suppress(FileNotFoundError):
            shutil.copy2(own_index, index)
        git = _Git(root, environment, base)
        ignored = git.exclude_file(Path(scratch), store.parent, excluded)
        if ignored is not None:
            git.base = (*git.base, "-c", f"core.excludesFile={ignored}")
        # What a repository tracks although git would ignore it belongs to the code; our own index says nothing.
        patterns: tuple[str, ...] = ("--exclude-standard",) if repository is None else ()
        if repository is not None and ignored is not None:
            patterns = ("-X", str(ignored.with_name(_OURS)))
        left_out = _names(git("ls-files", "-z", "-ci", *patterns)) if patterns else []
        if left_out:
            git("update-index", "-z", "--force-remove", "--stdin", given="".join(f"{name}\0" for name in left_out))
        if repository is not None:
            _look_at_all(git, root)
        new = _names(git("ls-files", "-z", "-o", "--exclude-standard"))
        changed = _names(git("diff-files", "-z", "--name-only", "--ignore-submodules=all"))
        limits.need(root, (name for name in {*new, *changed} if not name.endswith("/")))
        if new or changed:  # git would check all files again, even if 50,000 are unchanged
            git("add", "-A", "--ignore-errors", ".")
        _add_modules(git, root, limits, modules)
        if kept is not None:
            # Before the files of repositories inside are added, which git would not look at again.
            kept.parent.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # without files, git writes none
                shutil.copy2(index, Path(scratch) / "kept")
                os.replace(Path(scratch) / "kept", kept)
        tree = committed = git("write-tree").strip()
        if left_out and repository is not None and (head := _head_of(root)[1]):
            differing = _names(git("diff-index", "-z", "--cached", "--name-only", head))
            committed = tree if set(differing) - set(left_out) else head
        submodules, inside_changed = _add_submodules(git, root, store, limits)
        has_contents = repository is not None and _add_filtered(git, root, limits)
        if submodules or has_contents:
            tree = git("write-tree").strip()
        return _Stored(tree, committed, submodules, inside_changed)


def _look_at_all(git: _Git, root: Path) -> None:
    """Have git look at files that the user told it not to look at (git-update-index(1)), where they are there."""
    tagged = (line.split(" ", 1) for line in _names(git("ls-files", "-v", "-z")))
    hidden = [name for tag, name in tagged if (tag == "S" or tag.islower()) and os.path.lexists(root / name)]
    given = "".join(f"{name}\0" for name in hidden)
    for flag in ("--no-assume-unchanged", "--no-skip-worktree") if hidden else ():
        git("update-index", flag, "-z", "--stdin", given=given)


def _add_modules(git: _Git, root: Path, limits: _Limits, directories: Sequence[str]) -> None:
    """Add what Python imports although git ignores it: compiled and generated modules of packages, and all modules in
    the directories.
    """
    below = [os.path.relpath(path, root) for path in directories if imports.is_below(path, str(root))]
    found = _names(git("ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory"))
    names = []
    for name in found:
        folder = os.path.dirname(name)
        if name.endswith("/") and (root / name / "__init__.py").exists():  # a package that is ignored as a whole
            inside = (path for path in (root / name).rglob("*") if path.suffix in _MODULES and path.is_file())
            names += [os.path.relpath(path, root) for path in inside]
        elif name.endswith(_MODULES) and ((root / folder / "__init__.py").exists() or _is_in(folder, below)):
            names.append(name)
    if names:
        limits.need(root, names)
        git("update-index", "-z", "--add", "--stdin", given="".join(f"{name}\0" for name in names))


def _is_in(folder: str, directories: Iterable[str]) -> bool:
    return any(directory == "." or imports.is_below(folder, directory) for directory in directories)


def _add_submodules(git: _Git, root: Path, store: Path, limits: _Limits) -> tuple[dict[str, str], bool]:
    """Replace commits of submodules, and of repositories inside the tree, by their files. Returns their paths with
    their commits, and whether these files differ from those of the commits that the index had.
    """
    submodules: dict[str, str] = {}
    changed = False
    for line in _names(git("ls-files", "-s", "-z")):
        meta, _, name = line.partition("\t")
        mode, commit, _ = meta.split(" ")
        if mode != "160000":
            continue
        submodules[name] = commit
        inside = _repository_of(root / name) if (root / name / ".git").exists() else None
        if inside is None:
            continue  # not checked out: it has no files
        head, at_head, _ = _head_of(root / name)
        submodules[name] = head or commit
        inner = _tree_of(root / name, store, limits, inside)
        _keep(store, inner.tree, (inside.common / "objects",))
        submodules.update({f"{name}/{path}": other for path, other in inner.submodules.items()})
        changed = changed or inner.inside_changed or inner.committed != at_head or head != commit
        git("update-index", "--force-remove", "--", name)
        git("read-tree", f"--prefix={name}/", inner.tree)
    return submodules, changed


def _add_filtered(git: _Git, root: Path, limits: _Limits) -> bool:
    """Replace what clean filters have made of files in the index, as pointers of Git LFS or encrypted texts, by the
    files' contents, if the work tree has them; whether there are such files.
    """
    settings = _names(git("config", "-z", "--name-only", "--get-regexp", r"^filter\..*\.(clean|process)$"))
    filters = {setting.partition(".")[2].rpartition(".")[0] for setting in settings}
    real: dict[str, str] = {}
    for name in sorted(filter(_ATTRIBUTE.fullmatch, filters)):
        for line in _names(git("ls-files", "-s", "-z", "--", f":(attr:filter={name})")):
            meta, _, path = line.partition("\t")
            with suppress(OSError), open(root / path, "rb") as file:
                if meta.startswith("100") and not file.read(len(_LFS_POINTER)).startswith(_LFS_POINTER):
                    real[path] = meta[:6]
    if not real:
        return False
    limits.need(root, real)
    # A line for each path: those with a line break stay as they are stored.
    paths = [path for path in real if "\n" not in path]
    given = "".join(f"./{path}\n" for path in paths)
    blobs = git("hash-object", "-w", "--no-filters", "--stdin-paths", given=given).split()
    lines = (f"{real[path]} {blob}\t{path}\0" for path, blob in zip(paths, blobs, strict=True))
    git("update-index", "-z", "--index-info", given="".join(lines))
    return bool(paths)


def _keep(store: Path, tree: str, objects: Sequence[Path]) -> None:
    """A commit for the tree in our repository, and the objects that only the user's repository has."""
    reference = f"refs/snapshots/{tree}"
    at = ("--git-dir", str(store))
    form = "--format=%(objectname) %(committerdate:unix)"
    known = _git(store, *at, "for-each-ref", form, reference).split()
    now = file_time(store)
    if known and float(known[1]) > now - _FRESH_SECONDS:
        return
    ours = _git(store, *at, "for-each-ref", "--count=50", "--sort=-creatordate", form, "refs/snapshots").split()[::2]
    environment = {
        "GIT_AUTHOR_NAME": "spritz", "GIT_AUTHOR_EMAIL": "spritz@localhost",
        "GIT_COMMITTER_NAME": "spritz", "GIT_COMMITTER_EMAIL": "spritz@localhost",
        "GIT_COMMITTER_DATE": f"{int(now)} +0000",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(map(str, objects)),
    }  # fmt: skip
    git = _Git(store, environment, at)
    commit = git("commit-tree", "-m", "snapshot", tree).strip()
    if objects:
        # Our repository has the objects of earlier snapshots; the others go into a single pack.
        revisions = "\n".join([commit, *(f"^{revision}" for revision in {*ours, *known[:1]})]) + "\n"
        git("pack-objects", "--revs", "-q", "--window=0", str(store / "objects" / "pack" / "pack"), given=revisions)
    git("update-ref", reference, commit)


class _Git:
    """git with a separate index."""

    def __init__(self, cwd: Path, environment: Mapping[str, str], base: tuple[str, ...] = ()) -> None:
        self._cwd = cwd
        self._environment = environment
        self.base = base

    def __call__(self, *words: str, then: tuple[str, ...] = (), given: str = "") -> str:
        """The output of git; with `then`, of a second git command that reads it. Raises ExperimentError."""
        output = self._checked(words, os.fsencode(given))
        return os.fsdecode(self._checked(then, output) if then else output)

    def _checked(self, words: tuple[str, ...], given: bytes) -> bytes:
        done = _run(self._cwd, (*self.base, *words), self._environment, given)
        # `git add --ignore-errors` returns 1 for unreadable and vanished files: report them; all others are added.
        if done.returncode and not (words[:1] == ("add",) and done.returncode == 1):
            raise _failed(words, done)
        if done.returncode:
            unreadable = [
                line for line in os.fsdecode(done.stderr).splitlines() if line.startswith(("error: ", "fatal: "))
            ]
            raise ExperimentError(
                f"cannot snapshot {self._cwd}: {'; '.join(unreadable[:3]) or 'git add failed'}",
                hint=f"name files that are not code in .gitignore or {IGNORE_FILE}",
            )
        return done.stdout

    def exclude_file(self, scratch: Path, home: Path, more: Sequence[str] = ()) -> Path | None:
        """A file with the user's excludes, .spritzignore, `more` lines, and the home of runs if inside; None where only
        the user's excludes apply. The file `_OURS` beside it is without these.
        """
        ignore_file = self._cwd / IGNORE_FILE
        root, inside = os.path.realpath(self._cwd), os.path.realpath(home)
        lines = f"/{os.path.relpath(inside, root)}/\n" if inside.startswith(f"{root}{os.sep}") else ""
        lines += "".join(f"{line}\n" for line in more)
        if not ignore_file.exists() and not lines:
            return None
        users = os.fsdecode(_run(self._cwd, ("config", "--path", "core.excludesFile")).stdout).strip()
        default = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "git" / "ignore"
        texts = dict.fromkeys((Path(users) if users else default, ignore_file), b"")
        for path in texts:
            with suppress(OSError):
                texts[path] = path.read_bytes()
        (scratch / _OURS).write_bytes(b"\n".join([os.fsencode(lines), texts[ignore_file]]) + b"\n")
        target = scratch / "exclude"
        target.write_bytes(b"\n".join([os.fsencode(lines), *texts.values()]) + b"\n")
        return target


def in_store(store: Path, *words: str, given: str = "") -> str:
    """The output of a git command on the repository of snapshots, with `given` as its input. Raises ExperimentError."""
    return _Git(store, {}, ("--git-dir", str(store)))(*words, given=given)


def _git(cwd: Path, *words: str, check: bool = True) -> str:
    done = _run(cwd, words)
    if check and done.returncode:
        raise _failed(words, done)
    return os.fsdecode(done.stdout) if done.returncode == 0 else ""


def _run(
    cwd: Path, words: Sequence[str], environment: Mapping[str, str] | None = None, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    # Inside a hook or an alias of git, these variables are set for another repository.
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key == "GIT_SSH_COMMAND"
    }
    inherited |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", **(environment or {})}
    return subprocess.run(["git", *_PLAIN, *words], cwd=cwd, env=inherited, input=given, capture_output=True)


def _failed(words: Sequence[str], done: subprocess.CompletedProcess[bytes]) -> ExperimentError:
    name = next((word for word in words if not word.startswith("-")), "git")
    reason = os.fsdecode(done.stderr).strip() or f"exit status {done.returncode}"
    return ExperimentError(f"git {name}: {reason}")


def _names(output: str) -> list[str]:
    return [name for name in output.split("\0") if name]
