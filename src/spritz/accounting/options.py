"""`slurmdbd`'s command line. Slurm's options that are not supported are refused by name.

Source: slurmdbd(8). Differs: `-f` is ours, the same as slurmctld's.
"""

from __future__ import annotations

from dataclasses import dataclass

from spritz.runtime.daemon.daemon_options import Common, Grammar, read

USAGE = """\
Usage: slurmdbd [OPTIONS]
  -D              Run in the foreground, log to standard error as well
  -f file         Use this slurmdbd.conf
  -h              Print this help
  -n value        Run at this nice value
  -s              Change working directory to that of the log file, or /var/tmp
  -v              Log more; may be repeated
  -V              Print version information and exit
  --systemd       Stay in the foreground, and notify systemd when ready (units with Type=notify)
"""

_GRAMMAR = Grammar(program="slurmdbd", usage=USAGE, flags="DhsvV", with_value="fn")


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    change_directory: bool = False


def parse(argv: list[str]) -> Options:
    """Raises SpritzError for unknown options, with the usage as hint."""
    given, common = read(argv, _GRAMMAR)
    return Options(**vars(common), change_directory="s" in given)
