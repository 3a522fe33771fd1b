"""Signals by name and number, and the --signal option.

Numbers are Linux's (x86-64, ARM, RISC-V and POWER agree on all of these).

Source: sbatch(1) --signal; scancel(1) --signal; signal(7).
"""

from __future__ import annotations

from spritz.notation.errors import NotationError, shown, unsigned
from spritz.notation.value import Value

# fmt: off
_NAMES = (
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
)
# fmt: on
#: descriptions as of strsignal(3), in the order of the numbers
_DESCRIPTIONS = (
    "Hangup",
    "Interrupt",
    "Quit",
    "Illegal instruction",
    "Trace/breakpoint trap",
    "Aborted",
    "Bus error",
    "Floating point exception",
    "Killed",
    "User defined signal 1",
    "Segmentation fault",
    "User defined signal 2",
    "Broken pipe",
    "Alarm clock",
    "Terminated",
    "Stack fault",
    "Child exited",
    "Continued",
    "Stopped (signal)",
    "Stopped",
    "Stopped (tty input)",
    "Stopped (tty output)",
    "Urgent I/O condition",
    "CPU time limit exceeded",
    "File size limit exceeded",
    "Virtual timer expired",
    "Profiling timer expired",
    "Window changed",
    "I/O possible",
    "Power failure",
    "Bad system call",
)
_NUMBERS = {name: number for number, name in enumerate(_NAMES, 1)} | {"IOT": 6, "CLD": 17, "POLL": 29}
_RTMIN, _RTMAX = 34, 64

#: seconds before the end unless --signal says otherwise
DEFAULT_SECONDS = 60
_SECONDS_MAX = 65535


class SignalError(NotationError):
    """The text is not a signal, or not a --signal option."""


class SignalOption(Value):
    """--signal: signal `number`, sent `seconds` before the time limit.

    `batch`: to the batch shell only (B). `reservation`: the job may overlap with a reservation (R).
    """

    __slots__ = ("batch", "number", "reservation", "seconds")

    def __init__(
        self, number: int, seconds: int = DEFAULT_SECONDS, batch: bool = False, reservation: bool = False
    ) -> None:
        self.number = number
        self.seconds = seconds
        self.batch = batch
        self.reservation = reservation


def parse_signal(text: str) -> int:
    """Number (1 to 64) of `USR1`, `SIGUSR1`, `usr1`, `10` or `RTMIN+1`. Raises SignalError."""
    word = text.strip()[:32].upper().removeprefix("SIG") if len(text) < 64 else ""
    number = unsigned(word, _RTMAX)
    if number is None:
        number = _NUMBERS.get(word)
    if number is None and word[:5] in ("RTMIN", "RTMAX"):
        number = _real_time(word)
    if not number:
        raise SignalError(f"Unknown job signal: {shown(text)}")
    return number


def _real_time(word: str) -> int | None:
    if len(word) == 5:
        return _RTMIN if word == "RTMIN" else _RTMAX
    offset = unsigned(word[6:], _RTMAX - _RTMIN)
    if offset is None or word[5] != ("+" if word[:5] == "RTMIN" else "-"):
        return None
    return _RTMIN + offset if word[5] == "+" else _RTMAX - offset


def signal_name(number: int) -> str:
    """`USR1`, `RTMIN+1` for real-time signals; a number without a name is printed as a number."""
    if 1 <= number <= len(_NAMES):
        return _NAMES[number - 1]
    if _RTMIN <= number <= _RTMAX:
        return "RTMIN" if number == _RTMIN else f"RTMIN+{number - _RTMIN}"
    return str(number)


def signal_description(number: int) -> str:
    """srun's words for a task that a signal ended: `Killed`, `Segmentation fault`, as strsignal(3) of glibc."""
    if 1 <= number <= len(_DESCRIPTIONS):
        return _DESCRIPTIONS[number - 1]
    if _RTMIN <= number <= _RTMAX:
        return f"Real-time signal {number - _RTMIN}"
    return f"Unknown signal {number}"


def parse_signal_option(text: str) -> SignalOption:
    """Parse `[{R|B|RB}:]signal[@seconds]`, at most 65535 seconds. Raises SignalError."""
    flags, colon, body = text.partition(":")
    if not colon:
        flags, body = "", text
    signal_text, at, seconds_text = body.partition("@")
    seconds = unsigned(seconds_text, _SECONDS_MAX) if at else DEFAULT_SECONDS
    upper = flags.upper() if len(flags) < 3 else "X"
    if seconds is None or (colon and not upper) or upper.strip("RB") or upper in ("RR", "BB"):
        raise SignalError(f"Invalid --signal specification: {shown(text)}")
    try:
        number = parse_signal(signal_text)
    except SignalError as error:
        raise SignalError(f"Invalid --signal specification: {shown(text)} ({error})") from error
    return SignalOption(number, seconds, "B" in upper, "R" in upper)
