"""Users that tests make for themselves, where they run as root, and requests made as one of them."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from msgspec import Struct
from msgspec.msgpack import Decoder

from spritz.client.command.sync import connect_address
from spritz.client.errors import ClientError
from spritz.client.locate import controller_socket_name
from tests.e2e.cluster import until

T = TypeVar("T")


class Addressed(Protocol):
    """What has a controller: its cluster's name, its port, and the uids that it may run as."""

    name: str
    port: int

    @property
    def owners(self) -> frozenset[int]: ...


class Refused(Exception):
    """What the daemon, or the client before it, said no with."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Person(Struct, frozen=True, kw_only=True):
    """A user of this machine with a home of its own. `groups` are supplementary ones too."""

    name: str
    uid: int
    gid: int
    home: Path
    groups: tuple[int, ...]

    def run(
        self, *command: str, env: dict[str, str] | None = None, **options: object
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as this user, in their home."""
        given = {"HOME": str(self.home), "PATH": os.environ["PATH"], "USER": self.name, "LOGNAME": self.name}
        return subprocess.run(  # type: ignore[call-overload, no-any-return]  # options by name
            command,
            env=given | (env or {}),
            user=self.uid,
            group=self.gid,
            extra_groups=self.groups,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            **({"timeout": 100.0} | options),
        )

    def ask(self, cluster: Addressed, request: Struct, reply: type[T]) -> T:
        """One request to the controller as this user. Raises Refused."""
        receiving, sending = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups(self.groups)
                os.setgid(self.gid)
                os.setuid(self.uid)
                answer = _answer(cluster, request)
            except BaseException as error:
                answer = b"-" + repr(error).encode() + b"\0"
            finally:
                os.write(sending, answer)
                os._exit(0)
        os.close(sending)
        answer = b""
        while piece := os.read(receiving, 65536):
            answer += piece
        os.close(receiving)
        os.waitpid(child, 0)
        if answer[:1] == b"+":
            return Decoder(reply).decode(answer[1:])
        code, _, message = answer[1:].decode().partition("\0")
        raise Refused(code, message)


def _answer(cluster: Addressed, request: Struct) -> bytes:
    try:
        address = controller_socket_name(cluster.name, cluster.port)
        with connect_address(address, timeout=100, owners=cluster.owners) as connection:
            return b"+" + connection.call_raw(request)
    except ClientError as error:
        return b"-" + f"{error.code}\0{error.message}".encode()


@contextmanager
def made_people(*nicknames: str) -> Iterator[dict[str, Person]]:
    """Users named `spz<pid><nickname>`, and a group of the first two (`spz<pid>both`); all are deleted afterwards.

    Their homes are below the run's directory, by which their processes are found (tests/watchdog.py).
    """
    prefix = f"spz{os.getpid()}"
    names = {nickname: f"{prefix}{nickname}" for nickname in nicknames}
    shared = f"{prefix}both"
    root = Path(tempfile.mkdtemp(prefix="homes-"))
    root.chmod(0o755)
    try:
        _change("groupadd", shared)
        for index, name in enumerate(names.values()):
            more = ["-G", shared] if index < 2 else []
            _change("useradd", "-U", "-d", str(root / name), "-s", "/bin/sh", *more, name)
        people = {nickname: _person(name) for nickname, name in names.items()}
        for person in people.values():
            person.home.mkdir(mode=0o700)
            os.chown(person.home, person.uid, person.gid)
        yield people
    finally:
        for name in names.values():
            subprocess.run(["userdel", name], capture_output=True, check=False)
        subprocess.run(["groupdel", shared], capture_output=True, check=False)
        shutil.rmtree(root, ignore_errors=True)


def interpreter(person: Person) -> tuple[list[str], dict[str, str]]:
    """A Python that this user may run, and the environment in which it finds Spritz and what Spritz needs.

    Ours, or this system's of the same version; the test is skipped if there is none (root's own home is closed).
    """
    import spritz

    paths = [str(Path(spritz.__file__).parents[1]), *(path for path in sys.path if path.endswith("site-packages"))]
    environment = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, system):
        try:
            if person.run(candidate, "-c", "import spritz, msgspec, numpy", env=environment).returncode == 0:
                return [candidate], environment
        except (PermissionError, FileNotFoundError):
            continue
    pytest.skip("users cannot run this Python")


def _change(*command: str) -> None:
    """Another run of the tests may hold the lock of the databases for a moment."""

    def done() -> bool:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode in (0, 1, 10), result.stderr
        return result.returncode == 0

    until(done, f"{' '.join(command)} gets the lock of the user database")


def _person(name: str) -> Person:
    entry = pwd.getpwnam(name)
    groups = tuple(os.getgrouplist(name, entry.pw_gid))
    assert grp.getgrgid(entry.pw_gid).gr_name == name
    return Person(name=name, uid=entry.pw_uid, gid=entry.pw_gid, home=Path(entry.pw_dir), groups=groups)
