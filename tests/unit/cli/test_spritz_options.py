"""A wrong command line of a `spritz` subcommand: the error, what was probably meant, and where the options are."""

from __future__ import annotations

from argparse import Namespace
from importlib import import_module

import pytest

from spritz.cli.spritz import SUBCOMMANDS, main
from tests.unit.cli.site import Site


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--gpuss", "2", "--", "true"), "no such option: --gpuss (did you mean --gpus?)"),
        (("run", "--gpuss=2", "--", "true"), "no such option: --gpuss (did you mean --gpus?)"),
        (("runs", "--completely-else"), "no such option: --completely-else"),
        (("runs", "a", "b"), "unexpected argument: b"),
        (("space", ""), "unexpected argument: ''"),
        (("sweep", "a", ""), "unexpected argument: ''"),
        (("pipeline", "show", "p", "--jsn"), "no such option: --jsn (did you mean --json?)"),
        (("runs", "-n", "many"), "argument -n/--limit: invalid int value: 'many'"),
    ],
)
def test_the_error_stands_alone(site: Site, words: tuple[str, ...], said: str) -> None:
    done = site.run(main, *words)
    assert done.err == f"spritz: error: {said}\nTry 'spritz {words[0]} --help'.\n"
    assert (done.status, done.out) == (2, "")


@pytest.mark.parametrize(
    ("words", "passed_on"),
    [
        (("run", "--exclusive", "--", "true"), "--slurm=--exclusive"),
        (("run", "--nodelist=n1", "--", "true"), "--slurm=--nodelist=n1"),
        (("sweep", "-x", "n1", "sweep.yaml"), "--slurm=--exclude=hosts"),
    ],
)
def test_options_of_sbatch_are_passed_on_as_the_error_says(site: Site, words: tuple[str, ...], passed_on: str) -> None:
    done = site.run(main, *words)
    assert done.err.splitlines()[1] == f"{passed_on} passes it to sbatch."
    assert done.status == 2


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["export", "train-1", "--files", "x.tgz"], {"run": "train-1", "file": "x.tgz", "files": True}),
        (["files", "train-1", "--json", "*.pt"], {"pattern": "*.pt"}),
        (["compare", "a", "--sort", "loss", "b"], {"runs": ["a", "b"]}),
        (["remove", "a", "--yes", "b"], {"names": ["a", "b"]}),
        (["edit", "a", "--tag", "x", "b"], {"runs": ["a", "b"], "tag": ["x"]}),
        (["remove", "--yes"], {"names": []}),
        (["export", "train-1"], {"file": ""}),
    ],
)
def test_words_may_follow_options(
    site: Site, monkeypatch: pytest.MonkeyPatch, words: list[str], values: dict[str, object]
) -> None:
    parsed: list[Namespace] = []

    def run(arguments: Namespace, _: object) -> int:
        parsed.append(arguments)
        return 0

    monkeypatch.setattr(import_module(SUBCOMMANDS[words[0]][0]), "run", run)
    assert site.run(main, *words).status == 0
    assert {name: getattr(parsed[0], name) for name in values} == values
