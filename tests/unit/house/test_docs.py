"""Pages say what the code says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tools import docs

from spritz.config.load import load

_ROOT = Path(__file__).resolve().parents[3]


def test_generated_pages_are_current() -> None:
    assert docs.stale() == [], "run `make docs`"


def test_the_architecture_names_every_package_and_the_layers_that_are_held() -> None:
    page = (_ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    contracts = (_ROOT / ".importlinter").read_text(encoding="utf-8")
    held = contracts.split("layers =\n", 1)[1].split("exhaustive", 1)[0].replace("(", "").replace(")", "")
    (shown,) = re.findall(r"^    sim > .*(?:\n +>.*)*", page, re.MULTILINE)
    assert " > ".join(line.strip() for line in held.splitlines() if line.strip()) == " ".join(shown.split())
    packages = {path.name for path in (_ROOT / "src/spritz").iterdir() if (path / "__init__.py").exists()}
    assert packages - set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set()


def test_the_glossary_and_the_checklists_name_modules_that_exist() -> None:
    source = _ROOT / "src/spritz"
    pages = [_ROOT / "docs/glossary.md", *(_ROOT / "docs/checklists").glob("*.md")]
    names = {
        name for page in pages for name in re.findall(r"`([a-z_]+(?:[./][a-z_]+)+)(?:\.py)?`", page.read_text("utf-8"))
    }
    modules = {
        name.removesuffix(".py").replace("/", ".") for name in names if (source / re.split(r"[./]", name)[0]).is_dir()
    }
    assert modules, "the pages name modules"
    assert [name for name in sorted(modules) if not _exists(source, name)] == []


def test_the_tests_that_pages_name_exist() -> None:
    pages = [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md", *(_ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"\btests/[\w./]*\w", page.read_text("utf-8"))}
    assert len(named) > 20
    missing = [name for name in sorted(named - {"tests/unit/PACKAGE"}) if not list(_ROOT.glob(f"{name}*"))]
    assert missing == []


def test_the_test_functions_that_pages_name_exist() -> None:
    """Named as `tests/path.py::test_name`; the duties of the shell are each held by some."""
    named: dict[str, set[str]] = {}
    for page in (_ROOT / "docs").rglob("*.md"):
        for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text("utf-8")):
            named.setdefault(path, set()).add(name)
    assert sum(map(len, named.values())) > 40
    missing = [
        f"{path}::{name}"
        for path, names in sorted(named.items())
        for name in sorted(names - set(re.findall(r"^(?:async )?def (\w+)", (_ROOT / path).read_text("utf-8"), re.M)))
    ]
    assert missing == []
    text = (_ROOT / "docs/explanation/duties-of-the-shell.md").read_text("utf-8")
    duties = re.split(r"^(\d+)\. ", text, flags=re.M)[1:]
    assert [int(number) for number in duties[::2]] == list(range(1, len(duties[::2]) + 1))
    assert [number for number, duty in zip(duties[::2], duties[1::2], strict=True) if "::test_" not in duty] == []


def test_a_package_without_unit_tests_of_its_own_is_named_with_those_that_it_has() -> None:
    """`pytest tests/unit/PACKAGE` of the checklists finds something, or the page says where to look."""
    page = (_ROOT / "docs/checklists/index.md").read_text("utf-8")
    packages = {path.name for path in (_ROOT / "src/spritz").iterdir() if (path / "__init__.py").exists()}
    without = {name for name in packages if not (_ROOT / "tests/unit" / name).is_dir()}
    assert [name for name in sorted(without) if f"`{name}`" not in page] == []


def test_the_links_for_every_path_are_all_commands_of_users() -> None:
    """docs/how-to/several-users.md links the commands into a directory that is in every PATH."""
    page = (_ROOT / "docs/how-to/several-users.md").read_text("utf-8")
    (names,) = re.findall(r"ln -s \$PWD/s\{([\w,]+)\} \$PWD/spritz ", page)
    scripts = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    commands = {name for name, entry in scripts.items() if entry.startswith("spritz.cli.")} - {"spritz"}
    assert {f"s{name}" for name in names.split(",")} == commands


_SAMPLES = ("packaging/etc/slurm.conf.example", "docs/how-to/configure.md", "docs/how-to/several-users.md")


@pytest.mark.parametrize("name", _SAMPLES)
def test_small_jobs_share_a_node_under_a_sample_configuration(name: str, tmp_path: Path) -> None:
    """A job that asks for no memory would get all of it."""
    text = (_ROOT / name).read_text("utf-8")
    lines = re.findall(r"^(?: {4})?((?:[A-Z]\w+)=\S.*)$", text.split("## GPUs")[0].split("## 4.")[0], re.MULTILINE)
    conf = tmp_path / "slurm.conf"
    conf.write_text("\n".join(line.strip() for line in lines) + "\n")
    loaded = load(str(conf), check_users=False)
    share = loaded.cluster.default_memory_mib_per_cpu
    assert loaded.nodes
    assert all(2 * share <= node.capacity.memory_mib for node in loaded.nodes)
    assert share > 0


def _exists(source: Path, name: str) -> bool:
    """Whether it is a package, a module, or a name inside one."""
    *parents, last = name.split(".")
    path = source.joinpath(*parents)
    if (path / last).is_dir() or (path / f"{last}.py").exists():
        return True
    module = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    return module.exists() and re.search(rf"\b{last}\b", module.read_text("utf-8")) is not None
