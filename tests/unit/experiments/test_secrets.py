"""Secrets are found by name and by shape; everything else is written as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.experiments import secrets
from spritz.experiments.job import submission
from spritz.experiments.job.settings import RunOptions
from spritz.experiments.job.submission import Request
from spritz.experiments.secrets import MASK


@pytest.mark.parametrize(
    "name",
    [
        *("WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "GITHUB_TOKEN", "token", "api-key"),
        *("MY_PASSWD", "OPENAI_APIKEY", "SENTRY_DSN", "SSH_PRIVATE_KEY", "PASSWORD2"),
        *("PGPASSWORD", "MYTOKEN", "accessToken", "DBPASSWORD_1"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert secrets.is_secret_name(name)
    assert secrets.masked_environment({name: "value"}) == {name: MASK}


@pytest.mark.parametrize(
    "name",
    [
        "PWD",
        "OLDPWD",
        "PATH",
        "TOKENIZERS_PARALLELISM",
        "KEYBOARD",
        "LR",
        "tokenizer",
        "max_tokens",
        "CONDA_PWDS",
        "n_subtokens",
    ],
)
def test_names_that_are_none(name: str) -> None:
    assert not secrets.is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("hf_abcdefghijklmnopqrstuvwx", MASK),
        ("key=ghp_0123456789abcdefghijABCDEFGHIJ012345", f"key={MASK}"),
        ("https://me:hunter2@host/x", f"https://me:{MASK}@host/x"),
        ("AKIAIOSFODNN7EXAMPLE", MASK),
        ("--lr=1e-3", "--lr=1e-3"),
        ("https://host:8080/a@b", "https://host:8080/a@b"),
    ],
)
def test_shapes_of_secrets(text: str, masked: str) -> None:
    assert secrets.masked_text(text) == masked


def test_arguments_that_hold_secrets_are_kept_apart() -> None:
    command = ["train.py", "--lr", "1", "--password", "hunter2", "--token=abc", "--name=x", "prefix-topsecretvalue"]
    written, hidden = secrets.split_arguments(command, {"API_KEY": "topsecretvalue"})
    assert written == ["train.py", "--lr", "1", "--password", MASK, f"--token={MASK}", "--name=x", f"prefix-{MASK}"]
    assert hidden == {4: "hunter2", 5: "--token=abc", 7: "prefix-topsecretvalue"}


def test_an_option_after_the_name_of_a_secret_is_no_value() -> None:
    written, hidden = secrets.split_arguments(["--token", "--lr", "1"])
    assert (written, hidden) == (["--token", "--lr", "1"], {})


def test_a_secret_in_a_value_of_any_name_is_not_in_the_script(tmp_path: Path) -> None:
    env = {"DB": "postgres://u:pw@h/db", "HUB": f"hf_{'a' * 30}", "API_KEY": "x", "LR": "1"}
    request = Request(command=("x",), directory=tmp_path, options=RunOptions(env=env), environment={})
    environment, visible = submission.environment_of(request, {})
    assert visible == {"LR": "1"}
    assert environment == {name: text for name, text in env.items() if name != "LR"}
    recorded = submission.options_mapping(request.options)["env"]
    assert [name for name, text in recorded.items() if not secrets.is_kept(text)] == ["API_KEY", "DB", "HUB"]
