"""Database engines: what is said when a driver is missing."""

from __future__ import annotations

import sys

import pytest

from spritz.accounting.engine import DatabaseError, open_engine, parse_url


@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [
        ("postgresql://slurm@localhost/acct", "psycopg", "spritz[postgresql]"),
        ("mariadb://slurm@localhost/acct", "pymysql", "spritz[mariadb]"),
        ("mysql://slurm@localhost/acct", "pymysql", "spritz[mariadb]"),
    ],
)
def test_a_missing_driver_names_the_extra_that_brings_it(
    url: str, driver: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(DatabaseError) as refused:
        open_engine(parse_url(url))
    assert extra in refused.value.hint
    assert not refused.value.temporary
