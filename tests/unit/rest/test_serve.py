"""What slurmrestd checks before it serves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spritz.model.errors import SpritzError
from spritz.rest import main
from spritz.rest.serve import _leaves_machine


@pytest.mark.parametrize(
    ("address", "leaves"),
    [
        ("unix:/run/slurmrestd.socket", False),
        ("127.0.0.1:6820", False),
        ("127.1.2.3:6820", False),
        ("localhost:6820", False),
        ("[::1]:6820", False),
        (":6820", True),
        ("0.0.0.0:6820", True),
        ("[::]:6820", True),
        ("head:6820", True),
        ("10.0.0.1:6820", True),
    ],
)
def test_addresses_of_the_network_are_told_from_those_of_the_machine(address: str, leaves: bool) -> None:
    assert _leaves_machine(address) is leaves


def test_a_user_who_cannot_read_python_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    main._check_readable()
    python = str(Path(os.__file__).parent)
    monkeypatch.setattr(os, "access", lambda path, mode: path != python)
    with pytest.raises(SpritzError, match=f"cannot read {python} as user") as caught:
        main._check_readable()
    assert "below /opt" in caught.value.hint
