"""slurmdbd.conf: the database that it means, and what is wrong with it. Source: slurmdbd.conf(5)."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spritz.accounting.configuration import check_permissions, database_url
from spritz.accounting.daemon import _configure
from spritz.accounting.engine import DatabaseError, describe, parse_url
from spritz.config.load import load_slurmdbd
from spritz.model.errors import SpritzError


def url(tmp_path: Path, text: str) -> str:
    path = tmp_path / "slurmdbd.conf"
    path.write_text(text)
    return database_url(load_slurmdbd(str(path))).render_as_string(hide_password=False)


def test_slurms_own_keys_mean_what_they_mean_to_slurm(tmp_path: Path) -> None:
    text = "StorageType=accounting_storage/mysql\nStorageHost=db\nStorageUser=slurm\nStoragePass=a@b/c\n"
    assert url(tmp_path, text) == "mariadb+pymysql://slurm:a%40b%2Fc@db:3306/slurm_acct_db?charset=utf8mb4"
    assert "@db:3307/acct?" in url(tmp_path, text + "StoragePort=3307\nStorageLoc=acct\n")
    secured = url(tmp_path, text + "StorageParameters=SSL_CA=/etc/ca.pem\n")
    assert "ssl_ca=%2Fetc%2Fca.pem" in secured or "ssl_ca=/etc/ca.pem" in secured


def test_a_path_is_a_socket_and_localhost_is_mysqls_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mysql(1): for localhost the Unix socket is used, MYSQL_UNIX_PORT or where it usually is."""
    socket, text = tmp_path / "mysqld.sock", "StorageType=accounting_storage/mysql\nStorageUser=s\n"
    monkeypatch.setattr("spritz.accounting.configuration._MYSQL_SOCKETS", ())
    monkeypatch.setenv("MYSQL_UNIX_PORT", str(socket))
    local = parse_url(url(tmp_path, text + "StorageHost=localhost\n"))
    assert (local.host, local.port, local.query.get("unix_socket")) == ("localhost", 3306, None), "there is none"
    socket.touch()
    for more in ("", "StorageHost=localhost\n", f"StorageHost={socket}\n"):
        found = parse_url(url(tmp_path, text + more))
        assert (found.port, found.query["unix_socket"]) == (None, str(socket))
    assert parse_url(url(tmp_path, text + "StorageHost=db\n")).host == "db"
    found = parse_url(url(tmp_path, "StorageType=postgresql\nStorageHost=/run/postgresql\nStoragePort=5433\n"))
    assert (found.host, dict(found.query)) == (None, {"host": "/run/postgresql", "port": "5433"})


def test_postgresql_sqlite_and_urls(tmp_path: Path) -> None:
    assert url(tmp_path, "StorageType=postgresql\nStorageUser=s\n") == (
        "postgresql+psycopg://s@localhost:5432/slurm_acct_db"
    )
    assert url(tmp_path, "StorageType=sqlite\nStorageLoc=/var/acct.db\n") == "sqlite:////var/acct.db"
    assert url(tmp_path, 'StorageUrl="postgresql://u@h/d"\nStoragePass=x\n') == "postgresql+psycopg://u:x@h/d"
    with pytest.raises(SpritzError, match="path of an SQLite file"):
        url(tmp_path, "StorageType=sqlite\nStorageLoc=acct.db\n")
    with pytest.raises(DatabaseError, match="no support for oracle"):
        url(tmp_path, "StorageUrl=oracle://h/d\n")
    with pytest.raises(SpritzError, match="StorageParameters=SSL_FOO is not supported"):
        url(tmp_path, "StorageType=postgresql\nStorageParameters=SSL_FOO=1\n")


def test_a_password_comes_from_a_program_too_and_is_never_shown(tmp_path: Path) -> None:
    script = tmp_path / "secret.sh"
    script.write_text("#!/bin/sh\necho hush\n")
    script.chmod(0o755)
    text = f"StorageType=postgresql\nStorageUser=s\nStoragePassScript={script}\n"
    assert ":hush@" in url(tmp_path, text)
    assert "hush" not in describe(parse_url("postgresql://s:hush@h/d"))
    script.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(SpritzError, match=r"StoragePassScript .* failed"):
        url(tmp_path, text)


def test_every_mistake_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(SpritzError) as caught:
        url(tmp_path, "DbdPort=x\n\nStorageTyp=mysql\nPurgeJobAfter=12years\nDebugLevel=loud\n")
    for words in (
        "conf:1: DbdPort=x",
        'conf:3: Unknown key "StorageTyp"',
        "conf:4: PurgeJobAfter",
        "conf:5: DebugLevel",
    ):
        assert words in caught.value.message


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "slurmdbd.conf"
    path.write_text("")
    path.chmod(0o600)
    check_permissions(str(path), os.getuid())
    path.chmod(0o640)
    with pytest.raises(SpritzError, match="should be 600 is 640"):
        check_permissions(str(path), os.getuid())


def test_keys_that_hold_for_accounts_are_taken_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "slurmdbd.conf"
    path.write_text("AllowNoDefAcct=yes\nAllResourcesAbsolute=yes\nDefaultQOS=Low,high\nMessageTimeout=33\n")
    api: Any = SimpleNamespace(
        admin=SimpleNamespace(), callers=SimpleNamespace(), debug_flags=SimpleNamespace(put=lambda flags: None)
    )
    _configure(api, load_slurmdbd(str(path)))
    assert set(api.book_options) == {"AllowNoDefAcct", "AllResourcesAbsolute"}
    assert (api.default_qos, api.message_timeout) == ("low,high", 33.0)
    path.write_text("")
    _configure(api, load_slurmdbd(str(path)))
    assert (api.book_options, api.default_qos) == ((), "normal")
