"""CliFilterPlugins: site and user defaults and checks for the options of sbatch, salloc and srun.

They run in the command's own process. A command whose slurm.conf names none loads nothing of this
(`filters_of`).

Map
---
`chain`      the plugins in the order of slurm.conf, and when they are called
`defaults`   user_defaults: ~/.slurm/defaults

Source: slurm.conf(5) CliFilterPlugins; https://slurm.schedmd.com/cli_filter_plugins.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.call.context import Context
    from spritz.cli.call.options import Row
    from spritz.cli.jobs.filters.chain import Filters


def filters_of(command: str, rows: Sequence[Row], context: Context) -> Filters | None:
    """CliFilterPlugins; None for none. Raises SpritzError if one cannot be used."""
    from spritz.client.locate import cli_filters

    names = cli_filters()
    if not names:
        return None
    from spritz.cli.jobs.filters.chain import Filters

    return Filters(names, command, rows, context)
