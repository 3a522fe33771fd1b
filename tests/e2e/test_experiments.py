"""Runs from end to end: on a cluster of ours, and on a real Slurm where its packages are installed and we are root."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import venv
from pathlib import Path

import pytest

from tests.e2e.cluster import until
from tests.e2e.experiments_lab import Lab, cluster, git, lab
from tests.unit.experiments import uv_program

__all__ = ["cluster", "lab"]  # fixtures

pytestmark = [pytest.mark.xdist_group("experiments"), pytest.mark.timeout(300)]


def test_a_run_in_the_foreground_prints_its_output_and_ends_with_the_commands_status(lab: Lab) -> None:
    assert lab("run", "--", "python3", "train.py", "--lr", "1") == "rank 0 of 1 --lr 1\nstep 0\nstep 1\nstep 2\n"
    assert lab("run", "--env", "FAIL_RANK=0", "--", "python3", "train.py", status=7).startswith("rank 0 of 1\n")
    failed = lab.start("logs", "train-2")
    out, err = failed.communicate(timeout=100)
    assert err.startswith("train-2 FAILED: it ended with exit status 7")
    assert "step 2" in out


def test_two_nodes_have_two_ranks_and_the_failed_ranks_status_counts(lab: Lab) -> None:
    out = lab("run", "-N", "2", "--env", "FAIL_RANK=1", "--", "python3", "train.py", status=7)
    assert "1: rank 1 of 2\n" in out
    assert lab("logs", "train-1", "--rank", "1", "--grep", "^rank") == "rank 1 of 2\n"


@pytest.mark.slow  # `test_sources` and `test_run_code` have its parts
def test_an_editable_installation_does_not_bypass_the_snapshot(lab: Lab) -> None:
    """A package of the project below src/, and one of another repository, installed as `pip install -e` does."""
    package, common = lab.project / "src" / "mylib", lab.directory / "common"
    package.mkdir(parents=True)
    common.mkdir()
    (package / "__init__.py").write_text("VALUE = 5\n")
    (common / "commonlib.py").write_text("C = 10\n")
    git(common, "init", "-q")
    git(common, "add", "-A")
    git(common, "commit", "-q", "-m", "one")
    (lab.project / "uses.py").write_text("import commonlib, mylib\nprint(mylib.VALUE + commonlib.C)\n")
    (lab.project / ".gitignore").write_text(".venv\n")
    venv.create(lab.project / ".venv", symlinks=True)
    (site_packages,) = (lab.project / ".venv" / "lib").glob("python3*/site-packages")
    (site_packages / "both.pth").write_text(f"{package.parent}\n{common}\n")

    assert lab("run", "--", ".venv/bin/python", "uses.py") == "15\n"
    (package / "__init__.py").write_text("VALUE = 999\n")
    (common / "commonlib.py").write_text("C = 20\n")
    assert lab("rerun", "uses-1") == "15\n"
    assert lab("run", "--", ".venv/bin/python", "uses.py") == "1019\n"
    assert f"with {common} " in lab("show", "uses-1")
    assert f"{lab.project}/.venv/bin/python" in lab("show", "uses-1")
    changes = json.loads(lab("diff", "--json", "uses-1", "uses-3"))["changes"]
    assert [change["name"] for change in changes["sources"]] == [str(common)]
    assert changes["unfrozen"] == []

    odd = lab.directory / "odd"
    odd.mkdir()
    (odd / "odd.py").write_text("")
    (lab.project / "late.py").write_text(f"import sys; sys.path.insert(0, {str(odd)!r}); import odd\n")
    lab("run", "--", ".venv/bin/python", "late.py")
    assert f"imported from outside the snapshot: {odd}/odd.py" in lab("show", "late-1")


def test_a_queued_run_has_the_code_of_its_submission(lab: Lab) -> None:
    held = lab("run", "-d", "--slurm=--hold", "--", "python3", "train.py").strip()
    (lab.project / "train.py").write_text("print('edited')\n")
    lab.slurm("scontrol", "release", str(lab.run_json(held)["index"]["job_id"]))  # type: ignore[index]  # JSON
    until(lambda: lab.state(held) == "COMPLETED", "the run ends")
    assert lab("logs", held).startswith("rank 0 of 1\n")
    assert lab("run", "--", "python3", "train.py") == "edited\n"
    difference = lab("diff", held, "train-2")
    assert "+print('edited')\n" in difference
    told = json.loads(lab("diff", "--json", held, "train-2"))
    assert (told["old"], told["new"], told["same_code"]) == (held, "train-2", False)
    assert "+print('edited')\n" in told["code"]
    assert set(told["changes"]) == {"command", "options", "environment", "sources", "unfrozen", "data", "result"}
    assert json.loads(lab("logs", "--json", "train-2")) == {"restart": 0, "rank": 0, "text": "edited"}
    assert "COMPLETED" in lab("runs", "--branch", "main")


def test_a_rerun_is_exact_or_changed_and_says_where_it_came_from(lab: Lab) -> None:
    lab("run", "--tag", "paper", "--", "python3", "train.py", "--lr", "1")
    (lab.project / "train.py").write_text("print('edited')\n")
    assert lab("rerun", "train-1") == "rank 0 of 1 --lr 1\nstep 0\nstep 1\nstep 2\n"
    assert lab("rerun", "train-1", "--set", "lr=2").startswith("rank 0 of 1 --lr 2\n")
    assert lab("rerun", "train-1", "--new-code") == "edited\n"
    record = lab.run_json("train-3")["run"]
    assert isinstance(record, dict)
    assert (record["parent"], record["tags"]) == ("train-1", ["paper"])
    assert "--lr 1 → " in lab("diff", "train-1", "train-3").replace("python3 train.py ", "")


@pytest.mark.slow  # `test_restoring` has its parts
def test_a_rerun_has_the_environment_of_today_or_that_of_the_run(lab: Lab) -> None:
    """With `uv` as a program that makes packages of that name and version."""
    stub = lab.directory / "stub"
    uv_program.write(stub)
    venv.create(lab.project / ".venv", symlinks=True)
    (lab.project / ".gitignore").write_text(".venv\n")
    (site,) = (lab.project / ".venv" / "lib").glob("python3*/site-packages")
    program = "import sys; from importlib.metadata import version; print(version('dep'), sys.prefix)"

    def install(version: str) -> None:
        for folder in site.glob("dep-*"):
            shutil.rmtree(folder)
        (site / f"dep-{version}.dist-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: dep\nVersion: {version}\n"
        (site / f"dep-{version}.dist-info" / "METADATA").write_text(text)

    def call(*words: str) -> tuple[str, str]:
        """The program's line, and what Spritz said."""
        process = lab.start(*words, PATH=f"{stub}:{lab.path}")
        out, err = process.communicate(timeout=lab.patience_seconds)
        assert process.returncode == 0, err
        return out.strip(), err

    environment = str(lab.project / ".venv")
    install("1.0")
    assert call("run", "-J", "path", "--", ".venv/bin/python", "-c", program)[0] == f"1.0 {environment}"
    (lab.project / "spritz.yaml").write_text("run:\n  setup: ['. .venv/bin/activate']\n")
    assert call("run", "-J", "setup", "--", "python", "-c", program)[0] == f"1.0 {environment}"
    for name in ("path-1", "setup-1"):
        assert "the environment is not that of" not in call("rerun", "-J", "same", name)[1]
    install("2.0")
    for name in ("path-1", "setup-1"):
        out, err = call("rerun", "-J", "today", name)
        assert out == f"2.0 {environment}"
        assert f"the environment is not that of {name}: dep: 1.0 → 2.0\n" in err
        out, err = call("rerun", "-J", "then", "--environment", "recorded", name)
        assert out.startswith(f"1.0 {lab.home}/venvs/")
        assert "the environment is not that of" not in err
    assert "the environment of path-1, made again\n" in lab("show", "then-1")
    assert "dep: 1.0 → 2.0" in lab("diff", "setup-1", "today-2")
    assert "Environment" not in lab("diff", "setup-1", "then-2")
    assert len((stub / "calls").read_text().splitlines()) == 1, "both had the same packages"


