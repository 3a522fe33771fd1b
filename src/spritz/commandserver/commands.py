"""Commands by name: modules of `spritz.cli` that have `entry` and `main`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


def find(name: str) -> Any:  # attributes of a module are not typed
    """The module of a command; None if there is no such command."""
    if not name.isidentifier():
        return None
    from importlib import import_module

    module_name = f"spritz.cli.{name}"
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        return None
    return module if hasattr(module, "entry") and hasattr(module, "main") else None
