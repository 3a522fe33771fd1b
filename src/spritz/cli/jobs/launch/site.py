"""SrunProlog and SrunEpilog: programs that srun runs on its machine before and after the step.

If the prolog fails, srun creates no step.

Differs: Slurm runs the prolog after it has created the step. Here the controller launches a new step at once, so the
prolog runs before.
Source: srun(1) --prolog, --epilog; slurm.conf(5) SrunProlog, SrunEpilog.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.jobs.launch.interrupts import restore_in_child

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spritz.cli.call.context import Context


def run_program(
    program: str, script_context: str, command: Sequence[str], variables: Mapping[str, str], context: Context
) -> int:
    """Run the program with the step's command as arguments; return its exit status. As in Slurm, a missing program is
    skipped.
    """
    if not os.access(program, os.X_OK):
        context.info(f"Access denied for {program}: {_why_not(program)}")
        return 0
    environment = {**context.environ, **variables, "SLURM_SCRIPT_CONTEXT": script_context}
    pid = os.fork()
    if pid:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status < 0:
            context.error("script did not exit normally")
        return status if status >= 0 else 1
    try:
        restore_in_child()
        os.execve(program, [program, *command], environment)
    finally:
        os._exit(127)


def _why_not(program: str) -> str:
    return "Permission denied" if os.path.exists(program) else "No such file or directory"