def test_outputs_persist_and_a_run_in_place_is_repeated(lab: Lab) -> None:
    """A program that counts its starts in an output that it replaces by a rename, from data that git ignores."""
    (lab.project / "count.py").write_text(
        "import os\n"
        "data = open(os.path.join('data', 'x.txt')).read()\n"
        "count = int(open('state/count.txt').read()) + 1 if os.path.exists('state/count.txt') else 1\n"
        "open('state/count.txt', 'w').write(str(count))\n"
        "open('new', 'w').write(str(count)); os.replace('new', 'last.txt')\n"
        "print(data, count)\n"
    )
    (lab.project / ".gitignore").write_text("data\n")
    (lab.project / "data").mkdir()
    (lab.project / "data" / "x.txt").write_text("a")
    warned = lab.start("run", "--", "python3", "count.py")
    assert "data: git ignores it; --link data lets the run see it\n" in warned.communicate(timeout=100)[1]

    options = ("--data", "data", "--outputs", "state", "--outputs", "last.txt")
    assert lab("run", *options, "--", "python3", "count.py") == "a 1\n"
    assert (lab.project / "last.txt").read_text() == "1"
    (lab.project / "data" / "x.txt").write_text("b")
    again = lab.start("rerun", "count-2")
    out, err = again.communicate(timeout=100)
    assert out == "b 2\n"
    assert "data changed since count-2\n" in err
    assert (lab.project / "last.txt").read_text() == "2"
    assert json.loads(lab("diff", "--json", "count-2", "count-3"))["changes"]["data"]

    assert lab("run", "--no-snapshot", *options, "--", "python3", "count.py") == "b 3\n"
    (lab.project / "data" / "x.txt").write_text("c")
    (lab.project / "count.py").write_text("print('edited')\n")
    again = lab.start("rerun", "count-4")
    out, err = again.communicate(timeout=100)
    assert out == "edited\n"
    assert "count-4 ran in place: this runs the directory as it is now; 1 file differs: count.py\n" in err
    assert "+print('edited')" in lab("diff", "count-4", "count-5")


