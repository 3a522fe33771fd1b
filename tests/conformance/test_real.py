"""The real Slurm that tests and recordings start (`tests.conformance.real`)."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import is_alive, until
from tests.e2e.experiments_lab import Lab, real


@pytest.mark.slow
def test_its_jobs_end_with_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Steps outlive their slurmd."""
    directory = tmp_path_factory.mktemp("real")
    told = directory / "pid"
    with real(directory) as (conf, path):
        script = f"echo $$ > {told}.new; mv {told}.new {told}; sleep 1000"
        Lab(directory, conf, path).slurm("sbatch", "--chdir=/", "--output=/dev/null", f"--wrap={script}")
        until(told.exists, "the job runs")
    until(lambda: not is_alive(int(told.read_text())), "the job ends")
