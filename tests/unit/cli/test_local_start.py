"""What `spritz up` says of a daemon that cannot start."""

from __future__ import annotations

import os

import pytest

from spritz.cli.local import daemons
from spritz.model.errors import SpritzError


@pytest.mark.parametrize(
    ("said", "helps"), [("No locks available. Set it to a file of a local disk.", True), ("Exit 1", False)]
)
def test_a_home_without_locks_or_sockets_is_no_place_for_a_cluster(said: str, helps: bool) -> None:
    with pytest.raises(SpritzError, match=said) as refused:
        daemons.start([["sh", "-c", f"echo 'slurmctld: fatal: {said}'; exit 1"]], dict(os.environ))
    assert ("--dir" in refused.value.hint) is helps
