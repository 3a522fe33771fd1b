"""Batch scripts: which are taken, which options they carry, what of the environment goes along."""

from __future__ import annotations

import io
import os
import pwd
import tempfile
from pathlib import Path

import pytest

from spritz.cli.call.context import Context
from spritz.cli.jobs.submit import foreign, request_context, script
from spritz.model.errors import SpritzError


def context(cwd: Path | str = "/", environ: dict[str, str] | None = None, stdin: bytes = b"") -> Context:
    given = io.TextIOWrapper(io.BytesIO(stdin))
    return Context("sbatch", environ or {}, str(cwd), given, io.StringIO(), io.StringIO())


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "Batch script is empty!"),
        (b"\n\n  \n", "Batch script contains only whitespace!"),
        (b"echo\n", "This does not look like a batch script."),
        (b"#!/bin/sh\r\n", "Batch script contains DOS line breaks"),
        (b"#!/bin/sh\n\0", "contain a NULL character"),
        (b"\x7fELF\0\1", "This does not look like a batch script."),
    ],
)
def test_what_is_no_script_is_refused(content: bytes, complaint: str) -> None:
    with pytest.raises(SpritzError) as caught:
        script.read(None, context(stdin=content))
    assert complaint in caught.value.message


def test_a_script_is_found_here_or_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "job").write_bytes(b"#!/bin/sh\n")
    found = script.read("job", context(tmp_path, {"PATH": f"{tmp_path}/bin"}))
    assert (found.path, found.name) == (f"{tmp_path}/bin/job", "job")
    with pytest.raises(SpritzError, match="Unable to open file nosuch"):
        script.read("nosuch", context(tmp_path))


def test_bytes_that_are_no_utf8_stay_what_they_are() -> None:
    content = b"#!/bin/sh\n#SBATCH --comment='\xff'\n\xfe\n"
    found = script.read(None, context(stdin=content))
    assert found.content == content
    assert script.option_words(found) == [["--comment=\udcff"]]


def test_pbs_lines_are_options_of_ours() -> None:
    lines = [["-N", "name"], ["-l", "nodes=2:ppn=4,walltime=1:00:00"], ["-qlong"], ["-m", "be"], ["-V"], ["-r", "n"]]
    assert foreign.pbs_options(lines) == [
        ("job-name", "name"),
        ("nodes", "2"),
        ("ntasks-per-node", "4"),
        ("time", "1:00:00"),
        ("partition", "long"),
        ("mail-type", "BEGIN,END"),
        ("no-requeue", ""),
    ]


def test_bsub_lines_are_options_of_ours() -> None:
    assert foreign.bsub_options([["-J", "n"], ["-n", "4"], ["-W", "10"], ["-x"]]) == [
        ("job-name", "n"),
        ("ntasks", "4"),
        ("time", "10"),
        ("exclusive", ""),
    ]


@pytest.mark.parametrize(("lines", "named"), [([["-W", "x"]], "-W"), ([["-l", "nice=1"]], "nice"), ([["-N"]], "'N'")])
def test_a_pbs_option_without_a_meaning_is_named(lines: list[list[str]], named: str) -> None:
    with pytest.raises(SpritzError, match=named):
        foreign.pbs_options(lines)


def test_sbatch_lines_win_and_ignore_pbs_is_heard(tmp_path: Path) -> None:
    content = b"#!/bin/sh\n#PBS -N pbs\n#SBATCH -J sbatch\n"
    found = script.read(None, context(stdin=content))
    assert script.foreign_values(found, {}) == {"job-name": "pbs"}
    assert script.foreign_values(found, {"ignore-pbs": ""}) == {}


ENVIRON = {"A": "1", "B": "2", "SLURM_CONF": "/c", "PATH": "/bin"}


