"""srun's own behaviour, from its options, its variables and the keys of slurm.conf that concern commands.

Source: srun(1); slurm.conf(5) KillOnBadExit, WaitTime, KillWait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation import nodecount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.cli.jobs.submit.values import Values

#: Keys of slurm.conf that srun reads.
KEYS = frozenset(("killonbadexit", "waittime", "killwait", "srunprolog", "srunepilog", "taskplugin", "mpidefault"))

_KILL_WAIT_SECONDS = 30


#: Source: slurm.conf(5) TreeWidth
TREE_WIDTH_MAX = 65533


class Settings:
    """`wait_seconds`: 0 means no limit. `prolog`, `epilog`: paths of programs, "" for none."""

    def __init__(self, options: Values, configured: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self.label = "label" in options
        self.quiet = "quiet" in options
        self.verbose = len(options.get("verbose", ""))
        self.pty = "pty" in options
        self.unbuffered = "unbuffered" in options or self.pty
        self.quit_on_interrupt = "quit-on-interrupt" in options
        self.disable_status = "disable-status" in options
        self.no_kill = "no-kill" in options and options["no-kill"] != "off"
        self.kill_on_bad_exit = _kill_on_bad_exit(options, configured)
        self.wait_seconds = _wait_seconds(options, configured)
        self.kill_wait_seconds = _number(configured.get("killwait", ""), _KILL_WAIT_SECONDS)
        self.prolog = _program(options.get("prolog"), configured.get("srunprolog", ""))
        self.epilog = _program(options.get("epilog"), configured.get("srunepilog", ""))
        #: 0 means TreeWidth of slurm.conf
        self.tree_width = tree_width(options, "treewidth")
        self.mpi = "none"
        if "mpi" in options or configured.get("mpidefault", "none").lower() not in ("", "none", "mpi/none"):
            from spritz.cli.jobs.launch.programs import mpi_kind

            self.mpi = mpi_kind(options.get("mpi"), configured.get("mpidefault", ""))
        reduced = environ.get("SLURM_SRUN_REDUCE_TASK_EXIT_MSG", "0")
        self.exit_messages_once = reduced.isdecimal() and reduced.strip("0") != ""
        self.one_node_tells = environ.get("SLURM_STEP_KILLED_MSG_NODE_ID", "0")


def tree_width(options: Values, option: str) -> int:
    """Value of the option; 0 without it, which means TreeWidth of slurm.conf. Raises SpritzError."""
    return nodecount.parse_count(options[option], f"--{option}", maximum=TREE_WIDTH_MAX) if option in options else 0


def _kill_on_bad_exit(options: Values, configured: Mapping[str, str]) -> bool:
    value = options.get("kill-on-bad-exit")
    if value is None:
        return _number(configured.get("killonbadexit", ""), 0) != 0
    return value == "" or nodecount.parse_count(value, "--kill-on-bad-exit", minimum=0) != 0


def _wait_seconds(options: Values, configured: Mapping[str, str]) -> int:
    value = options.get("wait")
    if value is None:
        return _number(configured.get("waittime", ""), 0)
    return nodecount.parse_count(value, "--wait", minimum=0)


def _number(text: str, default: int) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else default


def _program(option: str | None, configured: str) -> str:
    chosen = configured if option is None else option
    return "" if chosen.lower() == "none" else chosen
