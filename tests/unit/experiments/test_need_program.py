"""What is said of a run's command that cannot be found, before anything is queued."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.experiments.errors import ExperimentError
from spritz.experiments.job.settings import RunOptions
from spritz.experiments.job.submission import Request, need_program


def test_a_script_of_the_directory_is_told_from_a_program_that_is_nowhere(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    for program, hint in (("train.py", "did you mean: python train.py?"), ("no-such-program", "setup: lines of")):
        with pytest.raises(ExperimentError, match=f"{program}: command not found") as refused:
            need_program(Request(command=(program,), directory=tmp_path, options=RunOptions()))
        assert refused.value.hint.startswith(hint)
