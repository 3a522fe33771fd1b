"""Which packages of others a machine needs for its role (docs/decisions/0226)."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from spritz import extras

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

#: what a compute node, a login host and the machine of a user run
LIGHT = (
    *("notation", "model", "config", "wire", "plugins", "runtime", "client", "presentation", "live"),
    *("stepd", "node", "sack", "cli", "commandserver", "experiments"),
)
#: what only other roles install
HEAVY = ("numpy", "sqlalchemy", "alembic", "mako", "uvloop")

_IMPORT_ALL = """
import importlib, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

sys.meta_path.insert(0, Blocked())
for package in sys.argv[2:]:
    package = importlib.import_module(f"spritz.{package}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
"""


def requirements(*extras: str) -> set[str]:
    """Names of packages that an installation with these extras has at least."""
    found = {re.split(r"[^\w-]", text)[0].lower() for text in PROJECT["dependencies"]}
    for extra in extras:
        for text in EXTRAS[extra]:
            if text.startswith("spritz-base["):
                found |= requirements(*text.removeprefix("spritz-base[").removesuffix("]").split(","))
            else:
                found.add(re.split(r"[^\w-]", text)[0].lower())
    return found


def test_nodes_login_hosts_and_users_machines_need_no_package_of_the_controller() -> None:
    """Every module that their programs are made of can be imported without it."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _IMPORT_ALL, ",".join(HEAVY), *LIGHT],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr


def test_each_role_installs_what_it_imports() -> None:
    assert requirements() == {"msgspec", "nvidia-ml-py", "pyyaml"}
    assert requirements("controller") == requirements() | {"uvloop", "numpy"}
    assert requirements("accounting") == requirements() | {"uvloop", "sqlalchemy", "alembic"}
    assert requirements("cluster") == requirements("controller", "accounting")
    for extra, modules in extras.NEEDS.items():
        assert set(modules) <= requirements(extra)


def test_errors_name_extras_that_there_are() -> None:
    text = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"""pip_install\(["'](\w+)["']\)""", text))
    assert {"rest", "machines", "dashboard"} <= named <= set(EXTRAS)
    assert not re.search(r"pip install '?spritz\[", text), "the installation's own name is what `pip_install` asks for"


@pytest.mark.parametrize("extra", extras.NEEDS)
def test_what_is_missing_is_named(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = set(extras.NEEDS[extra])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in lacking else object())
    words = extras.missing(extra)
    assert set(re.split(", | and ", words)) == lacking
    lacking.clear()
    assert extras.missing(extra) == ""
