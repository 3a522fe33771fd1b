"""`slurmd`'s command line. Options that Slurm has and we have not are refused by name.

Source: slurmd(8).
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.errors import SpritzError

USAGE = """\
Usage: slurmd [OPTIONS]
  -b              Report the time of the last boot as now
  -c              Forget steps that an earlier slurmd left (their processes are killed)
  -C              Print the hardware found as a line for slurm.conf, and exit
  --conf "text"   With -Z: keys of this node as slurm.conf would have them, besides what is found here
  --extra text    What this node says of itself, as JSON, for jobs that choose nodes with --extra
  -D              Run in the foreground, log to standard error as well
  -F[feature]     Be the first FUTURE node of slurm.conf with this hardware, and this feature if one is given
  -f file         Use this slurm.conf
  -h              Print this help
  -L file         Write the log to this file
  -n value        Run at this nice value
  -N node[,node]  Be this node, or all nodes of this hostlist
  -v              Say more; may be repeated
  -V              Print version information and exit
  --systemd       Stay in the foreground, and tell systemd when it serves (units of Type=notify)
  -Z              Be a node that slurm.conf does not have: named by -N, or as this host is
"""

_WITH_VALUE = "fLnN"
_FLAGS = "bcCDhvVZ"
#: its value, if any, follows directly
_MAY_HAVE_VALUE = "F"
_LONG_WITH_VALUE = ("conf", "extra")
_LONG = {"version": "V", "help": "h", "systemd": "systemd"}


class Options(Struct, frozen=True, kw_only=True):
    """What was asked for."""

    boot_now: bool = False
    clear: bool = False
    #: of a dynamic node: what slurm.conf would say of it
    conf: str = ""
    dynamic: bool = False
    #: extra data of the node from now on (None: as it was)
    extra: str | None = None
    #: the place of a FUTURE node is taken; with this feature ("": any)
    future: bool = False
    feature: str = ""
    print_hardware: bool = False
    foreground: bool = False
    #: in the foreground, and systemd waits to be told
    systemd: bool = False
    config_file: str = ""
    help: bool = False
    log_file: str = ""
    nice: int | None = None
    nodes: str = ""
    verbose: int = 0
    version: bool = False


def parse(argv: list[str]) -> Options:
    """Options as getopt(3) reads them: `-Dvv`, `-N node1`, `-Nnode1`. Raises SpritzError for anything else."""
    given: dict[str, str] = {}
    verbose = 0
    position = 0
    while position < len(argv):
        word = argv[position]
        position += 1
        if word.startswith("--") and word[2:] in _LONG:
            given[_LONG[word[2:]]] = ""
            continue
        name, equals, value = word[2:].partition("=")
        if word.startswith("--") and name in _LONG_WITH_VALUE:
            given[name], position = (value, position) if equals else _value(name, "", argv, position)
            continue
        if len(word) < 2 or word[0] != "-" or word.startswith("--"):
            raise _refused(word)
        for place, letter in enumerate(word[1:], 1):
            if letter in _WITH_VALUE:
                given[letter], position = _value(letter, word[place + 1 :], argv, position)
                break
            if letter in _MAY_HAVE_VALUE:
                given[letter] = word[place + 1 :]
                break
            if letter not in _FLAGS:
                raise _refused(f"-{letter}")
            verbose += letter == "v"
            given[letter] = ""
    if "F" in given and "Z" in given:
        raise SpritzError("-F and -Z exclude each other", hint=USAGE)
    if "conf" in given and "Z" not in given:
        raise SpritzError("--conf is only for dynamic nodes: give -Z too", hint=USAGE)
    return Options(
        boot_now="b" in given,
        clear="c" in given,
        conf=given.get("conf", ""),
        dynamic="Z" in given,
        extra=given.get("extra"),
        future="F" in given,
        feature=given.get("F", ""),
        print_hardware="C" in given,
        foreground="D" in given or "systemd" in given,
        systemd="systemd" in given,
        config_file=given.get("f", ""),
        help="h" in given,
        log_file=given.get("L", ""),
        nice=_nice(given["n"]) if "n" in given else None,
        nodes=given.get("N", ""),
        verbose=verbose,
        version="V" in given,
    )


def _value(name: str, value: str, argv: list[str], position: int) -> tuple[str, int]:
    """The value of an option, and where the next word is."""
    if value:
        return value, position
    if position == len(argv):
        raise SpritzError(f"option requires an argument -- '{name}'", hint=USAGE)
    return argv[position], position + 1


def _nice(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 100
    if not -20 <= value <= 20:
        raise SpritzError(f"Invalid option for -n option (nice value), {text}: a number from -20 to 20")
    return value


def _refused(word: str) -> SpritzError:
    return SpritzError(f"unrecognized option '{word}': slurmd of Spritz does not have it", hint=USAGE)
