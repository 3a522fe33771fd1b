"""`docs/reference/commands.md`: what each command prints for `--help`, one section a command."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

#: command -> what it is for
COMMANDS = {
    "sbatch": "submit a batch script",
    "srun": "run a command on allocated nodes, or in an allocation of its own",
    "salloc": "get an allocation and run a command or shell in it",
    "sattach": "connect the terminal to a running step",
    "sbcast": "copy a file to the nodes of a job",
    "sgather": "copy a file from the nodes of a job",
    "scrontab": "run jobs again and again, at times that a crontab names",
    "strigger": "run programs when something happens to nodes, jobs and daemons",
    "squeue": "list jobs and steps",
    "sinfo": "list partitions and nodes",
    "sprio": "show the parts of job priorities",
    "sshare": "show fair share",
    "scancel": "cancel or signal jobs and steps",
    "scontrol": "show and change jobs, nodes, partitions, reservations and daemons",
    "sacct": "list jobs from the accounting records",
    "sacctmgr": "show and change accounts, users, QOS and limits",
    "sreport": "report usage",
    "sstat": "show what running steps use",
    "sdiag": "show how the controller fares",
}

#: subcommands of `spritz` have a help of their own
SPRITZ = (
    *("up", "down", "status", "doctor", "why", "eff", "history", "config", "simulate", "usage", "shares", "env"),
    *(
        "run",
        "runs",
        "show",
        "diff",
        "rerun",
        "logs",
        "edit",
        "share",
        "cancel",
        "remove",
        "track",
        "checkpoints",
        "pause",
        "resume",
        "sweep",
        "sweeps",
    ),
    *("exec", "ssh", "dev", "quota", "pipeline", "pipeline run", "completion"),
)

INTRODUCTION = """\
# Commands

Generated from the commands' own `--help` (`make docs`); do not edit. [Compatibility](../compatibility/options.md)
says of each option of Slurm whether it works or is refused.
"""


def markdown() -> str:
    """The whole page."""
    wanted = [([name], why) for name, why in COMMANDS.items()] + [(["spritz", *name.split()], "") for name in SPRITZ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        helps = list(pool.map(lambda entry: _help(entry[0]), wanted))
    lines = [INTRODUCTION]
    for (words, why), text in zip(wanted, helps, strict=True):
        lines += [f"## {' '.join(words)}", ""]
        if why:
            lines += [f"{why[0].upper()}{why[1:]}.", ""]
        lines += ["```text", text.strip(), "```", ""]
    return "\n".join(lines)


def _help(words: list[str]) -> str:
    code = f"from spritz.cli.{words[0]} import entry; entry()"
    environment = {**os.environ, "COLUMNS": "100", "SPRITZ_NO_SERVER": "1", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-c", code, *words[1:], "--help"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return done.stdout
