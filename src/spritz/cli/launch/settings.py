"""How srun itself behaves: from its options, its variables and the few keys of slurm.conf that are the commands' own.

Source: srun(1); slurm.conf(5) KillOnBadExit, WaitTime, KillWait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation import nodecount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.cli.submit.values import Values

#: keys of slurm.conf that are looked at
KEYS = frozenset(("killonbadexit", "waittime", "killwait", "srunprolog", "srunepilog", "taskplugin", "mpidefault"))

_KILL_WAIT_SECONDS = 30


#: Source: slurm.conf(5) TreeWidth
TREE_WIDTH_MAX = 65533


class Settings:
    """`wait_seconds` 0: no limit. `prolog` and `epilog` are programs, "" for none."""

    def __init__(self, given: Values, configured: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self.label = "label" in given
        self.quiet = "quiet" in given
        self.verbose = len(given.get("verbose", ""))
        self.pty = "pty" in given
        self.unbuffered = "unbuffered" in given or self.pty
        self.quit_on_interrupt = "quit-on-interrupt" in given
        self.disable_status = "disable-status" in given
        self.no_kill = "no-kill" in given and given["no-kill"] != "off"
        self.kill_on_bad_exit = _kill_on_bad_exit(given, configured)
        self.wait_seconds = _wait_seconds(given, configured)
        self.kill_wait_seconds = _number(configured.get("killwait", ""), _KILL_WAIT_SECONDS)
        self.prolog = _program(given.get("prolog"), configured.get("srunprolog", ""))
        self.epilog = _program(given.get("epilog"), configured.get("srunepilog", ""))
        #: 0: TreeWidth of slurm.conf
        self.tree_width = tree_width(given, "treewidth")
        self.mpi = "none"
        if "mpi" in given or configured.get("mpidefault", "none").lower() not in ("", "none", "mpi/none"):
            from spritz.cli.launch.programs import mpi_kind

            self.mpi = mpi_kind(given.get("mpi"), configured.get("mpidefault", ""))
        reduced = environ.get("SLURM_SRUN_REDUCE_TASK_EXIT_MSG", "0")
        self.exit_messages_once = reduced.isdigit() and reduced.strip("0") != ""
        self.one_node_tells = environ.get("SLURM_STEP_KILLED_MSG_NODE_ID", "0")


def tree_width(given: Values, option: str) -> int:
    """0 where it is not given: TreeWidth of slurm.conf."""
    return nodecount.parse_count(given[option], f"--{option}", maximum=TREE_WIDTH_MAX) if option in given else 0


def _kill_on_bad_exit(given: Values, configured: Mapping[str, str]) -> bool:
    value = given.get("kill-on-bad-exit")
    if value is None:
        return _number(configured.get("killonbadexit", ""), 0) != 0
    return value == "" or nodecount.parse_count(value, "--kill-on-bad-exit", minimum=0) != 0


def _wait_seconds(given: Values, configured: Mapping[str, str]) -> int:
    value = given.get("wait")
    if value is None:
        return _number(configured.get("waittime", ""), 0)
    return nodecount.parse_count(value, "--wait", minimum=0)


def _number(text: str, default: int) -> int:
    return int(text) if text.isdigit() and len(text) < 10 else default


def _program(given: str | None, configured: str) -> str:
    chosen = configured if given is None else given
    return "" if chosen.lower() == "none" else chosen
