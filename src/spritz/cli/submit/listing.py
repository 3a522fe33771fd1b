"""What -v tells: the options as they were understood.

Source: recorded output of Slurm 22.05 (`sbatch -v`, `srun -v`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from spritz.cli.context import Context
    from spritz.cli.submit.values import Values

_RULE = "-------------------- --------------------"


def show(given: Values, context: Context) -> None:
    """One line an option, sorted by name; flags are `set`, repeated ones counted."""
    context.info("defined options")
    context.info(_RULE)
    for name in sorted(given):
        value = given[name]
        shown = str(len(value)) if name in ("verbose", "quiet") else value or "set"
        context.info(f"{name:<20}: {shown}")
    context.info(_RULE)
    context.info("end of defined options")
