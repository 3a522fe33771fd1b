"""How many system calls a command makes before it first says something to a daemon: counted, since time is noise.

With a server that is the launcher's word to it; without, Python's to the controller.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.launched import COMPILER, Launched
from tests.unit.cli.site import Site, open_site

#: Beyond what the interpreter itself does: loading some 65 modules takes a dozen each.
DIRECT_MAX = 1100
#: Signals' dispositions and limits are fifty of them.
SERVED_MAX = 110

_REFUSED = 99
_DIRECT = "from spritz.commandserver.direct import entry; entry()"


@pytest.fixture(scope="session")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that counts."""
    if not COMPILER:
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("counter") / "count_calls"
    source = Path(__file__).with_name("count_calls.c")
    built = subprocess.run([COMPILER, "-std=gnu11", "-o", path, source], capture_output=True, timeout=100)
    if built.returncode:
        pytest.skip("this C library cannot ask for system calls")
    return path


@pytest.fixture(scope="session")
def compiled(packages: Path) -> Path:
    """Spritz as pip leaves it: with its byte code."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", packages], timeout=200, check=True)
    return packages


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A controller in this process, with a job."""
    directory = tmp_path / "site"
    directory.mkdir()
    with open_site(directory) as site:
        site.environ["SLURM_CONF"] = str(directory / "slurm.conf")
        site.submit(hold=True)
        yield site


def count(counter: Path, words: list[str], environment: dict[str, str]) -> int:
    done = subprocess.run(
        [counter, *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=100
    )
    if done.returncode == _REFUSED:
        pytest.skip("tracing is refused here")
    assert b"calls=" in done.stderr, done.stderr
    return int(done.stderr.split(b"calls=")[1].split()[0])


COMMANDS = (
    ["squeue", "-j", "1"],
    ["sinfo"],
    ["scontrol", "show", "job", "1"],
    ["sbatch", "-H", "--wrap", "true"],
)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_few_calls_before_the_first_word_to_the_controller(
    counter: Path, site: Site, compiled: Path, words: list[str]
) -> None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/", "PYTHONPATH": str(compiled), "USER": "alice"}
    environment["SLURM_CONF"] = site.environ["SLURM_CONF"]
    bare = count(counter, [sys.executable, "-P", "-c", "pass"], environment)
    whole = count(counter, [sys.executable, "-P", "-c", _DIRECT, *words], environment)
    assert whole - bare <= DIRECT_MAX


def test_fewer_still_before_the_launchers_word_to_the_server(counter: Path, launched: Launched) -> None:
    launched.warm()
    assert count(counter, [str(launched.directory / "squeue"), "--version"], launched.environment()) <= SERVED_MAX
