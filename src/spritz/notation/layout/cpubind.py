"""Binding options: --cpu-bind, --mem-bind, --gpu-bind.

Converts text to values and back. Must not decide which CPUs a task gets: the node does.

Source: srun(1) --cpu-bind, --mem-bind, --gpu-bind; messages are those of `slurm_verify_cpu_bind` and its siblings
(22.05).
"""

from __future__ import annotations

from spritz.notation.errors import NotationError, shown, unsigned
from spritz.notation.value import Value

_CPU_TYPES = ("none", "rank", "threads", "cores", "sockets", "ldoms", "rank_ldom")
_CPU_LISTS = ("map_cpu", "mask_cpu", "map_ldom", "mask_ldom")
_MEMORY_TYPES = ("none", "rank", "local")
_MEMORY_LISTS = ("map_mem", "mask_mem")
_GPU_LISTS = ("map_gpu", "mask_gpu")
_SINGULAR = {"thread": "threads", "core": "cores", "socket": "sockets", "ldom": "ldoms"}

#: most entries of a list after `*` repetition, and widest mask in hexadecimal digits
_ENTRIES_MAX = 65536
_MASK_DIGITS_MAX = 1024
_NUMBER_MAX = 1 << 20


class BindError(NotationError):
    """The text is not a binding. The message is Slurm's."""


class Binding(Value):
    """A binding: `type` is a word of the option ("": not given), `values` the numbers of its list, repetitions
    expanded.

    Masks are ints. For `per_task` and `single` the only value is the count. `flags` are further words: sort, nosort,
    prefer, one_thread. `verbose`: report the binding (None: not given; False: quiet).
    """

    __slots__ = ("flags", "type", "values", "verbose")

    def __init__(
        self, type: str = "", values: tuple[int, ...] = (), verbose: bool | None = None, flags: tuple[str, ...] = ()
    ) -> None:
        self.type = type
        self.values = values
        self.verbose = verbose
        self.flags = flags


def _words(text: str) -> list[str]:
    """Options separated by commas or semicolons. A comma before a digit or a mask continues a list."""
    words: list[str] = []
    for piece in text.replace(";", ",").split(","):
        continues = bool(words) and ":" in words[-1] and piece[:1] in "0123456789abcdefABCDEF" and ":" not in piece
        if continues and piece and (piece[0].isdecimal() or words[-1].startswith("mask")):
            words[-1] += "," + piece
        else:
            words.append(piece)
    return words


def _numbers(text: str, mask: bool) -> tuple[int, ...]:
    """Numbers (or hexadecimal masks) of a list; `N*3` repeats N. Raises BindError."""
    values: list[int] = []
    for item in text.split(","):
        number_text, star, times_text = item.partition("*")
        times = unsigned(times_text, _ENTRIES_MAX) if star else 1
        value = _mask(number_text) if mask or number_text[:2].lower() == "0x" else unsigned(number_text, _NUMBER_MAX)
        if value is None or not times or len(values) + times > _ENTRIES_MAX:
            raise BindError(
                f"Failed to validate number: {shown(item)}, the offending character is {_offender(item, mask)}"
            )
        values += [value] * times
    return tuple(values)


def _mask(text: str) -> int | None:
    digits = text[2:] if text[:2].lower() == "0x" else text
    if not digits or len(digits) > _MASK_DIGITS_MAX or digits.strip("0123456789abcdefABCDEF"):
        return None
    return int(digits, 16)


def _offender(item: str, mask: bool) -> str:
    good = "0123456789*xX" + ("abcdefABCDEF" if mask else "")
    return shown(next((letter for letter in item if letter not in good), item[:1]))


def _verbosity(word: str) -> bool | None:
    return {"v": True, "verbose": True, "q": False, "quiet": False}.get(word)


