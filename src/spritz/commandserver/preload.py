"""Importing every command and what it may need, so that no child has to."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

import spritz.cli
from spritz.cli import options
from spritz.commandserver.commands import find

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.cli.entry import Main

#: Not `spritz`: it starts daemons, which must not be children of the server, and its modules are many and large.
_LEFT_OUT = frozenset(("spritz", "local"))
#: What functions of the commands import when they are called.
_LATER = (
    "grp", "json", "pwd", "resource", "select", "shlex", "socket", "subprocess", "termios", "time",
    "spritz.client.sync", "spritz.client.locate", "spritz.runtime.credentials",
)  # fmt: skip
#: Packages whose every module is small, and used by some command.
_WHOLE = ("spritz.notation", "spritz.model")


def commands() -> dict[str, Main]:
    """Import all of it; `main` of each command by name."""
    (directory,) = spritz.cli.__path__
    for name in _LATER:
        import_module(name)
    found: dict[str, Main] = {}
    for entry in sorted(os.listdir(directory)):
        name = entry.removesuffix(".py")
        if name in _LEFT_OUT or name.startswith("_"):
            continue
        if os.path.isdir(os.path.join(directory, entry)):
            _import_tree(f"spritz.cli.{name}")
        elif entry.endswith(".py"):
            import_module(f"spritz.cli.{name}")
            module = find(name)
            if module is not None:
                found[name] = module.main
                _prepare_options(module)
    for name in _WHOLE:
        _import_tree(name)
    _prepare_records()
    gc.collect()
    # Children neither look at these objects nor write to their pages.
    gc.freeze()
    return found


def _prepare_options(module: object) -> None:
    """Have the command's option table indexed, as its first call would."""
    rows = getattr(module, "OPTIONS", None)
    if rows is not None:
        options.parse(rows, [])


def _import_tree(name: str) -> None:
    """A package and everything in it."""
    package = import_module(name)
    for directory in package.__path__:
        for entry in sorted(os.listdir(directory)):
            if os.path.exists(os.path.join(directory, entry, "__init__.py")):
                _import_tree(f"{name}.{entry}")
            elif entry.endswith(".py") and not entry.startswith("__"):
                import_module(f"{name}.{entry.removesuffix('.py')}")


def _prepare_records() -> None:
    """msgspec works out how a record is encoded when it first meets it, and keeps that with the class."""
    from spritz.client.sync import decoder_of

    for name in [name for name in sys.modules if name.startswith("spritz.model.")]:
        for value in list(vars(sys.modules[name]).values()):
            if isinstance(value, type) and issubclass(value, Struct) and value is not Struct:
                try:
                    decoder_of(value)
                except (TypeError, NameError):
                    pass  # not made to be sent


def loaded_files() -> list[str]:
    """Source files of everything of ours that is imported."""
    found = []
    for name, module in sys.modules.items():
        if name == "spritz" or name.startswith("spritz."):
            path = getattr(module, "__file__", None)
            if path:
                found.append(path)
    return found
