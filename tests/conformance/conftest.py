"""The cluster that conformance cases run on: one that is running already, or our own, started once.

`CONFORMANCE_BIN` (directory of commands) and `CONFORMANCE_CONF` (slurm.conf) name a running cluster, Slurm's or ours.
Without them the commands beside this Python are used, with daemons started under a scratch directory.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from .cluster import Cluster, connect, started

COMMANDS = ("salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster as slurm.conf in this directory describes it."""
    if "CONFORMANCE_BIN" in os.environ:
        yield connect(Path(os.environ["CONFORMANCE_BIN"]), Path(os.environ["CONFORMANCE_CONF"]))
        return
    binaries = Path(sys.executable).parent
    missing = [name for name in COMMANDS if find_spec(f"spritz.cli.{name}") is None or not (binaries / name).exists()]
    if missing:
        pytest.skip(f"not built or not installed beside this Python: {', '.join(missing)}")
    # Not tmp_path: other users' jobs have to reach it.
    directory = Path(tempfile.mkdtemp(prefix="conformance-"))
    directory.chmod(0o755)
    try:
        with started(binaries, directory) as cluster:
            yield cluster
    finally:
        shutil.rmtree(directory, ignore_errors=True)