@pytest.mark.parametrize(
    ("export", "kept"),
    [
        (None, ENVIRON),
        ("ALL", ENVIRON),
        ("NONE", {"SLURM_CONF": "/c"}),
        ("NIL", {"SLURM_CONF": "/c"}),
        ("A,C=3", {"A": "1", "C": "3", "SLURM_CONF": "/c"}),
        ("ALL,C=3,NOSUCH", ENVIRON | {"C": "3"}),
        ("C='a,b'", {"C": "'a,b'", "SLURM_CONF": "/c"}),
        ("\"C=a,b\",'D=e,f'", {"C": "a,b", "D": "e,f", "SLURM_CONF": "/c"}),
        ('C={"a": 1},D=x"y,"z', {"C": '{"a": 1}', "D": 'x"y,"z', "SLURM_CONF": "/c"}),
        ("all,C=3", ENVIRON | {"C": "3"}),
        ("C=\"it's", {"C": "\"it's", "SLURM_CONF": "/c"}),
    ],
)
def test_export_lets_through_what_it_says(export: str | None, kept: dict[str, str]) -> None:
    assert request_context.exported(context(environ=ENVIRON), export) == kept
    login = export not in (None, "NIL") and "PATH" not in kept
    assert request_context.needs_login_environment(export) == login


def test_an_open_quote_in_export_is_told() -> None:
    """Source: Slurm 22.05, which submits the job all the same."""
    here = context(environ=ENVIRON)
    assert request_context.exported(here, "ALL,C=it's,D=2") == ENVIRON | {"C": "it's,D=2"}
    assert here.stderr.getvalue() == "sbatch: error: Improperly formed environment variable (C=it's,D=2)\n"  # type: ignore[attr-defined]


def test_variables_of_the_job_around_do_not_leak_into_one_submitted_from_it() -> None:
    environ = {
        "SLURM_JOB_ID": "1",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_MEM_PER_CPU": "9",
        "SLURM_CONF": "/c",
        "HOME": "/",
    }
    assert request_context.without_enclosing_job(environ) == {"SLURM_CONF": "/c", "HOME": "/"}
    outside = {"SLURM_MEM_PER_CPU": "9"}
    assert request_context.without_enclosing_job(outside) == outside


def test_the_login_environment_falls_back_to_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    real = pwd.getpwuid(os.getuid())
    silent = pwd.struct_passwd((*real[:6], "/nosuch/shell"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: silent)
    found = request_context.login_environment()
    assert (found["HOME"], found["USER"], found["SHELL"]) == (real.pw_dir, real.pw_name, "/nosuch/shell")


@pytest.mark.parametrize("text", ["x", "10X", "-1", "SL"])
def test_a_wrong_get_user_env_is_refused(text: str) -> None:
    with pytest.raises(SpritzError, match="Invalid --get-user-env specification"):
        request_context.user_env_option(text)


def test_an_unknown_limit_is_named() -> None:
    with pytest.raises(SpritzError) as caught:
        request_context.limits("NOFILE,x")
    assert (caught.value.message, caught.value.details) == (
        "--propagate=NOFILE,x is not valid.",
        ("Bad rlimit name: x",),
    )
    assert [limit.name for limit in request_context.limits("NOFILE")] == ["NOFILE"]
    assert request_context.limits("NONE") == ()


@pytest.mark.root
def test_a_users_login_shell_runs_with_the_users_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """root's `sbatch --uid=USER --get-user-env` reads what the user has in its profile."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.chmod(place, 0o755)
        shell = Path(place, "shell")
        shell.write_text("#!/bin/sh\nprintf 'UID_OF_SHELL=%s\\0' \"$(id -u)\"\n")
        shell.chmod(0o755)
        entry = pwd.getpwnam("nobody")
        changed = pwd.struct_passwd((*entry[:6], str(shell)))
        monkeypatch.setattr(pwd, "getpwnam", lambda name: changed)
        assert request_context.login_environment("nobody")["UID_OF_SHELL"] == str(entry.pw_uid)
