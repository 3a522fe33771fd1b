"""Files of `srun --multi-prog`: which task runs which program.

Owns the file's language. Must not read files or look for programs: callers do.

Source: srun(1) MULTIPLE PROGRAM CONFIGURATION; messages are those of `verify_multi_name` (22.05).
"""

from __future__ import annotations

from spritz.notation.errors import NotationError, shown, unsigned
from spritz.notation.value import Value

#: most tasks that a file may name
TASKS_MAX = 1 << 20

_BLANKS = " \t\r\v\f"


class MultiProgError(NotationError):
    """The file is wrong, or has no line for a task. `lines` is what srun prints, one error each."""

    def __init__(self, *lines: str) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


class Rule(Value):
    """One line: task `ranges` (empty: all others, `*`) and the words of the command as written, quotes and all."""

    __slots__ = ("ranges", "words")

    def __init__(self, ranges: tuple[tuple[int, int], ...], words: tuple[str, ...]) -> None:
        self.ranges = ranges
        self.words = words

    def offset(self, task: int) -> int | None:
        """Position of `task` within the rule's tasks, the `%o`; None if the rule does not name it. For `*` the task's
        own rank.
        """
        if not self.ranges:
            return task
        before = 0
        for low, high in self.ranges:
            if low <= task <= high:
                return before + task - low
            before += high - low + 1
        return None

    def command(self, task: int) -> list[str] | None:
        """Program and arguments for `task`, with `%t` and `%o` replaced; None if the rule does not cover the task."""
        offset = self.offset(task)
        return None if offset is None else [_substitute(word, task, offset) for word in self.words]


def parse(text: str, name: str, task_count: int | None) -> tuple[list[Rule], int]:
    """Rules in order and the number of tasks: `task_count`, or if that is None, the highest rank in the file plus one.

    `name`: the file's name, for messages. Raises MultiProgError unless a line, or `*`, covers every task, and none
    names a task a second time.
    """
    rules: list[Rule] = []
    seen = bytearray(task_count or 0)
    for number, line in _logical_lines(text):
        try:
            rules.append(_rule(line, rules, seen, task_count))
        except MultiProgError as error:
            raise MultiProgError(*error.lines, f"Line {number} of configuration file {shown(name)} invalid") from error
    total = task_count if task_count is not None else max(len(seen), 1)
    missing = seen.find(0) if len(seen) >= total else len(seen)
    if missing >= 0 and not (rules and not rules[-1].ranges):
        raise MultiProgError(f"Configuration file {shown(name)} invalid, no record for task id {missing}")
    return rules, total


def command(rules: list[Rule], task: int) -> list[str] | None:
    """The command of the first rule that covers `task`; None if there is none."""
    return next((words for rule in rules if (words := rule.command(task)) is not None), None)


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines with content and their numbers. A backslash at the end joins the next line; a leading `#` makes
    a comment.
    """
    numbered: list[tuple[int, str]] = []
    held: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if held or (line.strip(_BLANKS) and line.lstrip(_BLANKS)[0] != "#"):
            held.append(line.removesuffix("\\"))
        if held and not line.endswith("\\"):
            numbered.append((number - len(held) + 1, "".join(held)))
            held = []
    if held:
        numbered.append((text.count("\n") + 2 - len(held), "".join(held)))
    return numbered


def _rule(line: str, before: list[Rule], seen: bytearray, task_count: int | None) -> Rule:
    ranks, _, words_text = line.strip(_BLANKS).replace("\t", " ").partition(" ")
    words = _words(words_text)
    if not words:
        raise MultiProgError()
    if ranks == "*":
        return Rule((), tuple(words))
    if before and not before[-1].ranges:
        raise MultiProgError("Task range specification with asterisk must be last")
    ranges: list[tuple[int, int]] = []
    for item in ranks.split(","):
        if item:
            ranges.append(_range(item, task_count))
            _mark(ranges[-1], seen)
    if not ranges:
        raise MultiProgError(f"Invalid task range specification ({shown(ranks)})")
    return Rule(tuple(ranges), tuple(words))


def _range(item: str, task_count: int | None) -> tuple[int, int]:
    low_text, dash, high_text = item.partition("-")
    low = unsigned(low_text, 0x7FFFFFFF)
    high = unsigned(high_text, 0x7FFFFFFF) if dash else low
    if low is None or high is None:
        raise MultiProgError(f"Invalid task range specification ({shown(item)})")
    if low > high:
        raise MultiProgError(f"Invalid task range, {low}-{high}")
    if high >= (TASKS_MAX if task_count is None else task_count):
        raise MultiProgError(f"Invalid task id, {high} >= ntasks")
    return low, high


def _mark(span: tuple[int, int], seen: bytearray) -> None:
    low, high = span
    if len(seen) <= high:
        seen.extend(bytes(high + 1 - len(seen)))
    twice = seen.find(1, low, high + 1)
    if twice >= 0:
        raise MultiProgError(f"Duplicate record for task {twice}")
    seen[low : high + 1] = b"\1" * (high + 1 - low)


def _words(text: str) -> list[str]:
    """Words divided by blanks outside single quotes; quotes and backslashes stay, for `_substitute`."""
    words: list[str] = []
    start = -1
    quoted = escaped = False
    for position, letter in enumerate(text):
        if start < 0 and letter not in _BLANKS:
            start = position
        if escaped:
            escaped = False
        elif letter == "'":
            quoted = not quoted
        elif quoted:
            pass
        elif letter == "\\":
            escaped = True
        elif letter in _BLANKS and start >= 0:
            words.append(text[start:position])
            start = -1
    if quoted:
        raise MultiProgError(f"Unmatched ' in ({shown(text)})")
    if start >= 0:
        words.append(text[start:])
    return words


def _substitute(word: str, task: int, offset: int) -> str:
    """Single quotes and backslashes removed, what is within or behind them kept. Elsewhere `%t` and `%o` are replaced,
    and `%` with any other letter goes, as in Slurm. Double quotes are letters.
    """
    letters: list[str] = []
    quoted = False
    position = 0
    while position < len(word):
        letter = word[position]
        pair = word[position : position + 2]
        position += 1
        if letter == "'":
            quoted = not quoted
        elif quoted or letter not in "\\%":
            letters.append(letter)
        else:
            position += 1
            values = {"%t": str(task), "%o": str(offset)}
            letters.append(pair[1:] if letter == "\\" else values.get(pair, ""))
    return "".join(letters)
