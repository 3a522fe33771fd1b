"""The two wheels of a release: one with the compiled parts, and one of Python alone that every machine can install."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

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
