"""The command line of the operator."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.k8s.operator import main


def test_a_policy_that_names_users_needs_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a token slurmrestd takes each job for the operator's own."""
    monkeypatch.delenv("SLURM_JWT", raising=False)
    policy = tmp_path / "policy.yaml"
    policy.write_text("serviceAccounts: {default/serving: {user: alice}}\n")
    assert main(["--slurmrestd", f"unix:{tmp_path}/rest", "--policy", str(policy)]) == 1
    assert "policy.yaml names users" in capsys.readouterr().err
