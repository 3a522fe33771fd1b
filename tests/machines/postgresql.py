"""PostgreSQL on a machine of its own, which others reach by its address."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.databases import Server, _prepare, _somebody
from tests.machines.lan import NETWORK, Machine


@contextmanager
def postgresql_on(machine: Machine, *, durable: bool = False) -> Iterator[Server]:
    """A server for as long as the block lasts; `address_of` is for other machines. `durable`: it syncs."""
    user = _somebody()
    assert user, "namespaces take root"
    directory = Path(tempfile.mkdtemp(prefix="spritz-postgresql-"))
    directory.chmod(0o700)
    entry = pwd.getpwnam(user)
    os.chown(directory, entry.pw_uid, entry.pw_gid)
    try:
        command = [*_prepare("postgresql", directory, user), "-c", f"listen_addresses={machine.address}"]
        if durable:
            command = [word.replace("fsync=off", "fsync=on") for word in command]
        with (directory / "data/pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {NETWORK}.0/24 trust\n")
        found = Server("postgresql", directory, machine.command(*command, user=user), "")
        try:
            found.wait()
            yield found
        finally:
            found.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def address_of(server: Server, machine: Machine) -> str:
    """A new database, as other machines reach it."""
    name = server.url().partition("@/")[2].partition("?")[0]
    return f"postgresql://spritz@{machine.address}/{name}"