def test_ctrl_c_cancels_the_job(lab: Lab) -> None:
    process = lab.start("run", "--", "bash", "-c", "echo ready; sleep 300")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=100)
    assert process.returncode == 130
    until(lambda: lab.state("bash") == "CANCELLED", "the job is cancelled")


def test_what_cannot_run_is_refused_before_it_queues_and_leaves_nothing(lab: Lab) -> None:
    (lab.project / "without").mkdir()
    # A Python that has none of its packages.
    bare = lab.project / "without" / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    partition = lab.slurm("sinfo", "-h", "-o", "%R").split()[0]
    train = ("--", "python3", "train.py")
    for words, said in (
        (("--", "python3", "missing.py"), "missing.py: no such file"),
        (("--", "no-such-program"), "no-such-program: command not found"),
        (("-p", "nonexistent", *train), f"partitions: {partition}"),
        (("--gpus", "nonexistent:1", *train), f"partition {partition} has "),
        (("--mem", "900G", *train), f"partition {partition} has "),
        (("--template", "torchrn", *train), "did you mean torchrun?"),
        (("--template", "lightning", "--", str(bare), "train.py"), "has no lightning or pytorch_lightning"),
        (("--env", "NOT_SET_HERE", *train), "NOT_SET_HERE: it is not set here"),
        ((), "no command given"),
    ):
        process = lab.start("run", "-d", *words)
        out, err = process.communicate(timeout=100)
        assert process.returncode not in (0, None), (words, out, err)
        assert said in err, (words, err)
        assert "Traceback" not in err
    assert lab("runs").startswith("No runs yet")
    _, err = lab.start("runs", "--state", "runing").communicate(timeout=100)
    assert "did you mean running?" in err
    assert not list((lab.home / "runs").glob("*"))


