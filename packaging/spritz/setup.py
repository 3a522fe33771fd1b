"""The distribution `spritz`: no files, only spritz-base with what a cluster needs, of the same version.

Its extras are those of spritz-base, so that both lists are one. It is built in a checkout alone (`make wheels`), since
it reads the project's own metadata. See docs/decisions/0226.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parents[2]
#: what is no user's
DEVELOPMENT = ("dev", "fuzz")

base = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/spritz/__init__.py").read_text(), re.MULTILINE)
assert found
version = found[1]


def same(extra: str) -> list[str]:
    """The requirement of this version of spritz-base with an extra."""
    return [f"spritz-base[{extra}]=={version}"]


setup(
    name="spritz",
    version=version,
    description=base["description"],
    long_description=(ROOT / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    keywords=base["keywords"],
    classifiers=base["classifiers"],
    python_requires=base["requires-python"],
    install_requires=same("cluster"),
    extras_require={extra: same(extra) for extra in base["optional-dependencies"] if extra not in DEVELOPMENT},
    packages=[],
    py_modules=[],
)
