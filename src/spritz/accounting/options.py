"""`slurmdbd`'s command line. Options that Slurm has and we have not are refused by name.

Source: slurmdbd(8). `-f` is ours, as slurmctld's.
"""

from __future__ import annotations

from msgspec import Struct

from spritz.model.errors import SpritzError

USAGE = """\
Usage: slurmdbd [OPTIONS]
  -D              Run in the foreground, log to standard error as well
  -f file         Use this slurmdbd.conf
  -h              Print this help
  -n value        Run at this nice value
  -s              Change working directory to that of the log file, or /var/tmp
  -v              Say more; may be repeated
  -V              Print version information and exit
  --systemd       Stay in the foreground, and tell systemd when it serves (units of Type=notify)
"""

_LONG = {"--version": "V", "--help": "h", "--systemd": "systemd"}


class Options(Struct, frozen=True, kw_only=True):
    """What was asked for."""

    foreground: bool = False
    #: in the foreground, and systemd waits to be told
    systemd: bool = False
    config_file: str = ""
    help: bool = False
    nice: int | None = None
    change_directory: bool = False
    verbose: int = 0
    version: bool = False


def parse(argv: list[str]) -> Options:
    """Options as getopt(3) reads them. Raises SpritzError for anything else."""
    given: dict[str, str] = {}
    verbose = 0
    words = iter(argv)
    for word in words:
        if word in _LONG:
            given[_LONG[word]] = ""
            continue
        if len(word) < 2 or word[0] != "-" or word.startswith("--"):
            raise _refused(word)
        for place, letter in enumerate(word[1:], 1):
            if letter in "fn":
                value = word[place + 1 :] or next(words, "")
                if not value:
                    raise SpritzError(f"option requires an argument -- '{letter}'", hint=USAGE)
                given[letter] = value
                break
            if letter not in "DhsvV":
                raise _refused(f"-{letter}")
            verbose += letter == "v"
            given[letter] = ""
    return Options(
        foreground="D" in given or "systemd" in given,
        systemd="systemd" in given,
        config_file=given.get("f", ""),
        help="h" in given,
        nice=_nice(given["n"]) if "n" in given else None,
        change_directory="s" in given,
        verbose=verbose,
        version="V" in given,
    )


def _nice(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and int(digits[:4]) <= 20):
        raise SpritzError(f"Invalid option for -n option (nice value), {text}: a number from -20 to 20")
    return int(text)


def _refused(word: str) -> SpritzError:
    return SpritzError(f"unrecognized option '{word}': slurmdbd of Spritz does not have it", hint=USAGE)