def test_secrets_are_in_no_file(lab: Lab) -> None:
    secret, token = "s3cret-value-of-a-key", "hf_abcdefghijklmnopqrstuvwxyz"
    shown = "import os, sys; print(len(sys.argv[2]), len(os.environ['WANDB_API_KEY']), len(os.environ['MY_TOKEN']))"
    # What the program prints itself is masked at the end of the job.
    shown += "\nprint('careless', sys.argv[2], os.environ['MY_TOKEN'], file=sys.stderr)\n"
    (lab.project / "show.py").write_text(shown)
    arguments = ("--env", f"MY_TOKEN={token}", "--", "python3", "show.py", "--password", secret)
    out = lab("run", *arguments, WANDB_API_KEY=secret)
    assert out.startswith(f"{len(secret)} {len(secret)} {len(token)}\n")
    assert lab("logs", "show-1").endswith(f"careless {'*' * len(secret)} {'*' * len(token)}\n")
    for path in lab.home.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert secret.encode() not in data, path
            assert token.encode() not in data, path


@pytest.mark.slow
def test_runs_are_cancelled_and_removed_by_name(lab: Lab) -> None:
    name = lab("run", "-d", "--", "bash", "-c", "sleep 300").strip()
    sweep = lab("run", "-d", "-m", "x=1,2", "--", "bash", "-c", "sleep 300 #").strip()
    until(lambda: lab.state(name) == "RUNNING", "it runs")
    _, err = lab.start("remove", name, "--yes").communicate(timeout=100)
    assert f"{name} is RUNNING" in err
    lab("cancel", name, sweep)
    until(lambda: lab("runs", "--state", "cancelled", "--json").count('"name"') == 3, "they are cancelled")
    assert lab("cancel", name) == f"{name} is CANCELLED already\n"
    assert [line.split()[:2] for line in lab("runs").splitlines()[1:]] == [[sweep, "CANCELLED"], [name, "CANCELLED"]]
    assert f"{sweep}.2" in lab("runs", "-a")
    lab("run", "--", "python3", "train.py")
    for strange in (f"{sweep}.1", "..", "../runs", ".", "trai"):
        lab("remove", strange, "--yes", status=1)
    assert "would remove 3 runs and free" in lab("remove", name, sweep)
    lab("remove", name, sweep, "--yes")
    assert {path.name for path in (lab.home / "runs").iterdir()} == {"train-1"}
    assert not list((lab.home / "sweeps").iterdir())
    assert lab("remove", "--before", "1h") == "No run is that old.\n"
    lab("remove", "--before", "0s", "--yes")
    assert lab("runs").startswith("No runs yet")


def test_a_run_that_has_ended_keeps_what_it_wrote_and_has_its_code_again_in_another_life(lab: Lab) -> None:
    lab("run", "--name", "w", "--", "bash", "-c", "grep -c rank train.py >> out; exit 3", status=3)
    code = lab.home / "runs" / "w-1" / "code"
    until(lambda: sorted(path.name for path in code.iterdir()) == [".git-snapshot-done", "out"], "its code is removed")
    space = json.loads(lab("space", "--json"))
    assert [(line["name"], line["open"]) for line in space["lines"]] == [("w-1", 0)]
    assert space["untrimmed"] == 0
    until(lambda: lab.state("w-1") == "FAILED", "Slurm knows its end")
    lab.slurm("scontrol", "requeue", json.loads(lab("show", "w-1", "--json"))["run"]["job_id"])
    # Slurm 22.05 lets a job that was requeued wait for two minutes.
    until(lambda: (code / "out").read_text() == "1\n1\n", "it has run once more", 250)


def test_a_run_that_waits_says_why(lab: Lab) -> None:
    name = lab("run", "-d", "--slurm=--hold", "--", "python3", "train.py").strip()
    until(lambda: "JobHeldUser" in lab.slurm("squeue", "-h", "-o", "%r", "-n", name), "Slurm has its reason")
    assert "Waits      JobHeldUser" in lab("show", name)
    _, err = lab.start("logs", name).communicate(timeout=100)
    assert err == f"spritz: {name} is PENDING: no output yet; `spritz show {name}` says more\n"
    if "22.05" not in lab.slurm("sinfo", "--version"):
        assert "scontrol release" in lab("why", name)
        _, err = lab.start("why", "nothing-of-that-name").communicate(timeout=100)
        assert "no such job, and no run of that name" in err
    assert name in lab("completion", "words", "show").splitlines()
    lab("pause", name)
    assert f"`spritz resume {name}` lets it go on" in lab("show", name)
    lab("cancel", name)
    until(lambda: lab.state(name) == "CANCELLED", "it is cancelled")
    assert lab("show", name).splitlines()[0] == f"{name}  CANCELLED"


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_nodes_clock_may_differ(lab: Lab, hours: int) -> None:
    skewed = lab.directory / "skewed"
    skewed.write_text(f"""date() {{ if [ "$1" = +%s.%N ]; then echo $(($(command date +%s) + {3600 * hours})).5
    else command date "$@"; fi; }}\n""")
    lab("run", "--", "python3", "train.py", BASH_ENV=str(skewed))
    assert lab.state("train-1") == "COMPLETED"
    assert ("behind the clock here" if hours < 0 else "ahead of the clock here") in lab("show", "train-1")
    assert lab("run", "-d", "--", "python3", "train.py") == "train-2\n"


