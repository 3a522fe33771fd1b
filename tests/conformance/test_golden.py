"""Every golden transcript, replayed on a cluster: the same commands must print and return what Slurm's did."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from .cluster import Cluster, known_values
from .transcript import Case, Place, parse, play

GOLDEN = Path(__file__).parent / "golden"
#: Sessions on a cluster with accounting.
ACCOUNTS = GOLDEN / "accounts"
#: Sessions on a cluster as a site has it.
SITE = GOLDEN / "site"
#: Cases that ours does not pass yet, or will never: `file: case name: reason`, one a line.
DIFFERENCES = GOLDEN / "differences.txt"
#: A case of more commands is not in the default run.
COMMANDS_MAX = 10


def differences() -> dict[str, str]:
    """`file: case` to the reason for which ours differs."""
    if not DIFFERENCES.exists():
        return {}
    found = {}
    for line in DIFFERENCES.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, reason = line.rsplit(" -- ", 1)
            found[name.strip()] = reason.strip()
    return found


def transcripts(folder: Path = GOLDEN) -> list[Path]:
    """The recorded sessions, in the order of their names."""
    return [path for path in sorted(folder.glob("*.txt")) if path != DIFFERENCES]


def is_slow(case: Case) -> bool:
    """Whether the case is left out of the default run: it was slow on Slurm, or has many commands to start."""
    return case.slow or len(case.steps) > COMMANDS_MAX or any(" in " in step.command for step in case.steps)


def cases(folder: Path = GOLDEN) -> list[ParameterSet]:
    """One parameter for each case, marked slow where the transcript says so."""
    return [
        pytest.param(case, id=f"{case.source.stem}: {case.name}", marks=[pytest.mark.slow] if is_slow(case) else [])
        for path in transcripts(folder)
        for case in parse(path)
    ]


@pytest.fixture
def directory() -> Iterator[Path]:
    """A scratch directory that every user may enter and write in."""
    path = Path(tempfile.mkdtemp(prefix="golden-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.xdist_group("conformance")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", cases())
def test_commands_do_what_slurm_does(
    case: Case, cluster: Cluster, directory: Path, request: pytest.FixtureRequest
) -> None:
    check(case, cluster, directory, request)


@pytest.mark.xdist_group("conformance")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", cases(ACCOUNTS))
def test_commands_of_accounting_do_what_slurm_does(
    case: Case, accounted: Cluster, directory: Path, request: pytest.FixtureRequest
) -> None:
    check(case, accounted, directory, request)


@pytest.mark.xdist_group("conformance")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", cases(SITE))
def test_commands_of_a_site_do_what_slurm_does(
    case: Case, site: Cluster, directory: Path, request: pytest.FixtureRequest
) -> None:
    check(case, site, directory, request)


def check(case: Case, cluster: Cluster, directory: Path, request: pytest.FixtureRequest) -> None:
    """Play the case; one that is known to differ must."""
    missing = [word for word in case.needs if word not in cluster.has]
    if missing:
        pytest.skip(f"this cluster or user lacks: {', '.join(missing)}")
    reason = differences().get(f"{case.source.stem}: {case.name}")
    if reason and "slurm-22.05" not in cluster.has:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    known = {**known_values(cluster.conf), "cwd": str(directory)}
    real = "slurm-22.05" in cluster.has
    place = Place(cluster.binaries, cluster.conf, directory, known, hints=not real)
    play(case, place)


_ALL = [*transcripts(), *transcripts(ACCOUNTS), *transcripts(SITE)]


def test_every_difference_names_a_case() -> None:
    names = {f"{path.stem}: {case.name}" for path in _ALL for case in parse(path)}
    assert set(differences()) <= names


@pytest.mark.parametrize("path", _ALL, ids=lambda path: path.stem)
def test_case_names_are_unique(path: Path) -> None:
    names = [case.name for case in parse(path)]
    assert len(names) == len(set(names))
