"""Sweeps from end to end, on a cluster of ours and on a real Slurm."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from spritz.experiments.records import record
from spritz.experiments.sweeps.trials import lines
from tests.e2e.cluster import until
from tests.e2e.experiments_lab import Lab, cluster, git, lab

__all__ = ["cluster", "lab"]

pytestmark = [pytest.mark.xdist_group("sweeps"), pytest.mark.timeout(300)]

#: reports (x - 0.3)² and counts its starts; it does not end while there is a file HOLD, and reports on and on: the
#: worse, the slower, as the first trial at each step is not stopped by ASHA
TRAIN = """\
import json, os, sys, time
settings = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
directory = os.environ["SPRITZ_RUN_DIR"]
with open(directory + "/starts", "a") as file:
    file.write("x")
def report(step):
    with open(directory + "/metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "loss": (float(settings["x"]) - 0.3) ** 2}) + "\\n")
step = 0
while step < int(os.environ.get("STEPS", "2")) or ("HOLD" in os.environ and os.path.exists(os.environ["HOLD"])):
    step += 1
    report(step)
    if "HOLD" in os.environ:
        time.sleep(0.2 + 5 * (float(settings["x"]) - 0.3) ** 2)
if os.path.exists(os.environ.get("FAIL", "/nonexistent")):
    sys.exit(3)
"""

#: goes on from its checkpoint, and saves its state when it is asked to stop
RESUMED = """\
import json, os, signal, sys, time
state = os.environ["SPRITZ_CHECKPOINT_DIR"] + "/state"
begin = int(open(state).read()) if os.path.exists(state) else 0
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
with open(os.environ["SPRITZ_RUN_DIR"] + "/starts", "a") as file:
    file.write("x")
for step in range(begin + 1, 4):
    with open(os.environ["SPRITZ_RUN_DIR"] + "/metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "loss": 1 / step}) + "\\n")
    while step == 2 and os.path.exists(os.environ["HOLD"]) and not asked:
        time.sleep(0.05)
    if asked:
        open(state, "w").write(str(step))
        sys.exit(75)
"""


@pytest.fixture
def swept(lab: Lab) -> Lab:
    (lab.project / "objective.py").write_text(TRAIN)
    return lab


def plan(lab: Lab, **values: Any) -> str:
    """A file; YAML reads JSON."""
    given = {"command": "python3 objective.py", "parameters": {"x": [0.1, 0.3, 0.6]}, "metric": "loss", **values}
    (lab.project / "sweep.yaml").write_text(json.dumps(given))
    return "sweep.yaml"


def status(lab: Lab, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(lab("sweep", "--status", name, "--json"))
    return loaded


def ended(lab: Lab, name: str) -> dict[str, Any]:
    until(lambda: status(lab, name)["ended"], f"{name} ends", 100)
    return status(lab, name)


def starts(lab: Lab, name: str) -> dict[str, int]:
    """How often each trial's command was started."""
    found = {path.parent.name: path.stat().st_size for path in (lab.home / "runs").glob(f"{name}.*/starts")}
    return dict(sorted(found.items()))


def test_a_grid_is_one_array_and_each_point_a_run(swept: Lab) -> None:
    out = swept("sweep", plan(swept, parameters={"x": [0.1, 0.3], "kind": ["a", "b c"]}, concurrency=2), "--wait")
    assert "best: objective-sweep-1.3  loss 0  x=0.3 kind=a\n" in out
    found = status(swept, "objective-sweep-1")
    assert found["states"] == {"COMPLETED": 4}
    (job,) = found["jobs"]
    assert [trial["job_id"] for trial in found["trials"]] == [f"{job}_{index}" for index in range(1, 5)]
    assert set(starts(swept, "objective-sweep-1").values()) == {1}
    listed = swept("runs", "--group", "objective-sweep-1")
    assert listed.count("COMPLETED") == 4
    known = swept.run_json("objective-sweep-1.4")["run"]
    assert isinstance(known, dict)
    assert known["parameters"] == {"x": 0.3, "kind": "b c"}
    assert known["command"][2:] == ["--x=0.3", "--kind=b c"]
    trees = {swept.run_json(f"objective-sweep-1.{index}")["index"]["tree"] for index in (1, 4)}  # type: ignore[index]
    assert len(trees) == 1
    assert "4 completed" in swept("sweeps")
    _, err = swept.start("show", "objective-sweep-1").communicate(timeout=100)
    assert "`spritz sweep --status objective-sweep-1` shows it" in err


@pytest.mark.slow
def test_run_m_is_the_product_and_hydras_own_is_recognised(swept: Lab) -> None:
    out = swept("run", "-m", "x=0.1,0.3", "y=1,2", "--", "python3", "objective.py")
    assert out.startswith("objective-sweep-1\n")
    assert "4 completed" in out
    (swept.project / "objective.py").write_text(
        "import sys\ntry:\n    import hydra\nexcept ImportError:\n    pass\n" + TRAIN
    )
    out = swept("run", "--name", "mine", "--", "python3", "objective.py", "-m", "x=0.1,0.3", "y=1")
    assert "2 completed" in out
    assert status(swept, "mine-1")["trials"][1]["parameters"] == {"x": "0.3"}


@pytest.mark.slow
def test_tpe_with_asha_stops_trials_early_and_frees_their_gpus(swept: Lab) -> None:
    pytest.importorskip("optuna")
    hold = swept.project / "hold"
    hold.write_text("")
    name = swept(
        "sweep",
        plan(
            swept, parameters={"x": {"min": 0.0, "max": 1.0}}, method="tpe", trials=6, concurrency=2, seed=1,
            early_stopping={"method": "asha", "min_steps": 1, "reduction": 2}, run={"env": {"HOLD": str(hold)}},
        ),
    ).strip()  # fmt: skip
    # Trials go on for ever: only the rule can end any of them.
    until(lambda: status(swept, name)["states"].get("PRUNED", 0) >= 1, "a trial is stopped early", 100)
    hold.unlink()
    found = ended(swept, name)
    assert set(found["states"]) == {"COMPLETED", "PRUNED"}
    assert all(set(trial["parameters"]) == {"x"} for trial in found["trials"])
    assert len({trial["parameters"]["x"] for trial in found["trials"]}) == 6
    assert found["best"] in {trial["name"] for trial in found["trials"] if trial["state"] == "COMPLETED"}
    assert set(starts(swept, name).values()) == {1}
    page = swept.directory / "page.html"
    if pytest.importorskip("plotly"):
        swept("sweep", "--status", name, "--html", str(page))
        assert "parcoords" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_failed_trial_is_retried_and_then_resumed_with_its_parameters(swept: Lab) -> None:
    fail = swept.project / "fail"
    fail.write_text("")
    name = swept("sweep", plan(swept, retries=1, run={"env": {"FAIL": str(fail)}}), "--wait", status=1).split()[0]
    assert starts(swept, name) == {f"{name}.{index}": 2 for index in (1, 2, 3)}
    assert status(swept, name)["states"] == {"FAILED": 3}
    fail.unlink()
    before = [trial["parameters"] for trial in status(swept, name)["trials"]]
    swept("sweep", "--resume", name, "--wait")
    found = status(swept, name)
    assert found["states"] == {"COMPLETED": 3}
    assert [trial["parameters"] for trial in found["trials"]] == before
    assert starts(swept, name) == {f"{name}.{index}": 3 for index in (1, 2, 3)}
    assert "no trial has failed" in swept("sweep", "--resume", name)


def test_a_stopped_sweep_goes_on_where_it_was(swept: Lab) -> None:
    hold = swept.project / "hold"
    hold.write_text("")
    name = swept("sweep", plan(swept, concurrency=1, run={"env": {"HOLD": str(hold)}})).strip()
    until(lambda: f"{name}.1" in starts(swept, name), "the first trial runs")
    swept("sweep", "--stop", name)
    assert ended(swept, name)["states"] == {"CANCELLED": 3}
    hold.unlink()
    swept("sweep", "--resume", name, "--wait")
    assert status(swept, name)["states"] == {"COMPLETED": 3}
    assert starts(swept, name) == {f"{name}.1": 2, f"{name}.2": 1, f"{name}.3": 1}


def test_no_trial_with_a_result_runs_again_after_the_index_was_lost(swept: Lab) -> None:
    name = swept("sweep", plan(swept), "--wait").split()[0]
    before = {key: value for key, value in status(swept, name).items() if key != "seconds"}
    for path in swept.home.glob("runs.db*"):
        path.unlink()
    assert "`spritz runs --rebuild` restores them" in swept("runs")
    swept("runs", "--rebuild")
    assert {key: value for key, value in status(swept, name).items() if key != "seconds"} == before
    assert "no trial has failed" in swept("sweep", "--resume", name)
    for path in swept.home.glob("runs.db*"):
        path.unlink()
    swept("sweep", "--resume", name)  # without the rebuilding: the rows are new, the results are not
    assert starts(swept, name) == {f"{name}.{index}": 1 for index in (1, 2, 3)}


@pytest.mark.slow
def test_a_requeued_trial_goes_on_as_the_same_trial(swept: Lab) -> None:
    pytest.importorskip("optuna")
    hold = swept.project / "hold"
    hold.write_text("")
    name = swept(
        "sweep",
        plan(
            swept, parameters={"x": {"min": 0.0, "max": 1.0}}, method="tpe", trials=1,
            run={"env": {"HOLD": str(hold)}},
        ),
    ).strip()  # fmt: skip
    until(lambda: starts(swept, name) == {f"{name}.1": 1}, "the trial runs")
    (trial,) = status(swept, name)["trials"]
    swept.slurm("scontrol", "requeue", trial["job_id"])
    until(lambda: status(swept, name)["trials"][0]["state"] == "PENDING", "it is requeued")
    hold.unlink()
    # Slurm waits for two minutes before a requeued job may start.
    swept.slurm("scontrol", "update", f"JobId={trial['job_id']}", "StartTime=now")
    found = ended(swept, name)
    assert [item["parameters"] for item in found["trials"]] == [trial["parameters"]]
    assert starts(swept, name) == {f"{name}.1": 2}


def test_a_resumable_trial_is_paused_alone_and_goes_on_where_it_was(swept: Lab) -> None:
    """The last task of an array has the array's job number: it is meant alone all the same."""
    hold = swept.project / "hold"
    hold.write_text("")
    (swept.project / "objective.py").write_text(RESUMED)
    name = swept(
        "sweep",
        plan(swept, parameters={"x": [1, 2]}, run={"env": {"HOLD": str(hold)}, "resumable": True, "grace": "60"}),
    ).strip()
    reports = [swept.home / "runs" / f"{name}.{index}" / "metrics.jsonl" for index in (1, 2)]
    until(lambda: all(path.exists() and len(list(lines(path))) == 2 for path in reports), "both are at step 2")
    assert swept("pause", f"{name}.2").startswith(f"{name}.2 is paused")
    assert [trial["state"] for trial in status(swept, name)["trials"]] == ["RUNNING", "PAUSED"]
    hold.unlink()
    until(lambda: status(swept, name)["trials"][0]["state"] == "COMPLETED", "the other ends")
    swept("resume", f"{name}.2")
    assert ended(swept, name)["states"] == {"COMPLETED": 2}
    assert starts(swept, name) == {f"{name}.1": 1, f"{name}.2": 2}
    assert [line["step"] for line in lines(reports[1])] == [1, 2, 3]


class _Heard(BaseHTTPRequestHandler):
    said: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.said.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_idle_trials_are_ended_by_the_guard_and_the_sweeps_end_is_told_once(swept: Lab) -> None:
    pytest.importorskip("apprise")
    hold = swept.project / "hold"
    hold.write_text("")
    guard = {"watch": "cpu", "below": 50, "warn_after": "1s", "end_after": "2s", "action": "end"}
    _Heard.said.clear()  # of the test on the other cluster
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Heard)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        settings = {"notify": [f"json://127.0.0.1:{server.server_port}"], "guard": guard}
        (swept.project / "spritz.yaml").write_text(json.dumps(settings))
        name = swept("sweep", plan(swept, parameters={"x": [1, 2]}, run={"env": {"HOLD": str(hold)}})).strip()
        assert ended(swept, name)["states"].get("COMPLETED", 0) == 0
        until(lambda: any(said["title"].endswith(" ended") for said in _Heard.said), "the end is told")
    finally:
        server.shutdown()
        server.server_close()
    assert [said["title"] for said in _Heard.said if "idle" not in said["title"]] == [f"{name} ended"]
    assert any(said["title"] in (f"{name}.1 is idle", f"{name}.2 is idle") for said in _Heard.said)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_submission_that_is_killed_is_completed_without_running_a_trial_twice(swept: Lab, moment: str) -> None:
    """sbatch is a script that kills its parent, `spritz`, before or after it has queued the array."""
    real = next(path for place in swept.path.split(":") if (path := Path(place) / "sbatch").exists())
    bin_directory = swept.directory / "bin"
    bin_directory.mkdir()
    fake = bin_directory / "sbatch"
    queue = f'{real} "$@"\n' if moment == "after" else ""
    fake.write_text(f"#!/bin/sh\n{queue}kill -9 $PPID\n")
    fake.chmod(0o755)
    process = swept.start("sweep", plan(swept), PATH=f"{bin_directory}:{swept.path}")
    process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL
    swept("sweep", "--resume", "objective-sweep-1")
    found = ended(swept, "objective-sweep-1")
    assert found["states"] == {"COMPLETED": 3}
    assert len(found["jobs"]) == 1
    assert starts(swept, "objective-sweep-1") == {f"objective-sweep-1.{index}": 1 for index in (1, 2, 3)}


@pytest.mark.slow
def test_a_killed_trial_is_no_other_trials_business(swept: Lab) -> None:
    hold = swept.project / "hold"
    hold.write_text("")
    name = swept("sweep", plan(swept, run={"env": {"HOLD": str(hold)}})).strip()
    until(lambda: len(starts(swept, name)) == 3, "all run")
    swept.slurm("scancel", "--signal=KILL", "--full", status(swept, name)["trials"][1]["job_id"])
    until(lambda: status(swept, name)["trials"][1]["state"] not in ("RUNNING", "COMPLETING"), "it is dead")
    hold.unlink()
    found = ended(swept, name)
    assert [trial["state"] == "COMPLETED" for trial in found["trials"]] == [True, False, True]
    swept("sweep", "--resume", name, "--wait")
    assert status(swept, name)["states"] == {"COMPLETED": 3}


def test_what_cannot_be_a_sweep_is_refused_and_leaves_nothing(swept: Lab) -> None:
    for values, words in (
        ({"trails": 3}, "did you mean trials?"),
        ({"parameters": {}}, "nothing to vary"),
        ({"method": "tpe", "trials": 3, "metric": ""}, "metric"),
        ({"parameters": {"x": {"min": 1, "max": 10_000}}}, "the grid has 10000 points"),
        ({"run": {"partition": "nonexistent"}}, "sbatch"),
        ({"command": "python3 missing.py"}, "no such file"),
    ):
        process = swept.start("sweep", plan(swept, **values))
        out, err = process.communicate(timeout=100)
        assert process.returncode not in (0, None), (values, out, err)
        assert words in err, (values, err)
        assert "Traceback" not in err
    assert not list((swept.home / "runs").glob("*"))
    assert swept("sweeps").startswith("No sweeps yet")
    assert swept("runs").startswith("No runs yet")


def test_a_metric_that_no_trial_reports_and_a_damaged_file_are_told(swept: Lab) -> None:
    out = swept("sweep", plan(swept, metric="accuracy"), "--wait")
    assert "none of 3 complete trials has reported accuracy; they reported loss" in out
    path = swept.home / "sweeps" / "objective-sweep-1" / "sweep.json"
    with (path.parent / "lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        _, err = swept.start("sweep", "--resume", "objective-sweep-1").communicate(timeout=100)
        assert "another command is changing the sweep" in err
    path.write_text(path.read_text()[:100])
    process = swept.start("sweep", "--status", "objective-sweep-1")
    _, err = process.communicate(timeout=100)
    assert (process.returncode, "is damaged" in err) == (1, True)
    assert "is damaged" in swept.start("sweeps").communicate(timeout=100)[1]


def test_events_and_metrics_are_lines(swept: Lab) -> None:
    swept("sweep", plan(swept), "--wait")
    directory = swept.home / "runs" / "objective-sweep-1.1"
    assert [event["event"] for event in record.events(directory)] == ["started", "ended"]
    assert os.readlink(directory / "claim") == status(swept, "objective-sweep-1")["jobs"][0]


def test_ctrl_c_stops_a_sweep_that_is_waited_for(swept: Lab) -> None:
    hold = swept.project / "hold"
    hold.write_text("")
    process = swept.start("run", "--env", f"HOLD={hold}", "-m", "x=0.1,0.2", "--", "python3", "objective.py")
    until(lambda: len(starts(swept, "objective-sweep-1")) == 2, "both run")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=100)
    assert process.returncode == 130
    assert ended(swept, "objective-sweep-1")["states"] == {"CANCELLED": 2}


def test_a_sweeps_secrets_are_in_no_file(swept: Lab) -> None:
    secret, token = "s3cret-value-of-a-key", "hf_abcdefghijklmnopqrstuvwxyz"
    (swept.project / "show.py").write_text("import os, sys; print(len(sys.argv[2]), len(os.environ['MY_TOKEN']))")
    words = ("--env", f"MY_TOKEN={token}", "-m", "x=1,2", "--", "python3", "show.py", "--password", secret)
    assert "2 completed" in swept("run", *words)
    assert swept("logs", "show-sweep-1.2") == f"{len(secret)} {len(token)}\n"
    for path in swept.home.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert secret.encode() not in data, path
            assert token.encode() not in data, path


#: A trial ends well only if the code is fixed; `wait` in the project lets it wait, as its second check.
BROKEN = """\
import os, sys, time
here = os.environ["SPRITZ_RUN_DIR"]
open(here + "/starts", "a").write(".")
x = float(sys.argv[1].partition("=")[2])
open("left-" + os.environ["SPRITZ_LIFE"], "w").close()
while x == 0.6 and os.path.exists(os.environ["HOLD"]):
    time.sleep(0.05)
if x == 0.3:
    sys.exit("broken")
open(here + "/metrics.jsonl", "a").write('{"step": 1, "loss": 1}\\n')
"""


def test_a_fix_enters_a_sweep_and_each_trial_says_its_code(swept: Lab) -> None:
    hold, program = swept.project / "hold", swept.project / "objective.py"
    hold.write_text("")
    (swept.project / ".gitignore").write_text("hold\nsweep.yaml\n")
    program.write_text(BROKEN)
    commit(swept, "broken")
    given = plan(
        swept, parameters={"x": [0.1, 0.3, 0.6, 0.9, 1.2, 1.5]}, concurrency=1, run={"env": {"HOLD": str(hold)}}
    )
    name = swept("sweep", given).strip()
    first = f"{name}.1", f"{name}.3"
    until(lambda: f"{name}.3" in starts(swept, name), "the third trial runs")
    before = trees(swept, name)
    assert len(set(before.values())) == 1
    # A submission that is interrupted leaves the trials with the code that they ran.
    program.write_text(BROKEN.replace("if x == 0.3", "if x == -1"))
    commit(swept, "fixed")
    real = next(path for place in swept.path.split(":") if (path := Path(place) / "sbatch").exists())
    bin_directory = swept.directory / "bin"
    bin_directory.mkdir()
    (bin_directory / "sbatch").write_text(f'#!/bin/sh\n{real} --hold "$@"\nkill -INT $PPID\nexec sleep 10\n')
    (bin_directory / "sbatch").chmod(0o755)
    process = swept.start("sweep", "--resume", name, "--new-code", PATH=f"{bin_directory}:{swept.path}")
    process.communicate(timeout=100)
    assert process.returncode
    assert trees(swept, name) == before
    assert starts(swept, name) == {f"{name}.{index}": 1 for index in (1, 2, 3)}
    # The failed trial and those that have not started get it; the one that runs keeps its code.
    out = swept("sweep", "--resume", name, "--new-code")
    assert f"{name}: queued trials 2,4-6 as job " in out
    hold.unlink()
    assert ended(swept, name)["states"] == {"COMPLETED": 6}
    assert starts(swept, name) == {f"{name}.{index}": 2 if index == 2 else 1 for index in range(1, 7)}
    after = trees(swept, name)
    assert {trial for trial, tree in after.items() if tree == before[f"{name}.1"]} == set(first)
    assert len(set(after.values())) == 2
    # Each says so, also after the index was lost; and nothing runs again.
    assert [code["runs"] for code in status(swept, name)["codes"]] == [2, 4]
    for words in (("sweep", "--status", name), ("sweeps",), ("show", f"{name}.2")):
        assert re.search(r"2 (trials|runs) with main \w{7}, 4 with main \w{7}", swept(*words)), words
    for path in swept.home.glob("runs.db*"):
        path.unlink()
    swept("runs", "--rebuild")
    assert trees(swept, name) == after
    assert [code["runs"] for code in status(swept, name)["codes"]] == [2, 4]
    assert "no trial has failed" in swept("sweep", "--resume", name, "--new-code")
    # What the broken code left in its directory is kept beside that of the new.
    assert (swept.home / "runs" / f"{name}.2" / "code-1" / "left-1").exists()
    assert (swept.home / "runs" / f"{name}.2" / "code" / "left-2").exists()


def commit(lab: Lab, message: str) -> None:
    git(lab.project, "add", "-A")
    git(lab.project, "commit", "-q", "-m", message)


def trees(lab: Lab, name: str) -> dict[str, str]:
    """The code of each trial, by its record."""
    found = {}
    for path in sorted((lab.home / "runs").glob(f"{name}.*")):
        known = lab.run_json(path.name)
        assert isinstance(known["run"], dict)
        assert isinstance(known["index"], dict)
        assert known["run"]["code"]["tree"] == known["index"]["tree"]
        found[path.name] = str(known["index"]["tree"])
    return found


def test_new_code_is_refused_where_it_means_nothing(swept: Lab) -> None:
    assert "--resume" in refused(swept, "sweep", "--status", "x", "--new-code")
    name = swept("sweep", plan(swept), "--no-snapshot", "--wait").split()[0]
    assert "runs in place" in refused(swept, "sweep", "--resume", name, "--new-code")


def refused(lab: Lab, *words: str) -> str:
    process = lab.start(*words)
    error = process.communicate(timeout=100)[1]
    assert process.returncode
    return error
