"""The command line of the operator."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spritz.k8s.election import Election
from spritz.k8s.living import TaskEnded
from spritz.k8s.operator import main


def test_a_policy_that_names_users_needs_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a token slurmrestd takes each job for the operator's own."""
    monkeypatch.delenv("SLURM_JWT", raising=False)
    policy = tmp_path / "policy.yaml"
    policy.write_text("serviceAccounts: {default/serving: {user: alice}}\n")
    assert main(["--slurmrestd", f"unix:{tmp_path}/rest", "--policy", str(policy)]) == 1
    assert "policy.yaml names other users" in capsys.readouterr().err


def test_a_file_without_a_token_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the Unix socket of slurmrestd each job would be the operator's own."""
    token = tmp_path / "token"
    token.write_text("\n")
    words = ["--slurmrestd", f"unix:{tmp_path}/rest", "--token-file", str(token)]
    assert main(words) == 1
    assert "token is empty" in capsys.readouterr().err
    token.unlink()
    assert main(words) == 1
    assert "No such file" in capsys.readouterr().err


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u, namespace: default}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


def test_the_process_ends_when_its_election_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a cancellation that nobody asked for: it would run on, and lead never again."""

    async def ended(_self: Election, _work: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(Election, "run", ended)
    config = tmp_path / "config"
    config.write_text(KUBECONFIG)
    with pytest.raises(ExceptionGroup) as caught:
        main(["--clusters", "--kubeconfig", str(config)])
    (error,) = caught.value.exceptions
    assert isinstance(error, TaskEnded)
    assert "task election has ended" in str(error)