def parse_cpu_bind(text: str) -> Binding:
    """Parse `cores`, `verbose,map_cpu:0,1*2`, `mask_cpu:0x3,0xc`. The last type wins. Raises BindError."""
    kind, values, verbose, flags = "", (), None, []  # type: str, tuple[int, ...], bool | None, list[str]
    for word in _words(text):
        name, colon, listed = word.partition(":")
        lowered = name.lower() if len(name) < 32 else ""
        lowered = _SINGULAR.get(lowered, lowered)
        verbosity = None if colon else _verbosity(lowered)
        if verbosity is not None:
            verbose = verbosity
        elif lowered in ("one_thread", "one-thread") and not colon:
            flags.append("one_thread")
        elif lowered in ("no", "none") and not colon:
            kind, values = "none", ()
        elif lowered in _CPU_TYPES and not colon:
            kind, values = lowered, ()
        elif lowered in _CPU_LISTS:
            kind, values = lowered, _listed("--cpu-bind", lowered, listed)
        else:
            raise BindError(f'unrecognized --cpu-bind argument "{shown(word)}"')
    return Binding(kind, values, verbose, tuple(flags))


def _listed(option: str, name: str, listed: str) -> tuple[int, ...]:
    if not listed:
        raise BindError(f'missing list for "{option}={name}:<list>"')
    return _numbers(listed, name.startswith("mask"))


def parse_mem_bind(text: str) -> Binding:
    """Parse `local`, `v,map_mem:0,1`, `sort`, `prefer`. Raises BindError."""
    kind, values, verbose, flags = "", (), None, []  # type: str, tuple[int, ...], bool | None, list[str]
    for word in _words(text):
        name, colon, listed = word.partition(":")
        lowered = name.lower() if len(name) < 32 else ""
        verbosity = None if colon else _verbosity(lowered)
        if verbosity is not None:
            verbose = verbosity
        elif lowered in ("sort", "nosort") and not colon:
            flags = [flag for flag in flags if flag not in ("sort", "nosort")] + [lowered]
        elif lowered in ("p", "prefer") and not colon:
            flags = [flag for flag in flags if flag != "prefer"] + ["prefer"]
        elif lowered in ("no", "none") and not colon:
            kind, values = "none", ()
        elif lowered in _MEMORY_TYPES and not colon:
            kind, values = lowered, ()
        elif lowered in _MEMORY_LISTS:
            kind, values = lowered, _listed("--mem-bind", lowered, listed)
        else:
            raise BindError(f'unrecognized --mem-bind argument "{shown(word)}"')
    return Binding(kind, values, verbose, tuple(flags))


def parse_gpu_bind(text: str) -> Binding:
    """Parse `[verbose,]closest`, `none`, `map_gpu:0,1` (or `map:`), `mask_gpu:` (or `mask:`), `per_task:2`, `single:1`.

    Raises BindError.
    """
    body = text
    verbose: bool | None = None
    head, comma, remainder = body.partition(",")
    if comma and head.lower() in ("v", "verbose"):
        verbose, body = True, remainder
    name, colon, listed = body.partition(":")
    lowered = name.lower() if len(name) < 32 else ""
    lowered = {"map": "map_gpu", "mask": "mask_gpu"}.get(lowered, lowered)
    if lowered in ("closest", "none") and not colon:
        return Binding(lowered, (), verbose)
    if lowered in ("per_task", "single") and colon:
        count = unsigned(listed, _NUMBER_MAX)
        if count:
            return Binding(lowered, (count,), verbose)
    elif lowered in _GPU_LISTS and listed:
        try:
            return Binding(lowered, _numbers(listed, lowered == "mask_gpu"), verbose)
        except BindError as error:
            raise BindError(f"Invalid --gpu-bind argument: gpu:{shown(text)} ({error})") from error
    raise BindError(f"Invalid --gpu-bind argument: gpu:{shown(text)}")


def format(binding: Binding) -> str:
    words = [] if binding.verbose is None else ["verbose" if binding.verbose else "quiet"]
    words += binding.flags
    if binding.type:
        words.append(binding.type + (f":{format_values(binding)}" if binding.values else ""))
    return ",".join(words)


def format_values(binding: Binding) -> str:
    """The list alone: `0,1`, `0x3,0xC` (as in SLURM_CPU_BIND_LIST)."""
    if binding.type.startswith("mask"):
        return ",".join(f"0x{value:X}" for value in binding.values)
    return ",".join(map(str, binding.values))
