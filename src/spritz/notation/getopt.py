"""Command lines as GNU getopt_long reads them: permutation, unambiguous abbreviations, `-N2`, `--x=y`, bundles, `--`.

Must not know any command's options: each command passes a table. Messages are GNU's, without the program's name in
front.

Source: getopt(3), glibc 2.36.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.notation.errors import NotationError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: the argument that follows an option
NONE = 0
REQUIRED = 1
OPTIONAL = 2

#: longest part of an argument that a message repeats (GNU repeats it whole)
_SHOWN_MAX = 200


class GetoptError(NotationError):
    """The command line is one that getopt_long refuses: `unrecognized option '--foo'`."""


class Option:
    """One option: long `name` ("" if it has none), `short` letter ("" if none), whether an `argument` follows.

    Results carry `key`, which aliases share; it is the long name unless given.
    """

    __slots__ = ("argument", "key", "name", "short")

    def __init__(self, name: str, short: str = "", argument: int = NONE, key: str = "") -> None:
        self.name = name
        self.short = short
        self.argument = argument
        self.key = key or name or short

    def __repr__(self) -> str:
        return f"Option({self.name!r}, {self.short!r}, {self.argument})"


class Options:
    """The table of a command's options, indexed. Build it once."""

    __slots__ = ("by_name", "by_short")

    def __init__(self, options: Iterable[Option]) -> None:
        self.by_name: dict[str, Option] = {}
        self.by_short: dict[str, Option] = {}
        for option in options:
            if option.name:
                self.by_name[option.name] = option
            if option.short:
                self.by_short[option.short] = option

    def find(self, argument: str) -> Option:
        """The option of `--name` or `--name=value`: an exact match, or the only option that the name abbreviates.

        Raises GetoptError.
        """
        name = argument[2:].partition("=")[0]
        exact = self.by_name.get(name)
        if exact is not None:
            return exact
        matches = [option for option_name, option in self.by_name.items() if option_name.startswith(name)]
        if not matches:
            raise GetoptError(f"unrecognized option '{shown(argument, _SHOWN_MAX)}'")
        first = matches[0]
        others = [m for m in matches[1:] if (m.key, m.argument) != (first.key, first.argument)]
        if others:
            named = " ".join(f"'--{option.name}'" for option in (first, *others))
            raise GetoptError(f"option '{shown(argument, _SHOWN_MAX)}' is ambiguous; possibilities: {named}")
        return first


Parsed = tuple[str, str | None]


def parse(arguments: Sequence[str], options: Options, *, stop_early: bool = False) -> tuple[list[Parsed], list[str]]:
    """(key, value) of each option in order, and the other arguments. Value None: no argument was given.

    `stop_early`: the first argument that is no option ends the options (`+` of getopt; sbatch, srun, salloc). Raises
    GetoptError at the first mistake, where Slurm's commands exit.
    """
    parsed: list[Parsed] = []
    positional: list[str] = []
    position, count = 0, len(arguments)
    while position < count:
        argument = arguments[position]
        position += 1
        if argument == "--":
            positional.extend(arguments[position:])
            break
        if len(argument) < 2 or argument[0] != "-":
            if stop_early:
                positional.extend(arguments[position - 1 :])
                break
            positional.append(argument)
        elif argument[1] == "-":
            following = arguments[position] if position < count else None
            position += _long(argument, following, options, parsed)
        else:
            following = arguments[position] if position < count else None
            position += _short(argument, following, options, parsed)
    return parsed, positional


def _long(argument: str, following: str | None, options: Options, parsed: list[Parsed]) -> int:
    """Append one long option. Returns how many further arguments it took."""
    option = options.find(argument)
    _, equals, value = argument.partition("=")
    if equals:
        if option.argument == NONE:
            raise GetoptError(f"option '--{option.name}' doesn't allow an argument")
        parsed.append((option.key, value))
        return 0
    if option.argument != REQUIRED:
        parsed.append((option.key, None))
        return 0
    if following is None:
        raise GetoptError(f"option '--{option.name}' requires an argument")
    parsed.append((option.key, following))
    return 1


def _short(argument: str, following: str | None, options: Options, parsed: list[Parsed]) -> int:
    """Append the options of one bundle (`-hl`, `-N2`, `-N` `2`). Returns how many further arguments they took."""
    for position in range(1, len(argument)):
        letter = argument[position]
        option = options.by_short.get(letter)
        if option is None:
            raise GetoptError(f"invalid option -- '{shown(letter)}'")
        if option.argument == NONE:
            parsed.append((option.key, None))
            continue
        attached = argument[position + 1 :]
        if attached:
            parsed.append((option.key, attached))
        elif option.argument == OPTIONAL:
            parsed.append((option.key, None))
        elif following is None:
            raise GetoptError(f"option requires an argument -- '{letter}'")
        else:
            parsed.append((option.key, following))
            return 1
        return 0
    return 0
