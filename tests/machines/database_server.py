"""PostgreSQL or MariaDB on a machine of its own, which others reach by its address."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.databases import Server, _prepare, _unprivileged_user
from tests.machines.lan import NETWORK, Machine


@contextmanager
def server_on(machine: Machine, kind: str = "postgresql", *, durable: bool = False) -> Iterator[Server]:
    """A server for as long as the block lasts; `address_of` is for other machines. `durable`: PostgreSQL syncs."""
    user = _unprivileged_user()
    assert user, "namespaces take root"
    directory = Path(tempfile.mkdtemp(prefix=f"spritz-{kind}-"))
    directory.chmod(0o700)
    entry = pwd.getpwnam(user)
    os.chown(directory, entry.pw_uid, entry.pw_gid)
    try:
        command = _prepare(kind, directory, user)
        if kind == "postgresql":
            command += ["-c", f"listen_addresses={machine.address}"]
            rules, rule = directory / "data/pg_hba.conf", f"host all all {NETWORK}.0/24 trust\n"
        else:
            command.remove("--skip-networking")
            command += [f"--bind-address={machine.address}", "--skip-name-resolve"]
            who = f"spritz@'{NETWORK}.%'"
            rules, rule = directory / "init.sql", f"CREATE USER {who};\nGRANT ALL ON *.* TO {who};\n"
        if durable:
            command = [word.replace("fsync=off", "fsync=on") for word in command]
        with rules.open("a") as file:
            file.write(rule)
        found = Server(kind, directory, machine.command(*command, user=user), "")
        try:
            found.wait()
            yield found
        finally:
            found.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def address_of(server: Server, machine: Machine) -> str:
    """A new database, as other machines reach it."""
    name = server.url().partition("@")[2].partition("/")[2].partition("?")[0]
    kind = "postgresql" if server.kind == "postgresql" else "mariadb+pymysql"
    return f"{kind}://spritz@{machine.address}/{name}"
