"""What sbatch, srun and salloc may import before their first byte to the controller: that is most of what they cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.site import Site
from tests.unit.cli.start_up import PRELUDE, beyond_msgspec

#: none of these is worth its time here
HEAVY = {
    "argparse", "ast", "asyncio", "collections", "dataclasses", "datetime", "decimal", "functools",
    "inspect", "json", "logging", "numpy", "re", "socket", "subprocess", "tempfile", "threading", "typing", "uuid",
}  # fmt: skip

_SCRIPT = (
    PRELUDE
    + """\
import os
from importlib import import_module
main = import_module("spritz.cli." + sys.argv[1]).main
from spritz.cli.call.context import Context
import spritz.client.command.sync
def report(connection, requests):
    os.write(1, loaded().encode())
    os._exit(0)
spritz.client.command.sync.Connection.send_many = report
main(sys.argv[2:], Context(sys.argv[1], os.environ, "/", sys.stdin, sys.stdout, sys.stderr))
"""
)


def before_the_first_byte(*words: str, conf: Path) -> set[str]:
    """Modules that are loaded when the first request is sent, without those that msgspec loads."""
    done = subprocess.run(
        # No site-packages of the tests' own: what a start of ours loads is the question.
        [sys.executable, "-c", _SCRIPT, *words],
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
        env={"PATH": "/usr/bin:/bin", "SLURM_CONF": str(conf)},
    )
    assert done.returncode == 0, done.stderr
    return beyond_msgspec(set(done.stdout.split()))


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("sbatch", "--wrap", "true"), 49),
        (("sbatch", "-N2", "-n4", "--mem=1G", "-t", "10", "--gres=gpu:1", "--wrap", "true"), 53),
        (("srun", "true"), 63),
        (("srun", "-N4", "-n4", "-l", "true"), 63),
        (("salloc", "true"), 59),
    ],
)
def test_little_is_loaded_before_the_first_byte(site: Site, words: tuple[str, ...], most: int) -> None:
    modules = before_the_first_byte(*words, conf=site.directory / "slurm.conf")
    assert not modules & HEAVY
    assert len(modules) <= most, f"{len(modules)} modules: {sorted(modules)}"


def test_what_runs_a_step_is_loaded_while_the_controller_decides(site: Site) -> None:
    modules = before_the_first_byte("srun", "true", conf=site.directory / "slurm.conf")
    assert not [
        name
        for name in modules
        if name in ("spritz.model.queries.steps", "spritz.cli.jobs.launch.run", "spritz.cli.jobs.launch.create")
    ]


@pytest.mark.parametrize("command", ["sbatch", "srun", "salloc", "sattach", "sbcast"])
def test_the_version_needs_neither_slurm_conf_nor_a_controller(command: str) -> None:
    program = Path(sys.executable).parent / command
    done = subprocess.run(
        [program, "--version"],
        capture_output=True,
        text=True,
        timeout=100,
        env={"SLURM_CONF": "/nosuch", "SPRITZ_NO_SERVER": "1"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "slurm 25.05.0\n", "")
