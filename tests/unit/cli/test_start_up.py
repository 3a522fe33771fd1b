"""Commands start fast: what each call may import. A module that creeps in costs every call of every script.

Counts are of modules beyond those that msgspec or, without it, `typing` loads by itself (docs/decisions/0168).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.site import Site
from tests.unit.cli.start_up import PRELUDE, beyond_msgspec, modules_of

#: none of these has a place in a command that looks or steers
HEAVY = {
    "argparse", "asyncio", "collections", "concurrent.futures", "dataclasses", "decimal", "functools",
    "inspect", "json", "logging", "numpy", "re", "socket", "sqlalchemy", "ssl", "subprocess", "tempfile", "threading",
    "typing", "typing_extensions", "unittest", "uuid",
}  # fmt: skip

_SCRIPT = (
    PRELUDE
    + """\
from importlib import import_module
from spritz.cli.call.context import Context
from spritz.cli.call.entry import call
import io, os
main = import_module("spritz.cli." + sys.argv[1]).main
context = Context(sys.argv[1], os.environ, "/", io.StringIO(), io.StringIO(), io.StringIO())
status = call(main, sys.argv[2:], context)
print(loaded())
sys.exit(0 if context.stderr.getvalue() == "" else context.stderr.getvalue())
"""
)


#: `_SCRIPT` up to the first request: daemons are there that say nothing
_FIRST = (
    PRELUDE
    + """\
import os
from importlib import import_module
main = import_module("spritz.cli." + sys.argv[1]).main
from spritz.cli.call.context import Context
import _socket, spritz.client.command.sync
def connect(*arguments, **options):
    ends.extend(_socket.socketpair())
    return ends[-1]
def report(connection, requests):
    os.write(1, loaded().encode())
    os._exit(0)
ends = []
spritz.client.command.sync._open_unix = spritz.client.command.sync._open_tcp = connect
spritz.client.command.sync.Connection.send_many = report
main(sys.argv[2:], Context(sys.argv[1], os.environ, "/", sys.stdin, sys.stdout, sys.stderr))
"""
)


def imported(*words: str, conf: Path, script: str = _SCRIPT) -> set[str]:
    """Modules that a call imports, without those that msgspec loads."""
    # Some builds of Python have these two built in: then nothing is imported.
    return beyond_msgspec(loaded(*words, conf=conf, script=script)) - {"math", "select"}


def loaded(*words: str, conf: Path, script: str = _SCRIPT) -> set[str]:
    """Modules that a call imports."""
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        capture_output=True,
        text=True,
        timeout=100,
        env={"PATH": "/usr/bin:/bin", "SLURM_CONF": str(conf)},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("squeue",), 49),
        (("squeue", "-j", "1,2"), 52),
        (("sinfo",), 54),
        (("scancel", "99"), 46),
        (("scontrol", "ping"), 37),
        (("scontrol", "show", "hostnames", "n[1-4]"), 24),
        (("scontrol", "show", "job"), 63),
        (("squeue", "--version"), 14),
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


#: what asks the database loads more, yet none of the large ones
_RECORDS = HEAVY - {"collections", "functools", "re", "socket", "typing"}


@pytest.mark.parametrize("words", [("squeue",), ("sinfo",), ("scontrol", "ping")], ids="-".join)
def test_listings_do_without_whole_records_of_jobs(site: Site, words: tuple[str, ...]) -> None:
    """`Reason`, an enumeration of 130, takes as long to create as ten modules."""
    modules = imported(*words, conf=site.directory / "slurm.conf")
    assert not modules & {"spritz.model.job.record", "spritz.model.reasons", "spritz.model.cluster.settings"}


def test_msgspec_itself_loads_no_more_than_it_did() -> None:
    """Half of the time of a command in a process of its own: another release of msgspec is to be looked at.

    `inspect` takes as long as all of a command's own modules. Without `typing_extensions` msgspec has no use for it.
    """
    modules = modules_of("msgspec")
    assert not modules & {"inspect", "typing_extensions"}
    assert len(modules) <= 60, f"{len(modules)} modules: {sorted(modules)}"


def test_a_command_in_a_process_of_its_own_loads_no_typing_extensions() -> None:
    program = str(Path(sys.executable).parent / "spritz-command")
    words = [sys.executable, "-P", "-X", "importtime", program, "sbatch", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, env={}, check=True)
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "msgspec" in names
    assert "inspect" not in names  # typing_extensions stands in the list, as an attempt


@pytest.mark.parametrize(
    "words",
    [("squeue", "--version"), ("sinfo", "--help"), ("srun", "--usage"), ("scontrol", "show", "hostnames", "n[1-4]")],
)
def test_a_call_that_asks_no_daemon_does_without_msgspec(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nSlurmctldHost=h\n")
    assert "msgspec" not in loaded(*words, conf=tmp_path / "slurm.conf")


@pytest.mark.parametrize(
    ("words", "most", "heavy"),
    [
        (("sprio",), 44, HEAVY),
        (("sshare",), 42, HEAVY),
        (("sdiag",), 38, HEAVY),
        (("sstat", "-j", "1"), 72, HEAVY),
        (("sacct", "-j", "1"), 63, HEAVY),
        (("scontrol", "show", "node"), 39, HEAVY),
        (("scontrol", "update", "jobid=1", "comment=x"), 51, HEAVY),
        (("sacctmgr", "show", "cluster"), 64, _RECORDS),
        (("sreport", "cluster", "utilization"), 63, _RECORDS),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_little_is_loaded_before_the_first_byte(
    words: tuple[str, ...], most: int, heavy: set[str], tmp_path: Path
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=c\nSlurmctldHost=h\nAccountingStorageType=accounting_storage/slurmdbd\n")
    modules = imported(*words, conf=conf, script=_FIRST)
    assert not modules & heavy
    assert len(modules) <= most, f"{len(modules)} modules: {sorted(modules)}"


def test_names_need_no_controller_and_no_msgpack(site: Site) -> None:
    modules = imported("scontrol", "show", "hostnames", "n1", conf=site.directory / "slurm.conf")
    assert "spritz.client.command.sync" not in modules
    assert "spritz.model.queries" not in modules


def test_a_locale_that_python_chose_is_not_the_users() -> None:
    seen_in = "Context.of_process('x').environ.get('LC_CTYPE', 'unset')"
    script = f"from spritz.cli.call.context import Context; print({seen_in})"

    def seen(**environ: str) -> str:
        words = [sys.executable, "-c", script]
        return subprocess.run(words, capture_output=True, text=True, timeout=100, env=environ).stdout.strip()

    assert seen() == "unset"
    assert seen(LC_CTYPE="C.UTF-8") == "C.UTF-8"
