"""`slurmctld`'s command line. Options that Slurm has and we have not are refused by name.

Source: slurmctld(8).
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.errors import SpritzError

USAGE = """\
Usage: slurmctld [OPTIONS]
  -c              Clear all previous state: jobs, node states and partition changes
  -D              Run in the foreground, log to standard error as well
  -f file         Use this slurm.conf
  -h              Print this help
  -i              Ignore errors in state files: keep what can be read (with -c: do not ask)
  -L file         Write the log to this file
  -n value        Run at this nice value
  -r              Recover jobs, and DOWN/DRAIN nodes with their reasons (the default)
  -R              Recover partition changes too
  -s              Change working directory to that of the log file, or StateSaveLocation
  -v              Say more; may be repeated
  -V              Print version information and exit
  --systemd       Stay in the foreground, and tell systemd when it serves (units of Type=notify)
"""

_WITH_VALUE = "fLn"
_FLAGS = "cDdhirRsvV"


class Options(Struct, frozen=True, kw_only=True):
    """What was asked for."""

    clear: bool = False
    foreground: bool = False
    #: in the foreground, and systemd waits to be told
    systemd: bool = False
    config_file: str = ""
    help: bool = False
    ignore_errors: bool = False
    log_file: str = ""
    nice: int | None = None
    recover_partitions: bool = False
    change_directory: bool = False
    verbose: int = 0
    version: bool = False


def parse(argv: list[str]) -> Options:
    """Options as getopt(3) reads them: `-Dvv`, `-f FILE`, `-fFILE`. Raises SpritzError for anything else."""
    given: dict[str, str] = {}
    verbose = 0
    position = 0
    while position < len(argv):
        word = argv[position]
        position += 1
        if word == "--" and position == len(argv):
            break
        if word == "--version":
            given["V"] = ""
            continue
        if word == "--help":
            given["h"] = ""
            continue
        if word == "--systemd":
            given["systemd"] = ""
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
        clear="c" in given,
        foreground="D" in given or "systemd" in given,
        systemd="systemd" in given,
        config_file=given.get("f", ""),
        help="h" in given,
        ignore_errors="i" in given,
        log_file=given.get("L", ""),
        nice=_nice(given["n"]) if "n" in given else None,
        recover_partitions="R" in given,
        change_directory="s" in given or "systemd" in given,
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
    return SpritzError(f"unrecognized option '{word}': slurmctld of Spritz does not have it", hint=USAGE)
