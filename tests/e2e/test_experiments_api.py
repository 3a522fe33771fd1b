"""Python functions as jobs, on a cluster of ours and on a real Slurm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.experiments_lab import Lab, cluster, lab

__all__ = ["cluster", "lab"]  # fixtures

pytestmark = [pytest.mark.xdist_group("experiments_api"), pytest.mark.timeout(300)]

HEAD = """\
import os, sys, threading, time
from spritz.experiments import api
from spritz.experiments.api import submit, map, Executor, as_completed
from spritz.experiments.executors import AutoExecutor

class Odd(Exception):
    pass

"""


def python(lab: Lab, text: str, **variables: str) -> str:
    """What the program printed."""
    (lab.project / "program.py").write_text(HEAD + text)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=lab.project, env=lab.variables(**variables), text=True,
        capture_output=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_function_is_a_run_whose_result_exception_and_logs_come_back(lab: Lab) -> None:
    (lab.project / "model.py").write_text("SCALE = 10\ndef scaled(x):\n    return SCALE * x\n")
    out = python(
        lab,
        """
import model
def train(x, *, y=0):
    print("training", x)
    return model.scaled(x) + y
def fail():
    raise Odd("no data")
def end():
    os._exit(3)
future = submit(train, 4, y=2, cpus_per_task=2, time="5m", tags=["paper"])
open("model.py", "w").write("SCALE = 0")
print(future.result(100), future.done(), future.state, future.logs().strip())
bad, gone = submit(fail), submit(end)
error = bad.exception(100)
print(type(error).__name__, error, "in fail" in str(error.__cause__))
print(type(gone.exception(100)).__name__, "exit status 3" in str(gone.exception()))
import pickle
print(pickle.loads(pickle.dumps(future)).result(), api.future(future.name).result())
""",
    )
    assert out == "42 True COMPLETED training 4\nOdd no data True\nRunFailed True\n42 42\n"
    assert "train-1" in lab("runs", "--tag", "paper")
    assert "Command    train(…)\n" in lab("show", "train-1")
    assert lab("rerun", "train-1") == "training 4\n"


@pytest.mark.slow
def test_a_map_is_one_array_and_a_cancelled_future_says_so(lab: Lab) -> None:
    out = python(
        lab,
        """
def square(x):
    if x == 2:
        raise ValueError(x)
    return x * x
futures = map(square, range(4), time="5m")
print(len({future.job_id.partition("_")[0] for future in futures}))
print([future.result(100) for future in futures if future is not futures[2]])
print(repr(futures[2].exception(100)), sorted(each.name for each in as_completed(futures)))
waits = submit(time.sleep, 300)
while waits.state != "RUNNING":
    time.sleep(0.1)
print(waits.cancel(), waits.wait(100), waits.cancelled(), type(waits.exception()).__name__)
with Executor(time="5m") as executor:
    print(list(executor.map(pow, [2, 3], [3, 2])))
""",
    )
    assert out.splitlines() == [
        "1",
        "[0, 1, 9]",
        "ValueError(2) ['square-1-0', 'square-1-1', 'square-1-2', 'square-1-3']",
        "True True True RunFailed",
        "[8, 9]",
    ]


def test_programs_written_for_submitit_work(lab: Lab) -> None:
    out = python(
        lab,
        """
executor = AutoExecutor(folder="jobs")
executor.update_parameters(timeout_min=4, cpus_per_task=1, slurm_array_parallelism=2, slurm_comment="two words")
def add(a, b):
    print("adding")
    return a + b
job = executor.submit(add, 5, 7)
print(job.result(), job.state, job.stdout().strip(), job.done())
print([job.result() for job in executor.map_array(add, [1, 2], [10, 20])])
with executor.batch():
    jobs = [executor.submit(add, n, n) for n in range(3)]
print([job.result() for job in jobs], len(os.listdir("jobs")))
try:
    executor.update_parameters(timeout_mins=1)
except api.ExperimentError as error:
    print(error)
""",
    )
    assert out.splitlines()[:3] == ["12 COMPLETED adding True", "[11, 22]", "[0, 2, 4] 6"]
    assert "no parameter timeout_mins (did you mean timeout_min?)" in out


def test_what_cannot_be_sent_is_named_and_leaves_nothing(lab: Lab) -> None:
    secret = "s3cret-value-of-a-key"
    out = python(
        lab,
        """
lock = threading.Lock()
def work(*a, **k):
    return lock
for call in (
    lambda: submit(work),
    lambda: submit(print, {"a": [1, threading.Lock()]}),
    lambda: map(print, [1, os.environ["MY_TOKEN"]]),
    lambda: submit(lambda time: 1, time="1h"),
    lambda: submit(print, 1, partition="nonexistent"),
):
    try:
        call()
    except api.ExperimentError as error:
        print(error.message)
""",
        MY_TOKEN=secret,
    )
    said = out.splitlines()
    assert said[0].startswith("global variable lock of function work cannot be pickled: _thread.lock")
    assert said[1].startswith("argument 1 of print['a'][1] cannot be pickled: _thread.lock")
    assert said[2] == "what is passed to print holds a secret, which would be written to disk"
    assert said[3] == "time is an option of the run, and lambda has a parameter of that name"
    assert "partition" in said[4]
    assert lab("runs").startswith("No runs yet")
    for path in lab.home.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
    assert not list(Path(lab.home / "runs").glob("*"))
