"""Databases for tests: SQLite in a file, and private servers of PostgreSQL and MariaDB under a directory of their own.

The servers run as a user without rights (they refuse root), listen on a Unix socket in a directory alone, and are ended
with the test session. `reason(kind)` says why a kind is not there.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KINDS = ("sqlite", "postgresql", "mariadb")

#: Users that may run a database server, where we are root.
_USERS = ("postgres", "mysql", "nobody")
_START_SECONDS = 60.0


def program(name: str) -> str | None:
    """A server's program, on PATH or where Debian keeps it."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *map(str, places)])
    return shutil.which(name, path=path)


def reason(kind: str) -> str:
    """Why databases of this kind cannot be had here; empty if they can."""
    needed = {"sqlite": (), "postgresql": ("initdb", "postgres"), "mariadb": ("mariadb-install-db", "mariadbd")}[kind]
    missing = [name for name in needed if program(name) is None]
    if missing:
        return f"{kind} is not installed: no {', '.join(missing)}"
    if needed and os.geteuid() == 0 and _unprivileged_user() is None:
        return f"{kind} does not run as root, and there is none of {', '.join(_USERS)}"
    return ""


def _unprivileged_user() -> str | None:
    """Who is to run servers: a user of the system if we are root; "" if we are ourselves."""
    if os.geteuid() != 0:
        return ""
    for name in _USERS:
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    return None


class Server:
    """A running server. `url(database)` makes a new, empty database and says where it is."""

    def __init__(self, kind: str, directory: Path, command: list[str], user: str) -> None:
        self.kind = kind
        self._directory = directory
        self._command = command
        self._user = user
        self._made = 0
        self._process = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with (self._directory / "log").open("ab") as log:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                **_as(self._user),  # type: ignore[call-overload]
            )
        return process

    def wait(self) -> None:
        """Return when it takes connections."""
        deadline = time.monotonic() + _START_SECONDS
        while not self.answers():
            assert time.monotonic() < deadline, f"{self.kind} does not answer"
            time.sleep(0.05)

    def stop(self) -> None:
        """End it and its connections; `start` goes on with its data."""
        # PostgreSQL's quick stop is SIGINT; MariaDB ends at SIGTERM.
        self._process.send_signal(signal.SIGINT if self.kind == "postgresql" else signal.SIGTERM)
        try:
            self._process.wait(100)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def start(self) -> None:
        """Run it again after `stop`; returns when it takes connections."""
        self._process = self._spawn()
        self.wait()

    @property
    def socket(self) -> str:
        """MariaDB's Unix socket."""
        return f"{self._directory}/socket"

    def url(self) -> str:
        """A new database."""
        from sqlalchemy import create_engine, text

        self._made += 1
        name = f"test{self._made}"
        engine = create_engine(self._url("postgres" if self.kind == "postgresql" else ""), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self._url(name)

    def _url(self, database: str) -> str:
        if self.kind == "postgresql":
            return f"postgresql+psycopg://spritz@/{database}?host={self._directory}"
        return f"mariadb+pymysql://spritz@localhost/{database}?unix_socket={self.socket}&charset=utf8mb4"

    def _listens(self) -> bool:
        path = next(iter(self._directory.glob(".s.PGSQL.*[0-9]" if self.kind == "postgresql" else "socket")), None)
        with socket.socket(socket.AF_UNIX) as probe:
            return path is not None and probe.connect_ex(str(path)) == 0

    def answers(self) -> bool:
        """Whether it takes connections."""
        from sqlalchemy import create_engine
        from sqlalchemy.exc import SQLAlchemyError

        if self._process.poll() is not None:
            log = (self._directory / "log").read_text(errors="replace")[-2000:]
            raise AssertionError(f"{self.kind} ended with {self._process.returncode}:\n{log}")
        if not self._listens():  # PyMySQL leaves a socket open when it is refused
            return False
        engine = create_engine(self._url("postgres" if self.kind == "postgresql" else ""))
        try:
            with engine.connect():
                return True
        except SQLAlchemyError:
            return False
        finally:
            engine.dispose()


@contextmanager
def server(kind: str, *, durable: bool = False, address: str = "") -> Iterator[Server]:
    """A server for as long as the block lasts.

    `durable`: PostgreSQL syncs what it commits, as a site's does. `address`: where it listens too, for everyone.
    """
    user = _unprivileged_user()
    assert user is not None, reason(kind)
    directory = Path(tempfile.mkdtemp(prefix=f"spritz-{kind}-"))
    directory.chmod(0o700)
    if user:
        entry = pwd.getpwnam(user)
        os.chown(directory, entry.pw_uid, entry.pw_gid)
    try:
        command = _prepare(kind, directory, user)
        if durable:
            command = [word.replace("fsync=off", "fsync=on") for word in command]
        if address:
            with (directory / "data/pg_hba.conf").open("a") as rights:
                rights.write("host all all all trust\n")
            command[command.index("-h") + 1] = address
        found = Server(kind, directory, command, user)
        try:
            found.wait()
            yield found
        finally:
            found.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _as(user: str) -> dict[str, object]:
    if not user:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _prepare(kind: str, directory: Path, user: str) -> list[str]:
    """Make an empty server's files; the command that runs it."""
    data = directory / "data"
    if kind == "postgresql":
        initdb, postgres = program("initdb"), program("postgres")
        assert initdb
        assert postgres
        _run([initdb, "-D", str(data), "-U", "spritz", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C"], user)
        return [postgres, "-D", str(data), "-k", str(directory), "-h", "", "-c", "fsync=off"]
    install, mariadbd = program("mariadb-install-db"), program("mariadbd")
    assert install
    assert mariadbd
    name = user or pwd.getpwuid(os.geteuid()).pw_name
    _run(
        [
            install,
            "--no-defaults",
            f"--datadir={data}",
            "--skip-test-db",
            "--auth-root-authentication-method=normal",
            f"--user={name}",
        ],
        user,
    )
    bootstrap = directory / "init.sql"
    bootstrap.write_text("CREATE USER spritz@localhost;\nGRANT ALL ON *.* TO spritz@localhost WITH GRANT OPTION;\n")
    if user:
        os.chown(bootstrap, pwd.getpwnam(user).pw_uid, -1)
    return [
        mariadbd,
        "--no-defaults",
        f"--datadir={data}",
        f"--socket={directory}/socket",
        "--skip-networking",
        f"--pid-file={directory}/pid",
        f"--init-file={bootstrap}",
        "--innodb-flush-log-at-trx-commit=2",
    ]


def _run(command: list[str], user: str) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        cwd="/",
        **_as(user),  # type: ignore[call-overload]
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
