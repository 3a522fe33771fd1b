"""Tab completion offers what the commands take."""

from __future__ import annotations

import io
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from spritz.cli.call.context import Context
from spritz.cli.local import completion


def script(shell: str = "bash") -> str:
    out = io.StringIO()
    context = Context("spritz", {}, "/", io.StringIO(), out, io.StringIO())
    assert completion.run(Namespace(shell=shell), context) == 0
    return out.getvalue()


def completed(function: str, *words: str) -> list[str]:
    """What bash would offer for the last of the words."""
    quoted = " ".join(f"'{word}'" for word in words)
    text = (
        f"{script()}\ncompopt() {{ :; }}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}\n{function}\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=100)
    assert done.stderr == ""
    return done.stdout.split()


def test_options_that_work_are_offered_and_refused_ones_are_not() -> None:
    offered = completed("_spritz_squeue", "squeue", "--no")
    assert set(offered) == {"--noconvert", "--node=", "--noheader", "--nodelist=", "--nodes=", "--notme"}
    assert completed("_spritz_scontrol", "scontrol", "--sib") == []


def test_scontrol_offers_keywords() -> None:
    assert set(completed("_spritz_scontrol", "scontrol", "re")) == {
        "reboot", "release", "requeue", "requeuehold", "resume", "reconfigure", "reservation",
    }  # fmt: skip


def test_ids_of_jobs_are_offered_where_a_job_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = tmp_path / "squeue"
    listing.write_text("#!/bin/sh\necho 71; echo 72; echo 8\n")
    listing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert completed("_spritz_scontrol", "scontrol", "explain", "7") == ["71", "72"]
    assert completed("_spritz_spritz", "spritz", "why", "") == ["71", "72", "8"]
    assert completed("_spritz_spritz", "spritz", "wh") == ["why"]


def test_zsh_gets_bashs_completion() -> None:
    assert script("zsh").startswith("autoload -U +X bashcompinit && bashcompinit\n")


#: Subcommands of `spritz` that list or tell something.
TELLING = (
    "checkpoints", "config", "dashboard", "dev", "diff", "doctor", "eff", "gpus", "history", "logs", "pipeline",
    "quota", "runs", "shares", "show", "simulate", "status", "sweep", "sweeps", "token", "top", "track", "usage", "why",
)  # fmt: skip


def test_everything_that_tells_something_has_json() -> None:
    actions = {"pipeline": "show", "token": "list"}
    without = [name for name in TELLING if "--json" not in completion.words_of(name, actions.get(name, ""))]
    assert without == []


def test_options_and_actions_of_subcommands_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    assert completed("_spritz_spritz", "spritz", "quota", "--j") == ["--json"]
    assert completed("_spritz_spritz", "spritz", "pipeline", "re") == ["retry"]
    assert completed("_spritz_spritz", "spritz", "pipeline", "run", "--no-c") == ["--no-cache"]
    assert completed("_spritz_spritz", "spritz", "--version", "--x") == []
