"""What `spritz status` says if no controller leads."""

from __future__ import annotations

import io
from argparse import Namespace

import pytest

from spritz.cli.call.context import Context
from spritz.cli.local import status
from spritz.client.errors import ClientError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ClientError.of("ESLURM_IN_STANDBY_MODE", "ctl1 stands by: the database is away"),
            "Down: Slurm backup controller in standby mode: ctl1 stands by: the database is away\n"
            "`spritz doctor` shows what is wrong.\n",
        ),
        (
            ClientError.of("ESLURM_CONFIG_NOT_FOUND", "no file"),
            "Start a cluster with `spritz up`; `spritz doctor` shows what is wrong.\n",
        ),
    ],
)
def test_standbys_that_cannot_lead_are_not_told_to_start_a_cluster(
    monkeypatch: pytest.MonkeyPatch, error: ClientError, said: str
) -> None:
    def locate(conf: str | None) -> None:
        raise error

    monkeypatch.setattr(status, "locate_controller", locate)
    out = io.StringIO()
    context = Context("spritz", {}, "/", io.StringIO(), out, io.StringIO())
    assert status.run(Namespace(dir=None, json=False), context) == 1
    assert out.getvalue().endswith(said)
