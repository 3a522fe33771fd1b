"""The wheels of a release: spritz-base with the compiled parts, and of Python alone for every machine; and spritz,
which has no files but requires what a cluster needs.
"""

from __future__ import annotations

import email
import importlib.util
import os
import pwd
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz import __version__
from tests.e2e.cluster import is_alive, until
from tests.ports import free_port
from tests.sources import ROOT, copy_sources

# One worker builds each wheel once.
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("wheels")]


@pytest.fixture(scope="module", params=["compiled", pytest.param("pure", marks=pytest.mark.slow)])
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("wheel")
    copy_sources(base / "source")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", base, base / "source"],
        capture_output=True,
        text=True,
        timeout=500,
        env=os.environ | ({"SPRITZ_PURE": "1"} if request.param == "pure" else {}),
    )
    assert done.returncode == 0, done.stderr
    (built,) = base.glob("*.whl")
    assert built.name.endswith("-py3-none-any.whl") == (request.param == "pure")
    return built


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """A virtual environment with the wheel; what Spritz depends on is that of this one."""
    prefix = tmp_path / "prefix"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    python = prefix / "bin/python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "-q"]
    subprocess.run([*pip, "--no-deps", wheel], check=True, timeout=300)
    (library,) = (prefix / "lib").glob("python*/site-packages")
    (library / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return prefix


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with what spritz-base requires, and none of its extras."""
    prefix = tmp_path_factory.mktemp("light") / "prefix"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(prefix / "bin/python")]
    subprocess.run([*pip, "install", "-q", "--no-deps", wheel], check=True, timeout=300)
    (library,) = (prefix / "lib").glob("python*/site-packages")
    for name in ("msgspec", "yaml", "_yaml", "pynvml"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        found = Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
        (library / found.name).symlink_to(found)
    return prefix


@pytest.fixture
def environment(installed: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The user's; a cluster that was started in it is stopped."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    names = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(runtime), "XDG_STATE_HOME": str(tmp_path / "state")}
    env = {"PATH": f"{installed}/bin:/usr/bin:/bin", "TMPDIR": os.environ.get("TMPDIR", "/tmp"), **names}
    yield env
    subprocess.run([installed / "bin/spritz", "down"], env=env, capture_output=True, timeout=120, check=False)


def test_a_wheel_holds_what_is_not_python(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    missing = [
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*")
        if path.is_file()
        and path.suffix in {".sh", ".conf", ".service", ".txt", ".typed"}
        and ".egg-info" not in str(path)
        if str(path.relative_to(ROOT / "src")) not in names
    ]
    assert not missing
    assert any(name.endswith("LICENSE") for name in names)


def test_a_cluster_starts_from_a_wheel(environment: dict[str, str]) -> None:
    def run(*words: str) -> str:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    run("spritz", "up", "--quiet", "--nodes", "2")
    assert sorted(run("srun", "-N2", "-l", "sh", "-c", "echo $SLURM_NODEID").splitlines()) == ["0: 0", "1: 1"]


def test_a_node_and_a_login_host_need_no_package_of_the_controller(
    installed: Path, light: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """slurmctld of an installation that has all, slurmd and commands of one that has what spritz-base requires."""
    user = pwd.getpwuid(os.getuid()).pw_name
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        f"""ClusterName=roles
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={free_port()}
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={tmp_path}/ctld
SlurmdSpoolDir={tmp_path}/spool
SlurmctldPidFile={tmp_path}/slurmctld.pid
SlurmdPidFile={tmp_path}/slurmd.pid
SlurmctldLogFile={tmp_path}/slurmctld.log
SlurmdLogFile={tmp_path}/slurmd.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
NodeName=node1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={free_port()} CPUs=2 RealMemory=500
PartitionName=main Nodes=ALL Default=YES State=UP
"""
    )

    def run(*words: str | Path) -> str:
        done = subprocess.run(
            words,
            env={**environment, "SLURM_CONF": str(conf), "PATH": f"{light}/bin:/usr/bin:/bin"},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    run(installed / "bin/slurmctld")
    run(light / "bin/slurmd", "-N", "node1")
    pids = [int((tmp_path / f"{name}.pid").read_text()) for name in ("slurmctld", "slurmd")]
    try:
        assert run("sbatch", "--wait", "-o", "out", "--wrap", "srun printenv SLURMD_NODENAME").startswith("Submitted")
        assert (tmp_path / "out").read_text() == "node1\n"
        assert run("squeue", "-h") == ""
        assert run("spritz", "run", "--no-snapshot", "--name", "light", "--", "echo", "from a run").endswith(
            "from a run\n"
        )
    finally:
        run("scontrol", "shutdown")
        until(lambda: not any(map(is_alive, pids)), "the daemons end")


@pytest.mark.parametrize(
    ("words", "packages", "extra"),
    [
        (["spritz", "up"], "numpy, sqlalchemy and alembic", "cluster"),
        (["slurmctld", "-D"], "numpy", "controller"),
        (["slurmdbd", "-D"], "sqlalchemy and alembic", "accounting"),
    ],
)
def test_a_program_that_lacks_packages_names_their_extra(
    light: Path, environment: dict[str, str], words: list[str], packages: str, extra: str
) -> None:
    done = subprocess.run(
        [light / "bin" / words[0], *words[1:]], env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 1
    assert f"needs {packages}, not installed here\n" in done.stderr
    assert f"pip install 'spritz-base[{extra}]'" in done.stderr


def test_spritz_requires_what_a_cluster_needs_of_its_own_version(tmp_path: Path) -> None:
    copy_sources(tmp_path / "source")
    project = tmp_path / "source/packaging/spritz"
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, project], check=True, timeout=200
    )
    (built,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(built).namelist()
    assert all(".dist-info/" in name for name in names)
    (metadata,) = (name for name in names if name.endswith("/METADATA"))
    about = email.message_from_bytes(zipfile.ZipFile(built).read(metadata))
    assert (about["Name"], about["Version"]) == ("spritz", __version__)
    required = about.get_all("Requires-Dist") or []
    assert f"spritz-base[cluster]=={__version__}" in required
    assert f'spritz-base[rest]=={__version__}; extra == "rest"' in required
    assert not any("[dev]" in each for each in required)
