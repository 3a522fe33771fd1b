"""Commands start fast: what each call may import. A module that creeps in costs every call of every script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.site import Site

#: none of these has a place in a command that looks or steers
HEAVY = {
    "argparse", "asyncio", "collections", "concurrent.futures", "contextlib", "dataclasses", "decimal", "functools",
    "inspect", "json", "logging", "numpy", "re", "socket", "sqlalchemy", "ssl", "subprocess", "tempfile", "threading",
    "typing", "typing_extensions", "unittest", "uuid",
}  # fmt: skip

_SCRIPT = """\
import sys
before = set(sys.modules)
from importlib import import_module
from spritz.cli.context import Context
from spritz.cli.entry import call
import io, os
main = import_module("spritz.cli." + sys.argv[1]).main
context = Context(sys.argv[1], os.environ, "/", io.StringIO(), io.StringIO(), io.StringIO())
status = call(main, sys.argv[2:], context)
print("\\n".join(sorted(set(sys.modules) - before)))
sys.exit(0 if context.stderr.getvalue() == "" else context.stderr.getvalue())
"""


def imported(*words: str, conf: Path) -> set[str]:
    """Modules that a call imports."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "SLURM_CONF": str(conf)},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("squeue",), 56),
        (("squeue", "-j", "1,2"), 59),
        (("sinfo",), 61),
        (("scancel", "99"), 49),
        (("scontrol", "ping"), 52),
        (("scontrol", "show", "hostnames", "n[1-4]"), 33),
        (("scontrol", "show", "job"), 70),
        (("squeue", "--version"), 26),
    ],
)
def test_a_call_imports_little(site: Site, words: tuple[str, ...], most: int) -> None:
    if words[0] == "scontrol" and words[-1] == "job":
        site.submit(hold=True)
    modules = imported(*words, conf=site.directory / "slurm.conf")
    assert not modules & HEAVY
    own = sorted(name for name in modules if name.startswith("spritz"))
    assert not [name for name in own if name.split(".")[1:2] in (["core"], ["scheduling"], ["controller"], ["node"])]
    assert len(modules) <= most, f"{len(modules)} modules: {sorted(modules)}"


def test_names_need_no_controller_and_no_msgpack(site: Site) -> None:
    modules = imported("scontrol", "show", "hostnames", "n1", conf=site.directory / "slurm.conf")
    assert "spritz.client.sync" not in modules
    assert "spritz.model.queries" not in modules


def test_a_locale_that_python_chose_is_not_the_users() -> None:
    script = "from spritz.cli.context import Context; print(Context.of_process('x').environ.get('LC_CTYPE', 'unset'))"

    def seen(**environ: str) -> str:
        words = [sys.executable, "-c", script]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, env=environ).stdout.strip()

    assert seen() == "unset"
    assert seen(LC_CTYPE="C.UTF-8") == "C.UTF-8"
