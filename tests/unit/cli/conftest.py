"""A served site for tests of the looking and steering commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.site import Site, open_site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Four nodes of eight CPUs without jobs; commands find it."""
    for name in ("SQUEUE_FORMAT", "SINFO_FORMAT", "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN"):
        monkeypatch.delenv(name, raising=False)
    with open_site(tmp_path) as site:
        monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
        yield site
        site.world.check()
