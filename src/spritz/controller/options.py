"""`slurmctld`'s command line. Slurm's options that are not supported are refused by name.

Source: slurmctld(8).
"""

from __future__ import annotations

from dataclasses import dataclass

from spritz.runtime.daemon.daemon_options import Common, Grammar, read

USAGE = """\
Usage: slurmctld [OPTIONS]
  -c              Clear all previous state: jobs, node states and partition changes
  -D              Run in the foreground, log to standard error as well
  -f file         Use this slurm.conf
  -h              Print this help
  -i              Ignore errors in state files: keep what can be read (with -c: do not ask)
  -L file         Write the log to this file
  -N name         Serve as this SlurmctldHost (if several controllers share a machine)
  -n value        Run at this nice value
  -r              Recover jobs, and DOWN/DRAIN nodes with their reasons (the default)
  -R              Recover partition changes too
  -s              Change working directory to that of the log file, or StateSaveLocation
  -v              Log more; may be repeated
  -V              Print version information and exit
  --systemd       Stay in the foreground, and notify systemd when ready (units with Type=notify)
"""

_GRAMMAR = Grammar(program="slurmctld", usage=USAGE, flags="cDdhirRsvV", with_value="fLnN")


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    clear: bool = False
    ignore_errors: bool = False
    log_file: str = ""
    recover_partitions: bool = False
    change_directory: bool = False
    #: the SlurmctldHost to run as; "": found by the machine's name
    host: str = ""


def parse(argv: list[str]) -> Options:
    """Raises SpritzError for unknown options, with the usage as hint."""
    given, common = read(argv, _GRAMMAR)
    return Options(
        **vars(common),
        clear="c" in given,
        ignore_errors="i" in given,
        log_file=given.get("L", ""),
        host=given.get("N", ""),
        recover_partitions="R" in given,
        change_directory="s" in given or "systemd" in given,
    )
