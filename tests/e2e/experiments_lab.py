"""A project and a home for runs, on a cluster of ours and on a real Slurm (its packages, and root): fixture `lab`."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.cluster import BIN

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
    #: for a command to end
    patience_seconds: float = 100

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
            "SPRITZ_HOME": str(self.home), "SPRITZ_NO_SERVER": "1", "USER": pwd.getpwuid(os.getuid()).pw_name,
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
        out, err = process.communicate(timeout=self.patience_seconds)
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


@pytest.fixture(scope="module", params=["ours", pytest.param("real", marks=pytest.mark.slow)])
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
