"""The zygote's rehearsal runs whole steps and leaves the process as it was."""

import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from spritz.stepd import rehearsal
from spritz.stepd.supervisor import Supervisor


def _rehearsed(directory: Path) -> None:
    """Rehearse in this process, and look at what is left."""
    os.environ["TMPDIR"] = str(directory)
    os.chdir("/")
    started: list[tuple[int, ...]] = []
    conclude = Supervisor._conclude

    def noted(self: Supervisor) -> None:
        started.append(tuple(task.status for task in self._group.tasks if task.status is not None))
        conclude(self)

    Supervisor._conclude = noted  # type: ignore[method-assign]
    descriptors = os.listdir("/proc/self/fd")
    rehearsal.rehearse()
    assert started == [(0,)] * rehearsal._TIMES, "each task ran and ended well"
    assert os.listdir("/proc/self/fd") == descriptors
    assert os.listdir(directory) == []
    assert os.getcwd() == "/"
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_rehearsal_runs_steps_and_leaves_nothing(tmp_path: Path) -> None:
    # In a process of its own: a step ends with all that is below its supervisor, and below this process other tests may
    # have clusters.
    pid = os.fork()
    if not pid:
        try:
            _rehearsed(tmp_path)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_zygote_imports_nothing_that_makes_forks_dear() -> None:
    # `random` seeds itself again in each forked child; `shutil` maps two libraries of compression.
    code = "import sys, spritz.stepd.zygote; print({'random', 'shutil', 'tempfile'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert found == "set()\n"
