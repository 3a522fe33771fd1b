"""`sackd`'s command line. Slurm's options that are not supported are refused by name.

Source: sackd(8).
"""

from __future__ import annotations

from dataclasses import dataclass

from spritz.runtime.daemon.daemon_options import Common, Grammar, read

USAGE = """\
Usage: sackd [OPTIONS]
  --conf-server host[:port][,host[:port]]  Fetch the configuration from slurmctld there, and keep it
  -D              Run in the foreground, log to standard error as well
  -f file         Use this slurm.conf
  -h              Print this help
  -L file         Write the log to this file
  -v              Log more; may be repeated
  -V              Print version information and exit
  --systemd       Stay in the foreground, and notify systemd when ready (units with Type=notify)
"""

_GRAMMAR = Grammar(
    program="sackd", usage=USAGE, flags="DhvV", with_value="fL", long_with_value=("conf-server", "pid-file")
)


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    conf_server: str = ""
    log_file: str = ""
    pid_file: str = ""


def parse(argv: list[str]) -> Options:
    """Raises SpritzError for unknown options, with the usage as hint."""
    given, common = read(argv, _GRAMMAR)
    return Options(
        **vars(common),
        conf_server=given.get("conf-server", ""),
        log_file=given.get("L", ""),
        pid_file=given.get("pid-file", ""),
    )