def test_a_job_killed_from_outside_and_one_forgotten_are_told(lab: Lab) -> None:
    name = lab("run", "-d", "--", "bash", "-c", "sleep 300").strip()
    until(lambda: lab.state(name) == "RUNNING", "it runs")
    lab.slurm("scancel", str(lab.run_json(name)["index"]["job_id"]))  # type: ignore[index]  # JSON
    until(lambda: lab.state(name) == "CANCELLED", "it is cancelled")
    process = lab.start("logs", name)
    assert "it was cancelled" in process.communicate(timeout=100)[1]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_submission_that_is_killed_loses_no_job(lab: Lab, moment: str) -> None:
    """sbatch is a script that kills its parent, `spritz`, before or after it has queued the job."""
    real = next(path for place in lab.path.split(":") if (path := Path(place) / "sbatch").exists())
    (lab.directory / "bin").mkdir()
    fake = lab.directory / "bin" / "sbatch"
    queue = f'{real} "$@"\n' if moment == "after" else ""
    fake.write_text(f"#!/bin/sh\n{queue}kill -9 $PPID\n")
    fake.chmod(0o755)
    process = lab.start("run", "--", "python3", "train.py", PATH=f"{fake.parent}:{lab.path}")
    process.communicate(timeout=100)
    assert process.returncode == -signal.SIGKILL
    if moment == "after":
        until(lambda: lab.state("train-1") == "COMPLETED", "the job is found and has ended", 100)
        assert lab.slurm("squeue", "-h", "-o", "%i") == ""
    else:
        assert lab.state("train-1") == "CREATED"
    assert lab("run", "-d", "--", "python3", "train.py") == "train-2\n"


def test_what_a_program_logs_for_tensorboard_is_its_metrics(lab: Lab) -> None:
    (lab.project / "logs.py").write_text(
        "import base64, os\n"
        "os.makedirs('runs/a')\n"
        "open('runs/a/events.out.tfevents.1.h', 'wb').write(base64.b64decode('"
        "GAAAAAAAAACjf0siCSgxfvRCw9pBGg1icmFpbi5FdmVudDoyAdNuNxkAAAAAAAAAi/EIKAn8JX70QsPaQRACKgwKCgoDYWNjFQAAAD+GoR7s"
        "'))\n"
    )
    lab("run", "--", "python3", "logs.py")
    lab("run", "--", "python3", "-c", "pass")
    (run,) = json.loads(lab("runs", "--json", "--metric", "acc>0.4"))["runs"]
    assert (run["name"], run["metrics"]) == ("logs-1", {"acc": 0.5})
    assert lab("compare", "logs-1", "python3-1", "--columns", "acc").splitlines()[1].split()[-1] == "0.5"


def test_an_exported_run_runs_again_from_another_home(lab: Lab) -> None:
    (lab.project / "train.py").write_text("print('as it was')\n")
    lab("run", "--", "python3", "train.py")
    (lab.project / "train.py").write_text("print('edited')\n")
    archive = lab.directory / "bundle.tar.gz"
    lab("export", "train-1", str(archive))
    lab("export", "train-1", str(archive), status=1)  # it exists
    other = str(lab.directory / "other")
    assert lab("import", str(archive), SPRITZ_HOME=other) == "train-1\n"
    assert lab("rerun", "train-1", SPRITZ_HOME=other) == "as it was\n"
    assert "## train-2\n\n```sh\npython3 train.py\n```" in lab("show", "train-2", "--markdown", SPRITZ_HOME=other)
