"""Commands where something is missing: processes, descriptors, a directory for the socket, a file system that takes
sockets. They do their work, or fail with a message; they never hang, and never print a traceback.

Source: docs/decisions/0168; getrlimit(2) RLIMIT_NPROC and RLIMIT_NOFILE.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.far_directory import SILENCE, FarDirectory
from tests.e2e.launched import PATIENCE_SECONDS, Launched, children_of

VERSION = b"slurm 25.05.0\n"
#: a user that only these tests have, created if they run as root: limits on processes do not hold for root
_USER = 54_377


@pytest.fixture(scope="module")
def readable_packages(packages: Path) -> Iterator[Path]:
    """The packages in a place where a user who is not root may be."""
    if os.geteuid() != 0:
        pytest.skip("needs root to be a user without other processes")
    base = Path(tempfile.mkdtemp(prefix="spritz-packages-"))
    base.chmod(0o755)
    shutil.copytree(packages, base / "site-packages")
    shutil.copytree(Path(msgspec.__file__).parent, base / "site-packages/msgspec")
    yield base / "site-packages"
    shutil.rmtree(base)


@pytest.fixture
def ordinary(launcher: Path, readable_packages: Path) -> Iterator[Launched]:
    """Commands of a user who is not root, in a place where that user may be."""
    python = next(filter(lambda path: _runs(path, readable_packages), (sys.executable, "/usr/bin/python3")), None)
    if python is None:
        pytest.skip("no Python that another user may execute and that our packages are made for")
    base = Path(tempfile.mkdtemp(prefix="spritz-scarce-"))
    base.chmod(0o755)
    shutil.copy2(launcher, base / "launcher")
    found = Launched(base, base / "launcher", readable_packages, python)
    found.log.touch()
    found.log.chmod(0o666)
    os.chown(found.runtime, _USER, _USER)
    yield found
    found.close()
    shutil.rmtree(base)


@pytest.fixture(scope="module")
def scarce_cluster() -> Iterator[Cluster]:
    """One for all tests that ask a controller."""
    found = Cluster()
    try:
        yield found.start()
    finally:
        found.close()


def _runs(python: str, packages: Path) -> bool:
    """Whether the user may execute it, and it takes compiled packages of ours."""
    script = f"import sys; sys.path.insert(0, {str(packages)!r}); import msgspec"
    try:
        done = subprocess.run([python, "-c", script], capture_output=True, preexec_fn=become(), cwd="/")
    except OSError:
        return False
    return done.returncode == 0


def call(launched: Launched, *argv: str, prepare: Callable[[], None], **env: str) -> subprocess.CompletedProcess[bytes]:
    """One command, with something done in its process beforehand."""
    return subprocess.run(
        argv,
        executable=launched.directory / argv[0],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        cwd="/",
        env=launched.environment(**env),
        preexec_fn=prepare,
    )


def become(processes: int | None = None) -> Callable[[], None]:
    """Become the user, with this limit on processes."""

    def change() -> None:
        os.setgroups([])
        os.setgid(_USER)
        os.setuid(_USER)
        if processes is not None:
            resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))

    return change


def test_no_process_to_start_a_server_with(ordinary: Launched) -> None:
    """The launcher becomes Python itself; that it cannot fork is no reason not to."""
    done = call(ordinary, "squeue", "--version", prepare=become(1))
    assert (done.returncode, done.stdout, done.stderr) == (0, VERSION, b"")
    assert ordinary.servers() == []


def test_a_caller_without_processes_is_served(ordinary: Launched) -> None:
    """The limit goes along to the server's child, which needs no further process."""

    def serves() -> bool:
        before = len(ordinary.direct_calls())
        done = call(ordinary, "squeue", "--version", prepare=become())
        assert done.stdout == VERSION
        return len(ordinary.direct_calls()) == before

    until(serves, "a server serves")
    before = ordinary.direct_calls()
    for _ in range(4):
        done = call(ordinary, "squeue", "--version", prepare=become(1))
        assert (done.returncode, done.stdout, done.stderr) == (0, VERSION, b"")
    assert ordinary.direct_calls() == before


def test_no_process_for_a_child_where_all_are_at_work(ordinary: Launched) -> None:
    """Calls are sent away, and run by themselves: none waits for a child that there cannot be."""
    call(ordinary, "squeue", "--version", prepare=become())
    until(ordinary.servers, "a server is there")
    until(lambda: len(children_of(ordinary.servers()[-1])) > 1, "it has its children")
    server = ordinary.servers()[-1]
    subprocess.run(["prlimit", "--pid", str(server), "--nproc=1:1"], preexec_fn=become(), check=True)
    working = []
    try:
        for _ in children_of(server):
            script = subprocess.Popen(
                [ordinary.directory / "sbatch"],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=ordinary.environment(),
                preexec_fn=become(),
            )
            working.append(script)
        before = len(ordinary.direct_calls())
        for _ in range(4):
            assert call(ordinary, "squeue", "--version", prepare=become()).stdout == VERSION
        assert len(ordinary.direct_calls()) == before + 4
    finally:
        for script in working:
            script.communicate()


