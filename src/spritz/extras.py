"""Which packages of others this installation lacks, and the command that adds them.

The distribution `spritz-base` has all of the code and what every machine needs; its extras have the rest. The
distribution `spritz` is `spritz-base[cluster]`, with the same extras. Imports nothing of ours.

Source: docs/decisions/0226.
"""

from __future__ import annotations

#: extra -> what its programs import
NEEDS = {
    "controller": ("numpy",),
    "accounting": ("sqlalchemy", "alembic"),
    "cluster": ("numpy", "sqlalchemy", "alembic"),
}


def pip_install(extra: str) -> str:
    """The command that adds an extra to this installation."""
    # Commands import this module, and these two with much else only for an error.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution("spritz")
        name = "spritz"
    except PackageNotFoundError:
        name = "spritz-base"
    return f"pip install '{name}[{extra}]'"


def missing(extra: str) -> str:
    """The packages of this extra that cannot be imported, as words; "" if all can be."""
    from importlib.util import find_spec

    names = [name for name in NEEDS[extra] if find_spec(name) is None]
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
