"""Ignored data that a command, its configuration or its code names is advised for --link; what is written is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spritz.experiments.code import overlooked, snapshot
from spritz.experiments.code.snapshot import Snapshot

from .test_snapshot import git

#: Composes its paths, as many training scripts do.
COMPOSING = """\
import os
import numpy as np
out_dir = 'out'
dataset = 'web'
exec(open('configurator.py').read())
data_dir = os.path.join('data', dataset)
os.makedirs(out_dir, exist_ok=True)
def get_batch(split):
    return np.memmap(os.path.join(data_dir, 'train.bin' if split == 'train' else 'val.bin'), mode='r')
torch.save(1, os.path.join(out_dir, 'ckpt.pt'))
"""


class Project:
    """A repository with files that git ignores."""

    def __init__(self, directory: Path) -> None:
        self.root, self._store = directory / "project", directory / "home" / "snapshots.git"
        self.root.mkdir()
        git(self.root, "init", "-q")

    def __call__(self, command: str, files: dict[str, str], ignored: list[str], directory: str = "") -> list[str]:
        """Paths that are advised for `--link`; `ignored` lines are of .gitignore, and names of files."""
        code = self.taken(files, ignored, directory)
        advice = overlooked.lines(code, self._store, command.split(), [], in_code=True)
        return [line.partition("--link ")[2].partition(" lets")[0] for line in advice]

    def taken(self, files: dict[str, str], ignored: list[str], directory: str = "") -> Snapshot:
        for name, text in (files | dict.fromkeys(ignored, "1")).items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            if not name.endswith("/"):
                (self.root / name).write_text(text)
        (self.root / ".gitignore").write_text("".join(f"/{name}\n" for name in ignored))
        return snapshot.take(self.root / directory, self._store)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


BOTH = ["data/web/train.bin", "data/web/val.bin", "data/char/train.bin", "data/char/val.bin", "out/ckpt.pt"]


@pytest.mark.parametrize(
    ("command", "link"),
    [
        ("python train.py", "data/web"),
        ("python train.py --dataset=char", "data/char"),
        ("python train.py config/char.py", "data/char"),
        ("torchrun --nproc-per-node 2 train.py", "data/web"),
        ("bash train.sh", "data/char"),
    ],
)
def test_a_composed_path_is_found(project: Project, command: str, link: str) -> None:
    files = {
        "train.py": COMPOSING, "configurator.py": "", "config/char.py": "dataset = 'char'\n", "data/web/prepare.py": "",
        "train.sh": "#!/bin/sh\npython train.py --dataset=char\n",
    }  # fmt: skip
    assert project(command, files, BOTH) == [link]


@pytest.mark.parametrize(
    ("program", "ignored", "links"),
    [
        ("open('data/x.csv')", ["data/x.csv"], ["data"]),
        ("open('x.csv')", ["x.csv"], ["x.csv"]),
        ("f = f'data/{name}/x.csv'", ["data/a/x.csv"], ["data/a"]),
        ("p = Path('data') / 'raw' / 'x.csv'", ["data/raw/x.csv"], ["data/raw"]),
        ("glob('data/raw/*.csv')", ["data/raw/x.csv"], ["data/raw"]),
        ("p = BASE + '/data/x.csv'", ["data/x.csv"], ["data"]),
        ("DATA_DIR = Path('data')", ["data/x.csv", "data/y.csv"], ["data"]),
        ("parser.add_argument('--data-dir', default='data')", ["data/x.csv"], ["data"]),
    ],
)
def test_data_that_the_code_names(project: Project, program: str, ignored: list[str], links: list[str]) -> None:
    assert project("python main.py", {"main.py": program, "data/README": "", "pkg/other.py": ""}, ignored) == links


def test_a_directory_that_is_ignored_as_a_whole(project: Project) -> None:
    assert project("python main.py", {"main.py": "MNIST('mnist', download=True)"}, ["mnist/raw/x.gz"]) == ["mnist"]


@pytest.mark.parametrize(
    ("program", "ignored"),
    [
        ("torch.save(model, 'model.pt')", ["model.pt"]),
        ("torch.save(model, 'model.pt')\nif exists('model.pt'): load('model.pt')", ["model.pt"]),
        ("with open('x.csv', 'w') as f: pass", ["x.csv"]),
        ("Path('x.csv').write_text('')", ["x.csv"]),
        ("open('x.csv', mode='a')", ["x.csv"]),
        ("output_dir = 'models'", ["models/a.pt"]),
        ("Trainer(save_path='models')", ["models/a.pt"]),
        ("parser.add_argument('--output-dir', default='models')", ["models/a.pt"]),
        ("open('out/x.pt')", ["out/x.pt"]),
        ("open('checkpoints/x.pt')", ["checkpoints/x.pt"]),
        ("wandb.init(dir='wandb')", ["wandb/x"]),
        ("x = batch['data']", ["data/x.csv"]),
        ("x = {'data': 1}.get('data')", ["data/x.csv"]),
        ("if mode == 'data': pass", ["data/x.csv"]),
        ("print('data')", ["data/x.csv"]),
        ("parser.add_argument('--mode', default='data')", ["data/x.csv", "data/z/y.csv"]),
        ("'''data/x.csv'''\n", ["data/x.csv"]),
        ("# open('data/x.csv')", ["data/x.csv"]),
        ("open('nowhere/x.csv')", ["data/x.csv"]),
        ("open('/data/x.csv')", ["data/x.csv"]),
        ("open('../data/x.csv')", ["data/x.csv"]),
        ("this is no Python 'data/x.csv'", ["data/x.csv"]),
        ("import main", ["__pycache__/main.pyc", ".venv/x", "a.egg-info/x"]),
    ],
)
def test_what_is_written_or_no_path_is_not_advised(project: Project, program: str, ignored: list[str]) -> None:
    assert project("python main.py", {"main.py": program, "data/README": ""}, ignored) == []


def test_modules_that_the_program_imports_are_read_and_others_are_not(project: Project) -> None:
    files = {
        "main.py": "from src.a import load\nimport numpy as np, lib.b\n", "src/__init__.py": "",
        "src/a.py": "from . import c\nfrom .sub import (d,\n  e)\n", "src/c.py": "open('data/c.csv')",
        "src/sub/__init__.py": "", "src/sub/e.py": "open('data/e.csv')",
        "lib/b.py": "open('more/b.csv')\nimport main\n",
        "src/unused.py": "open('other/u.csv')", "data/README": "",
    }  # fmt: skip
    ignored = ["data/c.csv", "data/e.csv", "more/b.csv", "other/u.csv"]
    assert project("python main.py", files, ignored) == ["data", "more"]
    assert project("python -m src.a", files, ignored) == ["data"]
    assert project("python -m src.c", files, ignored) == ["data"]


def test_configuration_that_the_command_or_the_program_names_is_read(project: Project) -> None:
    files = {
        "main.py": "import yaml; yaml.safe_load(open('settings.yaml'))", "settings.yaml": "train: {path: data/a.csv}\n",
        "other.json": '{"output_dir": "models",\n "input": "raw/b.csv"}', "unnamed.yaml": "x: extra/c.csv\n",
        "hydra_app.py": "@hydra.main(config_path='conf')\ndef f(): pass\n",
        "conf/set/d.yaml": "set: {root: big, log_dir: models}\n",
    }  # fmt: skip
    ignored = ["data/a.csv", "raw/b.csv", "extra/c.csv", "models/x.pt", "big/d.csv"]
    assert project("python main.py --config other.json", files, ignored) == ["data", "raw"]
    assert project("python hydra_app.py", files, ignored) == ["big"]


def test_words_of_the_command_but_not_outputs(project: Project) -> None:
    command = "python main.py data/x.csv --out=out --output_dir out -o out --lr nothing /etc --resume out/x.pt"
    assert project(command, {"main.py": ""}, ["data/x.csv", "out/x.pt"]) == ["data", "out"]


def test_paths_are_relative_to_the_runs_directory(project: Project) -> None:
    files = {"sub/main.py": "open('data/x.csv')", "sub/data/README": ""}
    assert project("python main.py", files, ["sub/data/x.csv", "data/x.csv"], "sub") == ["data"]


def test_a_line_names_the_first_path_and_counts_the_others(project: Project, tmp_path: Path) -> None:
    code = project.taken({"main.py": COMPOSING, "data/web/README": "", "data/char/README": ""}, BOTH)
    store = tmp_path / "home" / "snapshots.git"
    words = ["python", "main.py"]
    lines = overlooked.lines(code, store, words, [], in_code=True)
    assert lines == ["data/web/train.bin and 1 more: git ignores them; --link data/web lets the run see them"]
    assert overlooked.lines(code, store, words, [], in_code=False) == []
    assert overlooked.lines(code, store, words, ["data/web/train.bin", "data/web/val.bin"], in_code=True) == []
    again = replace(code, unfrozen=("lib: git ignores it", *lines))
    assert overlooked.pending(again, []) == ["lib: git ignores it", *lines]
    assert overlooked.pending(again, ["data/web/train.bin"]) == ["lib: git ignores it"]
