"""sshare prints what a real one of release 22.05 printed of the same associations (`golden/sshare_*.txt`)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from spritz.cli import sshare
from spritz.cli.call.context import Context
from spritz.model.accounting.fairshare import FairShareRow, FairShares, ListFairShares
from spritz.model.errors import SpritzError
from spritz.model.limits.records import SHARES_PARENT
from spritz.notation.tres import parse

GOLDEN = Path(__file__).with_name("golden")
TRES = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages")


def rows_of(text: str) -> list[FairShareRow]:
    """The record's own rows; sshare leaves fields empty that it does not show."""
    found = []
    for line in text.splitlines():
        if not line.startswith("#|"):
            continue
        id_, account, user, partition, parent, shares, norm, usage, norm_usage, effective, factor, level, mins = (
            line.split("|")[1:]
        )
        found.append(
            FairShareRow(
                id=int(id_),
                account=account,
                user=user,
                partition=partition,
                parent=account if user else parent,
                shares=SHARES_PARENT if shares == "parent" else int(shares or 1),
                norm_shares=float(norm),
                usage=float(usage),
                norm_usage=float(norm_usage or 0),
                effective_usage=float(effective),
                factor=float(factor or 0),
                level=float(level or 0),
                minutes_limit=parse(mins),
            )
        )
    return found


class Controller:
    """Stands in for the connection: picks as the controller does."""

    def __init__(self, rows: list[FairShareRow], *, classic: bool) -> None:
        self._rows = rows
        self._classic = classic

    def call(self, request: ListFairShares, kind: type[FairShares]) -> FairShares:
        rows = [
            row
            for row in self._rows
            if (not request.accounts or row.account in request.accounts)
            and (not row.user or request.users is None or row.user in request.users)
        ]
        return FairShares(cluster="test", multifactor=True, classic=self._classic, tres=TRES, rows=rows)


def run(words: list[str], name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    @contextmanager
    def connected(*_: object, **__: object) -> Iterator[Controller]:
        rows = rows_of((GOLDEN / f"sshare_{name}.txt").read_text(encoding="utf-8"))
        yield Controller(rows, classic=name == "classic")

    monkeypatch.setattr(sshare, "connected", connected)
    monkeypatch.setenv("SLURM_CONF", str(GOLDEN / "sshare.conf"))
    monkeypatch.setattr("pwd.getpwuid", lambda uid: SimpleNamespace(pw_name="root"))
    out = io.StringIO()
    sshare.main(words, Context("sshare", {}, "/", io.StringIO(), out, out))
    return out.getvalue()


def recorded(name: str) -> list[tuple[str, str]]:
    """(command line, what it printed)"""
    text = (GOLDEN / f"sshare_{name}.txt").read_text(encoding="utf-8")
    _, *parts = text.split("$ sshare ")
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


@pytest.mark.parametrize(
    ("name", "line", "expected"), [(name, *case) for name in ("fair", "classic") for case in recorded(name)]
)
def test_as_recorded(name: str, line: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(line.split(), name, monkeypatch) == expected


def test_a_cluster_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where slurmdbd does not answer, no name but the own one is known."""
    with pytest.raises(SpritzError, match="There is a problem talking to the database: Connection refused"):
        run(["-M", "nosuch"], "fair", monkeypatch)


def test_json_has_every_association_with_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(run(["--json", "-a", "-A", "t3"], "fair", monkeypatch))["shares"]
    assert [one["name"] for one in found["shares"]] == ["t3", "v7", "v8", "v9"]
    account, user = found["shares"][:2]
    assert (account["type"], user["type"], user["parent"]) == (["ASSOCIATION"], ["USER"], "t3")
    assert user["fairshare"]["factor"] == {"set": True, "infinite": False, "number": 0.958333}
    assert account["tres"]["group_minutes"][:2] == [
        {"name": "cpu", "value": {"set": True, "infinite": False, "number": 1000}},
        {"name": "mem", "value": {"set": True, "infinite": False, "number": 20000}},
    ]


def test_level_without_usage_is_infinite_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(run(["--json", "-a", "-A", "f"], "fair", monkeypatch))["shares"]
    assert found["shares"][0]["fairshare"]["level"]["infinite"] is True


def test_headings_are_left_out_by_either_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    """22.05 takes -h, which its manual page does not name."""
    assert run(["-h", "-a"], "fair", monkeypatch) == run(["-n", "-a"], "fair", monkeypatch) != ""
