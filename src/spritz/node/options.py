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
  -D              Run in the foreground, log to standard error as well
  -f file         Use this slurm.conf
  -h              Print this help
  -L file         Write the log to this file
  -n value        Run at this nice value
  -N node[,node]  Be this node, or all nodes of this hostlist
  -v              Say more; may be repeated
  -V              Print version information and exit
"""

_WITH_VALUE = "fLnN"
_FLAGS = "bcCDhvV"
_LONG = {"version": "V", "help": "h"}


class Options(Struct, frozen=True, kw_only=True):
    """What was asked for."""

    boot_now: bool = False
    clear: bool = False
    print_hardware: bool = False
    foreground: bool = False
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
        if len(word) < 2 or word[0] != "-" or word.startswith("--"):
            raise _refused(word)
        for place, letter in enumerate(word[1:], 1):
            if letter in _WITH_VALUE:
                value = word[place + 1 :]
                if not value:
                    if position == len(argv):
                        raise SpritzError(f"option requires an argument -- '{letter}'", hint=USAGE)
                    value = argv[position]
                    position += 1
                given[letter] = value
                break
            if letter not in _FLAGS:
                raise _refused(f"-{letter}")
            verbose += letter == "v"
            given[letter] = ""
    return Options(
        boot_now="b" in given,
        clear="c" in given,
        print_hardware="C" in given,
        foreground="D" in given,
        config_file=given.get("f", ""),
        help="h" in given,
        log_file=given.get("L", ""),
        nice=_nice(given["n"]) if "n" in given else None,
        nodes=given.get("N", ""),
        verbose=verbose,
        version="V" in given,
    )


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
