"""Imports all commands and their dependencies, so that children need not."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

import spritz.cli
from spritz.cli.call import options
from spritz.commandserver.commands import find

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.cli.call.entry import Main

#: `spritz` is left out: it starts daemons, which must not be children of the server, and it has many large modules.
_LEFT_OUT = frozenset(("spritz", "local"))
#: modules that commands import when called
_LATER = (
    "grp", "json", "pwd", "resource", "select", "shlex", "socket", "subprocess", "termios", "time",
    "spritz.client.command.sync", "spritz.client.locate", "spritz.runtime.credentials",
)  # fmt: skip
#: packages of small modules, each used by some command
_WHOLE = ("spritz.notation", "spritz.model")


def commands() -> dict[str, Main]:
    """Import all commands; returns each command's `main` by name."""
    (directory,) = spritz.cli.__path__
    for name in _LATER:
        import_module(name)
    mains: dict[str, Main] = {}
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
                mains[name] = module.main
                _prepare_options(module)
    for name in _WHOLE:
        _import_tree(name)
    _prepare_records()
    gc.collect()
    # children then neither scan these objects nor write to their pages
    gc.freeze()
    return mains


def _prepare_options(module: object) -> None:
    """Build the index of the command's option table, as its first call would."""
    rows = getattr(module, "OPTIONS", None)
    if rows is not None:
        options.parse(rows, [])


def _import_tree(name: str) -> None:
    """Import a package and all its modules."""
    package = import_module(name)
    for directory in package.__path__:
        for entry in sorted(os.listdir(directory)):
            if os.path.exists(os.path.join(directory, entry, "__init__.py")):
                _import_tree(f"{name}.{entry}")
            elif entry.endswith(".py") and not entry.startswith("__"):
                import_module(f"{name}.{entry.removesuffix('.py')}")


def _prepare_records() -> None:
    """Let msgspec prepare the encoding of records, which it would do at first use and store with the class."""
    from spritz.client.command.sync import decoder_of

    for name in [name for name in sys.modules if name.startswith("spritz.model.")]:
        for value in list(vars(sys.modules[name]).values()):
            if isinstance(value, type) and issubclass(value, Struct) and value is not Struct:
                try:
                    decoder_of(value)
                except (TypeError, NameError):
                    pass  # not meant for encoding


def loaded_files() -> list[str]:
    """Source files of all imported modules of this package."""
    paths = []
    for name, module in sys.modules.items():
        if name == "spritz" or name.startswith("spritz."):
            path = getattr(module, "__file__", None)
            if path:
                paths.append(path)
    return paths
