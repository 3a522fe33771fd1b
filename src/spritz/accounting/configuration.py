"""slurmdbd.conf: its path, the check of its permissions, and the database's URL.

Source: slurmdbd.conf(5).
"""

from __future__ import annotations

import os
import stat
import subprocess
from typing import TYPE_CHECKING

from spritz.client.locate import candidates
from spritz.model.errors import SpritzError
from spritz.runtime.privilege import is_private

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from spritz.config.loaded import DbdSettings

_USUAL_PORTS = {"mysql": 3306, "postgresql": 5432}
#: where distributions put the socket of MySQL and MariaDB
_MYSQL_SOCKETS = ("/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock")

#: Seconds that StoragePassScript may take.
_SCRIPT_SECONDS = 30


def find_slurmdbd_conf() -> str:
    """The path of slurmdbd.conf: in the directory of the slurm.conf in force. Raises SpritzError."""
    paths = [os.path.join(os.path.dirname(os.path.abspath(path)), "slurmdbd.conf") for path in candidates()]
    for path in paths:
        if os.path.exists(path):
            return path
    raise SpritzError(
        "Could not establish a configuration source",
        code="ESLURM_CONFIG_NOT_FOUND",
        hint=f"no slurmdbd.conf at {', '.join(paths)}",
    )


def check_permissions(path: str, slurm_uid: int) -> None:
    """Refuse a file that other users can read or write: it may hold a password. Raises SpritzError."""
    status = os.stat(path)
    if status.st_uid not in (slurm_uid, 0):
        raise SpritzError(f"slurmdbd.conf not owned by SlurmUser {status.st_uid}!={slurm_uid}")
    mode = stat.S_IMODE(status.st_mode)
    if not is_private(status):
        raise SpritzError(
            f"slurmdbd.conf file {path} should be 600 is {mode:o} accessible for group or others",
            hint=f"chmod 600 {path}",
        )


def database_url(settings: DbdSettings) -> URL:
    """The URL that the Storage keys make. Raises SpritzError."""
    # Slow to import: the daemon must have its pid file before.
    from sqlalchemy.engine import URL

    from spritz.accounting.engine import parse_url

    given = settings.text("StorageUrl")
    if given:
        url = parse_url(given)
        return url if url.password or url.get_backend_name() == "sqlite" else url.set(password=_password(settings))
    kind = settings.text("StorageType").removeprefix("accounting_storage/")
    location = settings.text("StorageLoc") or "slurm_acct_db"
    if kind == "sqlite":
        if not location.startswith("/"):
            raise SpritzError(
                f"StorageLoc={location}: expected the path of an SQLite file", hint="StorageLoc=/var/lib/slurm/acct.db"
            )
        return URL.create("sqlite", database=location)
    host, socket = settings.text("StorageHost"), _socket(settings, kind)
    return parse_url(
        URL.create(
            "mariadb" if kind == "mysql" else kind,
            username=settings.text("StorageUser"),
            password=_password(settings),
            host=None if socket and kind == "postgresql" else "localhost" if socket else host,
            port=None if socket else settings.integer("StoragePort") or _USUAL_PORTS[kind],
            database=location,
            query=_encryption(settings, kind) | socket,
        ).render_as_string(hide_password=False)
    )


def _socket(settings: DbdSettings, kind: str) -> dict[str, str]:
    """The URL's options for the Unix socket that StorageHost means; empty for TCP.

    A path is a socket (PostgreSQL: its directory). For localhost, MySQL's library, which Slurm uses, takes its socket.
    """
    host = settings.text("StorageHost")
    if kind == "postgresql":
        if not host.startswith("/"):
            return {}
        port = settings.integer("StoragePort")
        return {"host": host} | ({"port": str(port)} if port else {})
    if host.startswith("/"):
        return {"unix_socket": host}
    paths = (os.environ.get("MYSQL_UNIX_PORT", ""), *_MYSQL_SOCKETS) if host == "localhost" else ()
    existing = next((path for path in paths if path and os.path.exists(path)), "")
    return {"unix_socket": existing} if existing else {}


def _password(settings: DbdSettings) -> str | None:
    script = settings.text("StoragePassScript")
    if not script:
        return settings.text("StoragePass") or None
    try:
        done = subprocess.run(
            [script], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SCRIPT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SpritzError(f"StoragePassScript {script} failed: {error}") from error
    return done.stdout.strip() or None


def _encryption(settings: DbdSettings, kind: str) -> dict[str, str]:
    """The URL's options for StorageParameters=SSL_CA=…,SSL_CERT=…,SSL_KEY=…"""
    names = (
        {"ssl_ca": "ssl_ca", "ssl_cert": "ssl_cert", "ssl_key": "ssl_key"}
        if kind == "mysql"
        else {"ssl_ca": "sslrootcert", "ssl_cert": "sslcert", "ssl_key": "sslkey"}
    )
    values = {}
    for word in settings.words("StorageParameters"):
        name, _, value = word.partition("=")
        if name.lower() not in names:
            raise SpritzError(f"StorageParameters={name} is not supported", hint=f"known: {', '.join(names).upper()}")
        values[names[name.lower()]] = value
    return values
