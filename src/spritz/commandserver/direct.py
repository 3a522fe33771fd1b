"""A command in a process of its own: the launcher executes it when no server can run the command.

`spritz-command /where/ever/squeue -a` is `squeue -a`; without a C compiler for the launcher, a copy of this program is
installed as squeue. With `--serve` it is the command server, which a launcher starts.
"""

from __future__ import annotations

import gc
import os
import sys

from spritz.commandserver.commands import find


def skip_typing_extensions() -> None:
    """Let msgspec do without typing_extensions, whose import takes 8 ms of a command's 40 (docs/decisions/0168).

    msgspec takes three names from it where it is installed, and else from `typing`; from Python 3.11 on they are the
    same. Only for Slurm's commands: what they import besides has no use for it either.
    """
    # None in sys.modules makes an import fail (Python's reference, import system).
    sys.modules.setdefault("typing_extensions", None)  # type: ignore[arg-type]  # unknown to typeshed


def entry() -> None:
    """Run the command that `sys.argv` names."""
    # Imports and listings make many objects and no cycles; collecting them would take 3 ms of a command's start.
    gc.set_threshold(50_000, 20, 100)
    if os.path.basename(sys.argv[0]) == "spritz-command":
        if sys.argv[1:2] == ["--serve"]:
            skip_typing_extensions()
            from spritz.commandserver import main

            del sys.argv[1]
            main.entry()
            return
        del sys.argv[0]
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    if name != "spritz":
        skip_typing_extensions()
    program = find(name)
    if program is None:
        sys.exit(f"spritz-command: error: {name or 'nothing'} is no command of Spritz")
    program.entry()
