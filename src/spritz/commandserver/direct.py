"""A command in a process of its own: the launcher executes it when no server can run the command.

`spritz-command /where/ever/squeue -a` is `squeue -a`; without a C compiler for the launcher, a copy of this program is
installed as squeue. With `--serve` it is the command server, which a launcher starts.
"""

from __future__ import annotations

import gc
import os
import sys

from spritz.commandserver.commands import find


def entry() -> None:
    """Run the command that `sys.argv` names."""
    # Imports and listings make many objects and no cycles; collecting them would take 3 ms of a command's start.
    gc.set_threshold(50_000, 20, 100)
    if os.path.basename(sys.argv[0]) == "spritz-command":
        if sys.argv[1:2] == ["--serve"]:
            from spritz.commandserver import main

            del sys.argv[1]
            main.entry()
            return
        del sys.argv[0]
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    found = find(name)
    if found is None:
        sys.exit(f"spritz-command: error: {name or 'nothing'} is no command of Spritz")
    found.entry()
