"""Print shell commands that select a cluster: `eval "$(spritz env --dir DIR)"`."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING

from spritz.cli.call.context import Context
from spritz.cli.local.paths import ClusterPaths
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", help="directory of the cluster")


def run(arguments: Namespace, context: Context) -> int:
    """Print `export` lines for SLURM_CONF, and for PATH unless it contains the directory of the commands. Always 0."""
    paths = ClusterPaths.of(arguments.dir)
    if not os.path.exists(paths.slurm_conf):
        raise SpritzError(f"no cluster in {paths.root}", hint="make one with `spritz up`")
    context.out(f"export SLURM_CONF={shlex.quote(paths.slurm_conf)}\n")
    commands = os.path.dirname(os.path.abspath(sys.argv[0]))
    path = context.environ.get("PATH", "").split(os.pathsep)
    if os.path.exists(os.path.join(commands, "sbatch")) and (not path or path[0] != commands):
        context.out(f'export PATH={shlex.quote(commands)}:"$PATH"\n')
    return 0
