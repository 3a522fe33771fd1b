"""`#SBATCH` lines: which lines of a script carry options, and how a line splits into words.

Source: sbatch(1) DESCRIPTION. The quoting is sbatch's and differs from the shell's: a backslash escapes inside single
quotes too.
"""

from __future__ import annotations

from spritz.notation.errors import NotationError, shown

_BLANKS = " \t\r\v\f"


class ScriptError(NotationError):
    """A line that cannot be read. `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class OptionLine:
    """Words of one `#SBATCH` line, and its number for messages."""

    __slots__ = ("line", "words")

    def __init__(self, line: int, words: list[str]) -> None:
        self.line = line
        self.words = words


def split_words(text: str, line: int = 0, name: str = "") -> list[str]:
    """Words of `text`: quotes group, backslash escapes, an unquoted `#` ends the line. Raises ScriptError.

    Only messages use `line` and `name` (of the script). An empty pair of quotes is an empty word (22.05 ends the line
    there).
    """
    words: list[str] = []
    text = text.lstrip(_BLANKS)
    position = 0
    while position < len(text):
        start = position
        while position < len(text) and text[position] in _BLANKS:
            position += 1
        if position == len(text) or text[position] == "#":
            break
        if text[position] == ":":
            raise ScriptError(f"{_where(name, line)}Unexpected `:` in [{shown(text[start:])}]", line)
        word, position = _word(text, start, position, line, name)
        words.append(word)
    return words


def _where(name: str, line: int) -> str:
    return (f"{name}: " if name else "") + (f"line {line}: " if line else "")


def _word(text: str, start: int, position: int, line: int, name: str) -> tuple[str, int]:
    """Read one word from `position`; return it with the index of its end. Messages quote the line from `start`."""
    letters: list[str] = []
    quote = ""
    while position < len(text):
        letter = text[position]
        if letter == "\\":
            letters.append(text[position + 1 : position + 2])
            position += 2
            continue
        if quote:
            if letter == quote:
                quote = ""
            else:
                letters.append(letter)
        elif letter in "\"'":
            quote = letter
        elif letter in _BLANKS or letter == "#":
            break
        else:
            letters.append(letter)
        position += 1
    if quote:
        raise ScriptError(f"{_where(name, line)}Unmatched `{quote}` in [{shown(text[start:])}]", line)
    return "".join(letters), position


def option_lines(script: str, magic: str = "#SBATCH", name: str = "") -> list[OptionLine]:
    """Lines that begin with `magic`, up to the first line that is neither blank nor a comment. Raises ScriptError.

    No blank is needed after the magic word: `#SBATCHx` holds the word `x`.
    """
    lines: list[OptionLine] = []
    start, number = 0, 0
    while start < len(script):
        end = script.find("\n", start)
        if end < 0:
            end = len(script)
        number += 1
        if script.startswith(magic, start):
            lines.append(OptionLine(number, split_words(script[start + len(magic) : end], number, name)))
        elif not _is_comment(script, start, end):
            break
        start = end + 1
    return lines


def _is_comment(script: str, start: int, end: int) -> bool:
    """Whether the line is blank or begins with `#`. Stops at the first other character: a script may be one endless
    line.
    """
    while start < end and script[start] in _BLANKS:
        start += 1
    return start >= end or script[start] == "#"


def script_problem(script: bytes) -> str:
    """Why sbatch refuses this script, in Slurm's words; empty if it does not. Does not check the length."""
    if not script:
        return "Batch script is empty!"
    if script[:4096].isspace() and not script.strip():
        return "Batch script contains only whitespace!"
    if not script.startswith(b"#!"):
        return (
            "This does not look like a batch script.  The first\n"
            "line must start with #! followed by the path to an interpreter.\n"
            "For instance: #!/bin/sh"
        )
    if b"\0" in script:
        return "The Slurm controller does not allow scripts that\ncontain a NULL character '\\0'."
    if has_dos_line_breaks(script):
        return "Batch script contains DOS line breaks (\\r\\n)\ninstead of expected UNIX line breaks (\\n)."
    return ""


def has_dos_line_breaks(script: bytes) -> bool:
    """Whether any line ends with CR LF."""
    return b"\r\n" in script