@pytest.mark.parametrize("limit", [4, 5, 12, *(pytest.param(limit, marks=pytest.mark.slow) for limit in (6, 8))])
@pytest.mark.parametrize("warm", [True, False], ids=["served", "direct"])
def test_few_descriptors(launched: Launched, warm: bool, limit: int) -> None:
    """With 4, one more than the standard streams, Python itself cannot start: it says so, or some of its modules do."""
    if warm:
        launched.warm()
    done = call(
        launched,
        "squeue",
        "--version",
        prepare=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        **({} if warm else {"SPRITZ_NO_SERVER": "1"}),
    )
    if done.returncode:
        assert done.stdout == b""
        assert b"Too many open files" in done.stderr or b"Fatal Python error" in done.stderr, done.stderr
        assert limit == 4 or b"Traceback" not in done.stderr
        assert limit < 12
    else:
        assert (done.stdout, done.stderr) == (VERSION, b"")


@pytest.mark.parametrize("limit", [5, 12, *(pytest.param(limit, marks=pytest.mark.slow) for limit in (6, 7, 8, 9, 10))])
def test_few_descriptors_where_the_controller_is_asked(scarce_cluster: Cluster, launched: Launched, limit: int) -> None:
    """Either it is done, or one line says why not."""
    launched.warm()
    for words in (
        ["squeue"],
        ["sinfo"],
        ["sbatch", "-o", "/dev/null", "--wrap", "true"],
        ["srun", "true"],
        ["scontrol", "show", "job"],
        ["scancel", "1"],
    ):
        done = call(
            launched,
            *words,
            prepare=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
            SLURM_CONF=str(scarce_cluster.conf),
        )
        assert b"Traceback" not in done.stderr, (words, done.stderr)
        assert done.returncode == 0 or done.stderr, words


def test_no_runtime_directory(launched: Launched) -> None:
    """One that is not there is as none; what is then used is in /tmp."""
    done = launched.run("squeue", "--version", XDG_RUNTIME_DIR=str(launched.runtime / "nosuch"), SPRITZ_NO_SERVER="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, VERSION, b"")
    launched.runtime.rmdir()
    launched.runtime.write_text("a file")
    done = launched.run("squeue", "--version", XDG_RUNTIME_DIR=f"{launched.runtime}/x", SPRITZ_NO_SERVER="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, VERSION, b"")


def test_a_runtime_directory_that_is_read_only(ordinary: Launched) -> None:
    ordinary.runtime.chmod(0o500)
    for _ in range(2):
        done = call(ordinary, "squeue", "--version", prepare=become())
        assert (done.returncode, done.stdout, done.stderr) == (0, VERSION, b"")
    assert ordinary.servers() == []
    assert ordinary.direct_calls() == ["squeue", "squeue"]


def test_a_home_that_is_read_only_or_missing(ordinary: Launched) -> None:
    """Nothing is written there; looking for the user's own cluster finds none, and says so."""
    home = ordinary.runtime.parent / "home"
    home.mkdir(mode=0o555)
    for place in (home, home / "nosuch"):
        done = call(ordinary, "squeue", "--version", prepare=become(), HOME=str(place))
        assert (done.returncode, done.stdout, done.stderr) == (0, VERSION, b"")
    assert list(home.iterdir()) == []


def test_a_file_system_that_takes_no_sockets(launched: Launched) -> None:
    """As over NFS: the server cannot listen and ends; calls do their work, and do not start one each."""
    launched.socket.parent.mkdir(mode=0o700)
    # A directory in the place of the name that it binds first: that fails as well, on any file system.
    (launched.socket.with_name(f"{launched.socket.name}.new") / "x").mkdir(parents=True)
    for _ in range(5):
        done = launched.run("squeue", "--version")
        assert (done.returncode, done.stdout, done.stderr) == (0, VERSION, b"")
    assert launched.direct_calls() == ["squeue"] * 5
    assert not launched.socket.exists()


@pytest.mark.parametrize("answer", [SILENCE, errno.ESTALE], ids=["none", "stale"])
def test_a_working_directory_on_a_file_server_that_is_gone(impatient: Launched, tmp_path: Path, answer: int) -> None:
    """The launcher and the server's parent process never look at it."""
    impatient.warm()
    directory = tmp_path / "far"
    directory.mkdir()
    try:
        far = FarDirectory(directory)
    except OSError as error:
        pytest.skip(f"FUSE file systems cannot be mounted here: {error}")
    try:
        process = subprocess.Popen(
            ["sh", "-c", 'cd "$1" && echo here && read go && exec squeue --version', "sh", directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env=impatient.environment(),
        )
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 10) == b"here\n"
        far.answer_chdir(answer)
        assert process.communicate(b"go\n", timeout=PATIENCE_SECONDS)[0] == VERSION
    finally:
        far.close()
    assert process.returncode == 0
    assert impatient.direct_calls()[-1] == "squeue"
