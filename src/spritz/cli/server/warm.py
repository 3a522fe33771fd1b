"""Importing every command and what it may need, so that no child has to."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

import spritz.cli
from spritz.cli import options
from spritz.cli.server.direct import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.cli.entry import Main

#: `spritz` starts daemons, and they are nobody's children; its modules are many and large.
_LEFT_OUT = frozenset(("spritz", "local", "server"))
#: What functions of the commands import when they are called.
_LATER = (
    "grp", "json", "pwd", "resource", "select", "shlex", "socket", "subprocess", "termios", "time",
    "spritz.client.sync", "spritz.runtime.credentials", "spritz.notation.octets",
)  # fmt: skip


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
            _import_package(f"spritz.cli.{name}", os.path.join(directory, entry))
        elif entry.endswith(".py"):
            import_module(f"spritz.cli.{name}")
            module = find(name)
            if module is not None:
                found[name] = module.main
                _prepare_options(module)
    _prepare_answers()
    gc.collect()
    # Children neither look at these objects nor write to their pages.
    gc.freeze()
    return found


def _prepare_options(module: object) -> None:
    """Have the command's option table indexed, as its first call would."""
    rows = getattr(module, "OPTIONS", None)
    if rows is not None:
        options.parse(rows, [])


def _prepare_answers() -> None:
    """Have the decoders made that commands read answers with; each takes longer than a short call."""
    from spritz.client.sync import decoder_of
    from spritz.model import queries
    from spritz.model.commands import job, step

    answers: tuple[type[Struct], ...] = (
        job.JobSubmitted, job.Done, job.CancelResult, step.StepCreated,
        queries.AllocationGranted, queries.ConfigText, queries.JobEndedReply, queries.JobRows, queries.Jobs,
        queries.Nodes, queries.Partitions, queries.Pong, queries.Script, queries.Steps,
    )  # fmt: skip
    for answer in answers:
        decoder_of(answer)


def _import_package(package: str, directory: str) -> None:
    for entry in sorted(os.listdir(directory)):
        if entry.endswith(".py") and entry != "__main__.py":
            module = package if entry == "__init__.py" else f"{package}.{entry.removesuffix('.py')}"
            import_module(module)


def loaded_files() -> list[str]:
    """Source files of everything of ours that is imported."""
    found = []
    for name, module in sys.modules.items():
        if name == "spritz" or name.startswith("spritz."):
            path = getattr(module, "__file__", None)
            if path:
                found.append(path)
    return found
