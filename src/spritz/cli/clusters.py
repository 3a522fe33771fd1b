"""-M, --clusters, where there is one cluster: its own name, or `all`. Any other is unknown, in Slurm's words.

Source: squeue(1), sbatch(1); wording and status of 22.05, with slurmdbd and without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.context import Context


def chosen(text: str, context: Context, *, said: str = "--cluster") -> str:
    """This cluster's name, if it is in the comma list `text`; names that are no cluster's are told.

    Raises SpritzError if no name is known, with `said` for where they come from; ClientError if there is no slurm.conf.
    """
    from spritz.client.locate import locate_controller, locate_database

    config = locate_controller()
    unknown = [name for name in text.split(",") if name.lower() not in (config.cluster_name, "all")]
    known = len(unknown) < len(text.split(","))
    if known or locate_database(config.path).kind == "slurmdbd":
        for name in unknown:
            context.error(f"No cluster '{name}' known by database.")
    else:
        context.error("Problem talking to database")
    if known:
        return config.cluster_name
    from spritz.model.errors import SpritzError

    raise SpritzError(
        f"'{text}' can't be reached now, or it is an invalid entry for {said}.  "
        "Use 'sacctmgr list clusters' to see available clusters."
    )


def source(found: Sequence[tuple[str, str | None]]) -> str:
    """What messages call the option: the environment's name if the command line does not have it."""
    return "--cluster" if any(key == "clusters" for key, _ in found) else "SLURM_CLUSTERS"
