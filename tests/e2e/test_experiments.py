"""Runs from end to end: on a cluster of ours, and on a real Slurm where its packages are installed and we are root."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.cluster import BIN, until

TRAIN = """\
import os, sys, time
print("rank", os.environ["SLURM_PROCID"], "of", os.environ["SLURM_NTASKS"], *sys.argv[1:])
for step in range(3):
    print("step", step)
sys.exit(int(os.environ.get("FAIL_RANK") == os.environ["SLURM_PROCID"]) * 7)
"""


@dataclass
class Lab:
    """A project, a home for runs, and the environment that leads to a cluster."""

    directory: Path
    conf: Path
    path: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def project(self) -> Path:
        return self.directory / "project"

    @property
    def home(self) -> Path:
        return self.directory / "home"

    def variables(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("TMPDIR", "XDG_RUNTIME_DIR") if name in os.environ}
        return {
            **kept, "PATH": self.path, "HOME": str(self.directory), "SLURM_CONF": str(self.conf), "LC_ALL": "C.UTF-8",
            "SPRITZ_HOME": str(self.home), "SPRITZ_NO_SERVER": "1", "USER": os.environ.get("USER", "root"),
            **self.environment, **more,
        }  # fmt: skip

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "from spritz.cli.spritz import entry; entry()", *words]
        return subprocess.Popen(
            command, cwd=self.project, env=self.variables(**variables), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, *words: str, status: int = 0, **variables: str) -> str:
        """What `spritz WORDS` printed. Fails unless it ended with `status`."""
        process = self.start(*words, **variables)
        out, err = process.communicate(timeout=100)
        assert process.returncode == status, f"{words}: {process.returncode}\n{out}\n{err}"
        return out

    def slurm(self, *words: str) -> str:
        return subprocess.run(words, env=self.variables(), text=True, capture_output=True, timeout=100).stdout

    def run_json(self, name: str) -> dict[str, object]:
        loaded: dict[str, object] = json.loads(self("show", name, "--json"))
        return loaded

    def state(self, name: str) -> str:
        index = self.run_json(name)["index"]
        assert isinstance(index, dict)
        return str(index["state"])


def git(directory: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True)


@contextmanager
def ours(directory: Path) -> Iterator[tuple[Path, str]]:
    """(slurm.conf, PATH) of a cluster of ours: two virtual nodes with two GPUs each."""
    lab = directory / "lab"
    spritz = [sys.executable, "-c", "from spritz.cli.spritz import entry; entry()"]
    shape = ("--nodes", "2", "--cpus", "4", "--memory", "2G", "--gpus", "2")
    subprocess.run([*spritz, "up", "--dir", str(lab), *shape], check=True, capture_output=True, timeout=100)
    try:
        yield lab / "etc" / "slurm.conf", f"{BIN}:{os.environ['PATH']}"
    finally:
        subprocess.run([*spritz, "down", "--dir", str(lab)], check=True, capture_output=True, timeout=100)


@contextmanager
def real(directory: Path) -> Iterator[tuple[Path, str]]:
    """The same of Debian's Slurm 22.05, with accounting."""
    needed = ("slurmctld", "slurmdbd", "munged", "mariadbd")
    if os.geteuid() != 0 or any(shutil.which(name, path=f"/usr/sbin:{os.environ['PATH']}") is None for name in needed):
        pytest.skip("a real Slurm needs root and Debian's slurm-wlm, slurmdbd, munge and mariadb-server")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.real", str(directory / "real")],
        cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        conf = next((line.partition("=")[2].strip() for line in process.stdout if line.startswith("ready:")), "")
        assert conf, "the real Slurm did not start"
        yield Path(conf), "/usr/sbin:/usr/bin:/sbin:/bin"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=100)


@pytest.fixture(scope="module", params=["ours", "real"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    starting = ours if request.param == "ours" else real
    with starting(tmp_path_factory.mktemp("c")) as found:
        yield found


@pytest.fixture
def lab(cluster: tuple[Path, str], tmp_path: Path) -> Lab:
    made = Lab(tmp_path, *cluster)
    made.project.mkdir()
    git(made.project, "init", "-q", "-b", "main")
    (made.project / "train.py").write_text(TRAIN)
    git(made.project, "add", "-A")
    git(made.project, "commit", "-q", "-m", "one")
    return made


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


def test_a_queued_run_has_the_code_of_its_submission(lab: Lab) -> None:
    held = lab("run", "-d", "--slurm=--hold", "--", "python3", "train.py").strip()
    (lab.project / "train.py").write_text("print('edited')\n")
    lab.slurm("scontrol", "release", str(lab.run_json(held)["index"]["job_id"]))  # type: ignore[index]  # JSON
    until(lambda: lab.state(held) == "COMPLETED", "the run ends")
    assert lab("logs", held).startswith("rank 0 of 1\n")
    assert lab("run", "--", "python3", "train.py") == "edited\n"
    difference = lab("diff", held, "train-2")
    assert "+print('edited')\n" in difference
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


def test_ctrl_c_cancels_the_job(lab: Lab) -> None:
    process = lab.start("run", "--", "bash", "-c", "echo ready; sleep 300")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=100)
    assert process.returncode == 130
    until(lambda: lab.state("bash") == "CANCELLED", "the job is cancelled")


def test_what_cannot_run_is_refused_before_it_queues_and_leaves_nothing(lab: Lab) -> None:
    for words in (
        ("--", "python3", "missing.py"),
        ("--", "no-such-program"),
        ("-p", "nonexistent", "--", "python3", "train.py"),
        ("--template", "torchrn", "--", "python3", "train.py"),
        (),
    ):
        process = lab.start("run", "-d", *words)
        out, err = process.communicate(timeout=100)
        assert process.returncode not in (0, None), (words, out, err)
        assert "Traceback" not in err
    assert lab("runs").startswith("No runs yet")
    assert not list((lab.home / "runs").glob("*"))


def test_secrets_are_in_no_file(lab: Lab) -> None:
    secret, token = "s3cret-value-of-a-key", "hf_abcdefghijklmnopqrstuvwxyz"
    shown = "import os, sys; print(len(sys.argv[2]), len(os.environ['WANDB_API_KEY']), len(os.environ['MY_TOKEN']))"
    (lab.project / "show.py").write_text(shown)
    arguments = ("--env", f"MY_TOKEN={token}", "--", "python3", "show.py", "--password", secret)
    assert lab("run", *arguments, WANDB_API_KEY=secret) == f"{len(secret)} {len(secret)} {len(token)}\n"
    for path in lab.home.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert secret.encode() not in data, path
            assert token.encode() not in data, path


def test_a_job_killed_from_outside_and_one_forgotten_are_told(lab: Lab) -> None:
    name = lab("run", "-d", "--", "bash", "-c", "sleep 300").strip()
    until(lambda: lab.state(name) == "RUNNING", "it runs")
    lab.slurm("scancel", str(lab.run_json(name)["index"]["job_id"]))  # type: ignore[index]  # JSON
    until(lambda: lab.state(name) == "CANCELLED", "it is cancelled")
    process = lab.start("logs", name)
    assert "it was cancelled" in process.communicate(timeout=100)[1]
