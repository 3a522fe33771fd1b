"""The location of this installation, and how a process of it is started.

An installation is a virtual environment, a prefix of its own (`pip install --prefix`), or a checkout in one of them.
Python looks into a prefix only on request: `PREFIX/bin/spritz-command` does, and these functions pass it on.
Imports nothing of ours.

Source: docs/decisions/0100.
"""

from __future__ import annotations

import os
import sys

#: Everything else is a module of `spritz.cli`.
_DAEMONS = {
    "spritz-operator": "spritz.k8s.operator",
    "slurmctld": "spritz.controller.main",
    "slurmd": "spritz.node.main",
    "slurmdbd": "spritz.accounting.main",
    "slurmrestd": "spritz.rest.main",
    "sackd": "spritz.sack.main",
    "spritz-health-check": "spritz.node.health_check",
}
_COMMAND = "spritz-command"
_RUN = "import sys; sys.path[:0] = sys.argv[1].split(':'); from spritz.installed import run; run()"

#: directories in which this process must look for packages
_places: list[str] = []


def entry(places: list[str]) -> None:
    """Run `spritz-command`, or any command that is a copy of it. `places` were added to `sys.path`."""
    _places[:] = places
    name = os.path.basename(sys.argv[0])
    if name == _COMMAND and sys.argv[1:] and not sys.argv[1].startswith("--"):
        name = os.path.basename(sys.argv[1])
        if name in _DAEMONS:
            del sys.argv[0]
    from importlib import import_module

    import_module(_DAEMONS.get(name, "spritz.commandserver.direct")).entry()


def run() -> None:
    """The code that `python` makes another interpreter execute: run a module as `python -m` does, and pass the places
    on.
    """
    import runpy

    _places[:] = sys.argv.pop(1).split(":")
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)


def python(module: str, *words: str) -> list[str]:
    """The command line that runs a module of ours in another interpreter: `python -m MODULE …`."""
    if _places:
        return [sys.executable, "-P", "-c", _RUN, ":".join(_places), module, *words]
    return [sys.executable, "-P", "-m", module, *words]


def prefix() -> str:
    """The directory with `bin`, `sbin` and `etc`: PREFIX of PREFIX/lib/python3.11/site-packages; for a checkout,
    Python's own.
    """
    packages, _ = os.path.split(os.path.dirname(__file__))
    library, kind = os.path.split(packages)
    if kind in ("site-packages", "dist-packages"):
        prefix, lib = os.path.split(os.path.dirname(library))
        if lib in ("lib", "lib64"):
            return prefix
    return sys.prefix


def command(name: str) -> str:
    return os.path.join(prefix(), "bin", name)


def closed_to_others() -> str:
    """The first directory or file on the way to this installation that users other than its owner cannot use; "".

    The mode decides, not who asks: root may enter everything.
    """
    ways = (sys.executable, os.path.realpath(sys.executable), os.path.dirname(__file__), command(_COMMAND))
    return next(filter(None, map(closed_on_the_way, ways)), "")


def closed_on_the_way(path: str) -> str:
    """The first directory on an absolute path, itself included, that other users cannot enter; "" if there is none."""
    parts = path.split(os.sep)
    for length in range(2, len(parts) + 1):
        part = os.sep.join(parts[:length])
        try:
            if not os.stat(part).st_mode & 0o001 and (length < len(parts) or os.path.isdir(part)):
                return part
        except OSError:
            break  # nothing there: a command that is not installed
    return ""
