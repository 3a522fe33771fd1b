"""`pip install .` under a prefix of its own, and a cluster started from it by hand, as an administrator does.

The prefix is a virtual environment, or a bare directory (`pip install --prefix`), with a launcher and without one.
Source: slurmctld(8), slurmd(8), scontrol(1).
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz import SLURM_VERSION
from tests.e2e.cluster import is_alive, until
from tests.ports import free_port
from tests.sources import copy_sources

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

COMMANDS = (
    *("sbatch", "srun", "salloc", "sattach", "sbcast", "sgather", "scancel", "squeue", "sinfo", "scontrol"),
    *("scrontab", "strigger"),
    *("spritz", "slurmctld", "slurmd"),
)


@pytest.fixture(scope="module", params=["environment", "bare", "bare, without a compiler"])
def prefix(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh prefix with Spritz in it, installed from a copy of the sources. Its path has a blank."""
    base = tmp_path_factory.mktemp("install")
    source = base / "source"
    copy_sources(source)
    words: list[str | Path] = ["-c", source / "constraints.txt"]
    if request.param == "environment":
        prefix = base / "a prefix"
        python = prefix / "bin/python"
        subprocess.run([sys.executable, "-m", "venv", prefix], check=True)
    else:
        # pip lets be what its own Python has already: it is one that has nothing.
        prefix = base / "prefix"
        python = base / "installer/bin/python"
        subprocess.run([sys.executable, "-m", "venv", base / "installer"], check=True)
        words += ["--prefix", prefix]
    done = subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", "install", "-q", *words, f"{source}[cluster]"],
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ | ({"SPRITZ_NO_LAUNCHER": "1"} if "without" in request.param else {}),
    )
    assert done.returncode == 0, done.stderr
    shutil.rmtree(source)
    return prefix


def environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing that points to this installation: no SLURM_CONF, no PYTHONPATH. Root's clusters are below `home` too."""
    names = {"HOME": str(home), "XDG_STATE_HOME": str(home / ".local/state")}
    return {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(_private(home / "run"))} | names | more


def _private(path: Path) -> Path:
    """A runtime directory: the command server's socket is in it, and the server ends when it is gone."""
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def test_everything_is_where_administrators_look(prefix: Path, tmp_path: Path) -> None:
    for name in COMMANDS:
        assert os.access(prefix / "bin" / name, os.X_OK), name
    for name in ("slurmctld", "slurmd", "slurmdbd"):
        assert os.access(prefix / "sbin" / name, os.X_OK), name
        unit = (prefix / f"lib/systemd/system/{name}.service").read_text()
        assert f"{name} --systemd" in unit
        assert "Type=notify" in unit
    assert (prefix / "etc/slurm.conf.example").is_file()
    for path in [prefix / "bin" / name for name in COMMANDS if name != "spritz"] + [prefix / "sbin/slurmd"]:
        done = subprocess.run([path, "-V"], env=environment(tmp_path), capture_output=True, text=True, timeout=100)
        assert (done.returncode, done.stdout) == (0, f"slurm {SLURM_VERSION}\n"), path
    done = subprocess.run([prefix / "bin/spritz", "--version"], capture_output=True, text=True, timeout=100)
    assert re.fullmatch(r"spritz \d+\.\d+\.\d+(\.dev\d+)?\n", done.stdout)


@pytest.fixture
def site(prefix: Path, tmp_path: Path) -> Iterator[Path]:
    """PREFIX/etc/slurm.conf with two nodes on this host, and a directory for what the daemons write."""
    base = tmp_path / "var"
    base.mkdir()
    user = pwd.getpwuid(os.getuid()).pw_name
    nodes = "\n".join(
        f"NodeName=node{number} NodeHostname=localhost NodeAddr=127.0.0.1 Port={free_port()} CPUs=2 RealMemory=500"
        for number in (1, 2)
    )
    (prefix / "etc/slurm.conf").write_text(
        f"""ClusterName=installed
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={free_port()}
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool-%n
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd-%n.pid
SlurmctldLogFile={base}/slurmctld.log
SlurmdLogFile={base}/slurmd-%n.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
{nodes}
PartitionName=main Nodes=ALL Default=YES State=UP
"""
    )
    yield base
    for path in base.glob("*.pid"):
        os.kill(int(path.read_text()), 9)
    (prefix / "etc/slurm.conf").unlink()


def test_daemons_and_commands_of_the_prefix_find_its_configuration_by_themselves(
    prefix: Path, site: Path, tmp_path: Path
) -> None:
    def run(*words: str) -> str:
        done = subprocess.run(
            [prefix / words[0], *words[1:]],
            env=environment(tmp_path, PATH=f"{prefix}/bin:/usr/bin:/bin"),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return str(done.stdout)

    run("sbin/slurmctld")
    run("sbin/slurmd", "-N", "node1")
    run("sbin/slurmd", "-N", "node2")
    pids = {path.stem: int(path.read_text()) for path in site.glob("*.pid")}
    assert set(pids) == {"slurmctld", "slurmd-node1", "slurmd-node2"}
    assert run("bin/sinfo", "-h", "-o", "%D %T").split() == ["2", "idle"]
    assert run(
        "bin/sbatch", "--wait", "-N2", "-o", "out", "--wrap", "srun printenv SLURM_NODEID; echo $SLURM_JOB_NODELIST"
    ) == ("Submitted batch job 1\n")
    assert sorted((tmp_path / "out").read_text().split()) == ["0", "1", "node[1-2]"]
    assert run("bin/srun", "-N2", "-n2", "sh", "-c", "echo $SLURMD_NODENAME").split() in (
        ["node1", "node2"],
        ["node2", "node1"],
    )
    run("bin/scontrol", "reconfigure")
    assert run("bin/squeue", "-h") == ""
    run("bin/scontrol", "shutdown")
    assert not (site / "slurmctld.pid").exists(), "scontrol shutdown returns when it has stopped"
    until(lambda: not any(map(is_alive, pids.values())), "the node daemons end too")
    assert list(site.glob("*.pid")) == []


def test_spritz_up_needs_nothing_but_the_installation(prefix: Path, tmp_path: Path) -> None:
    def spritz(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [prefix / "bin/spritz", *words], env=environment(tmp_path), capture_output=True, text=True, timeout=100
        )

    up = spritz("up")
    try:
        assert up.returncode == 0, up.stderr
        done = subprocess.run(
            [prefix / "bin/sbatch", "--wait", "-o", "/dev/null", "--wrap", "true"],
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert (done.returncode, done.stdout) == (0, "Submitted batch job 1\n"), done.stderr
        assert (tmp_path / ".local/state/spritz/default/etc/slurm.conf").is_file()
    finally:
        assert spritz("down").returncode == 0
