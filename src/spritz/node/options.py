"""`slurmd`'s command line. Slurm's options that are not supported are refused by name.

Source: slurmd(8).
"""

from __future__ import annotations

from dataclasses import dataclass

from spritz.model.errors import SpritzError
from spritz.runtime.daemon.daemon_options import Common, Grammar, read

USAGE = """\
Usage: slurmd [OPTIONS]
  -b              Report the time of the last boot as now
  -c              Kill and forget the steps that an earlier slurmd left
  -C              Print the hardware found as a line for slurm.conf, and exit
  --conf "text"   With -Z: keys of this node as in slurm.conf, in addition to the hardware found
  --extra text    Extra data of this node as JSON, for jobs that choose nodes with --extra
  --conf-server host[:port][,host[:port]]  Fetch the configuration from slurmctld there, and keep it
  -D              Run in the foreground, log to standard error as well
  -F[feature]     Serve the first FUTURE node of slurm.conf with this hardware, and this feature if given
  -f file         Use this slurm.conf
  -h              Print this help
  -L file         Write the log to this file
  -n value        Run at this nice value
  -N node[,node]  Serve this node, or all nodes of this hostlist
  -v              Log more; may be repeated
  -V              Print version information and exit
  --systemd       Stay in the foreground, and notify systemd when ready (units with Type=notify)
  -Z              Serve a dynamic node, which slurm.conf does not have: named by -N, or like this host
"""

_GRAMMAR = Grammar(
    program="slurmd",
    usage=USAGE,
    flags="bcCDhvVZ",
    with_value="fLnN",
    may_have_value="F",
    long_with_value=("conf", "conf-server", "extra"),
)


@dataclass(frozen=True, kw_only=True)
class Options(Common):
    boot_now: bool = False
    clear: bool = False
    #: the line of slurm.conf of a dynamic node
    conf: str = ""
    #: controllers to fetch the configuration from
    conf_server: str = ""
    dynamic: bool = False
    #: extra data of the node from now on (None: as it was)
    extra: str | None = None
    #: the place of a FUTURE node is taken; with this feature ("": any)
    future: bool = False
    feature: str = ""
    print_hardware: bool = False
    log_file: str = ""
    nodes: str = ""


def parse(argv: list[str]) -> Options:
    """Raises SpritzError for unknown options and for options that exclude each other, with the usage as hint."""
    given, common = read(argv, _GRAMMAR)
    if "F" in given and "Z" in given:
        raise SpritzError("-F and -Z exclude each other", hint=USAGE)
    if "conf" in given and "Z" not in given:
        raise SpritzError("--conf is only for dynamic nodes: give -Z too", hint=USAGE)
    return Options(
        **vars(common),
        boot_now="b" in given,
        clear="c" in given,
        conf=given.get("conf", ""),
        conf_server=given.get("conf-server", ""),
        dynamic="Z" in given,
        extra=given.get("extra"),
        future="F" in given,
        feature=given.get("F", ""),
        print_hardware="C" in given,
        log_file=given.get("L", ""),
        nodes=given.get("N", ""),
    )
