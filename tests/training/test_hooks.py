"""The hooks for PyTorch, Lightning and HF's Trainer: losses go on exactly over a pause, a preemption, a dead node."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.experiments_lab import Lab
from tests.e2e.test_experiments_resume import check_training, lab, site

__all__ = ["lab"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.xdist_group("training")]

PROGRAMS = Path(__file__).with_name("programs")


@pytest.fixture(params=["ours", "real"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """Each test kills a node for good."""
    with site(tmp_path_factory.mktemp("c"), request.param) as found:
        yield found


# Lightning and HF's Trainer end the step that they are in: step 10, where they wait.
@pytest.mark.parametrize(
    ("module", "program", "paused"),
    [
        ("torch", "train_torch.py", "step-0000000010.ckpt"),
        ("lightning", "resume_lightning.py", "lightning-0000000011.ckpt"),
        ("transformers", "resume_hf.py", "checkpoint-11"),
    ],
)
def test_losses_continue_exactly(lab: Lab, module: str, program: str, paused: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: `make training`")
    if (PROGRAMS / program).exists():
        shutil.copy(PROGRAMS / program, lab.project)
    check_training(lab, program, sys.executable, paused, prompt=module == "torch")
