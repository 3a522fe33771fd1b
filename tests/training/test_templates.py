"""Each template with its real framework, on two nodes: on a cluster of ours, and on a real Slurm (`make training`)."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.experiments_lab import Lab, cluster, lab

__all__ = ["cluster", "lab"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("training")]

PROGRAMS = Path(__file__).with_name("programs")
#: template -> (module that it needs, program, processes on each node)
CASES = {
    "torchrun": ("torch", "torch_ddp.py", 2),
    "accelerate": ("accelerate", "accelerate_loop.py", 2),
    "deepspeed": ("deepspeed", "deepspeed_engine.py", 1),
    "lightning": ("lightning", "lightning_fit.py", 2),
    "ray": ("ray", "ray_tasks.py", 1),
    "mpi": ("mpi4py", "mpi_sum.py", 2),
}

BUILD = """
from deepspeed.accelerator import get_accelerator
get_accelerator().create_op_builder("ShareMemCommBuilder").load()
"""


@pytest.mark.parametrize("template", CASES)
def test_the_framework_finds_all_processes_at_the_first_try(lab: Lab, template: str) -> None:
    module, program, processes = CASES[template]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: `make training`")
    shutil.copy(PROGRAMS / program, lab.project)
    # MPICH's mpirun says which PMI is wanted.
    (lab.directory / "bin").mkdir()
    (lab.directory / "bin" / "mpirun").symlink_to(Path(sys.executable).with_name("mpirun"))
    lab.path = f"{lab.directory / 'bin'}:{lab.path}"
    # DeepSpeed compiles a part of itself when it is first used: a minute, once.
    lab.environment["TORCH_EXTENSIONS_DIR"] = str(Path(sys.prefix) / "torch_extensions")
    if template == "deepspeed":
        environment = lab.variables(PATH=f"{Path(sys.executable).parent}:{lab.path}")
        subprocess.run([sys.executable, "-c", BUILD], env=environment, check=True, capture_output=True)
    lab.patience_seconds = 400  # and again, where the job's compiler options differ
    each = ["--tasks-per-node", str(processes)] if processes > 1 else []
    said = lab("run", "--nodes", "2", "--template", template, *each, "--", sys.executable, program)
    found = re.findall(r"process (\d+) of (\d+) on (\S+)", said)
    total = 2 * processes
    assert {int(process) for process, _, _ in found} == set(range(total)), said
    assert {int(size) for _, size, _ in found} == {total}, said
    nodes = [node for _, _, node in found]
    assert len(set(nodes)) == 2, said
    assert all(nodes.count(node) == processes for node in nodes), said
