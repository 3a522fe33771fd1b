"""Node states as sinfo and scontrol name them: long, compact, with the suffixes `* ~ # % ! $ @ ^ -`.

Source: sinfo(1) NODE STATE CODES; `node_state_string`, `node_state_string_compact` of slurm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from spritz.model.queries.nodes import NodeView

_COMPACT = {
    "allocated": "alloc",
    "allocated+": "alloc+",
    "completing": "comp",
    "draining": "drng",
    "drained": "drain",
    "failing": "failg",
    "future": "futr",
    "mixed": "mix",
    "planned": "plnd",
    "reserved": "resv",
    "unknown": "unk",
    "powering_up": "pow_up",
    "powering_down": "pow_dn",
    "reboot": "boot",
    "blocked": "block",
}

#: base states in the order of Slurm's numbers, for sorting
_ORDER = {"UNKNOWN": 0, "DOWN": 1, "IDLE": 2, "ALLOCATED": 3, "ERROR": 4, "MIXED": 5, "FUTURE": 6}
_BUSY = ("ALLOCATED", "MIXED")

#: words of --states and their meaning
STATE_WORDS = {
    "ALLOC": "ALLOCATED",
    "ALLOCATED": "ALLOCATED",
    "BLOCKED": "BLOCKED",
    "CLOUD": "CLOUD",
    "COMP": "COMPLETING",
    "COMPLETING": "COMPLETING",
    "DOWN": "DOWN",
    "DRAIN": "DRAIN",
    "DRAINED": "DRAINED",
    "DRAINING": "DRAINING",
    "ERR": "ERROR",
    "ERROR": "ERROR",
    "FAIL": "FAIL",
    "FAILING": "FAIL",
    "FUTR": "FUTURE",
    "FUTURE": "FUTURE",
    "IDLE": "IDLE",
    "INVAL": "INVALID_REG",
    "INVALID": "INVALID_REG",
    "MAINT": "MAINTENANCE",
    "MIX": "MIXED",
    "MIXED": "MIXED",
    "NO_RESPOND": "NOT_RESPONDING",
    "PLANNED": "PLANNED",
    "PLND": "PLANNED",
    "DRNG": "DRAINING",
    "POWERED_DOWN": "POWERED_DOWN",
    "POWERING_DOWN": "POWERING_DOWN",
    "POWERING_UP": "POWERING_UP",
    "POWER_DOWN": "POWER_DOWN",
    "POWER_UP": "POWER_UP",
    "REBOOT": "REBOOT_REQUESTED",
    "REBOOT_ISSUED": "REBOOT_ISSUED",
    "REBOOT_REQUESTED": "REBOOT_REQUESTED",
    "RESV": "RESERVED",
    "RESERVED": "RESERVED",
    "UNK": "UNKNOWN",
    "UNKNOWN": "UNKNOWN",
}

VALID = (
    "unknown,down,idle,allocated,error,mixed,future,drain,drained,draining,no_respond,reserved,cloud,completing,"
    "powering_down,powered_down,power_down,powering_up,fail,maint,reboot,reboot_issued,planned,blocked,invalid"
)


def state_word(names: Sequence[str], *, compact: bool) -> str:
    """`idle`, `mixed*`, `drng` …, from the base state and flags."""
    base, flags = names[0], set(names[1:])
    word = _word(base, flags)
    if compact:
        word = _COMPACT.get(word, word)
    if word == "maint":
        flags = flags - {"MAINTENANCE"}
    return word + _suffix(flags)


def _word(base: str, flags: Collection[str]) -> str:
    busy = base in _BUSY or "COMPLETING" in flags
    if "INVALID_REG" in flags:
        return "inval"
    if "MAINTENANCE" in flags and not busy and base != "DOWN" and "DRAIN" not in flags:
        return "maint"
    if "REBOOT_ISSUED" in flags and base != "DOWN" and not busy:
        return "reboot"
    if "DRAIN" in flags:
        return "draining" if busy else "drained"
    if "FAIL" in flags:
        return "failing" if busy else "fail"
    if base in ("DOWN", "FUTURE", "UNKNOWN", "ERROR"):
        return base.lower()
    if "COMPLETING" in flags:
        return "allocated+" if base == "ALLOCATED" else "completing"
    if base in _BUSY:
        return base.lower()
    for flag, word in (("RESERVED", "reserved"), ("PLANNED", "planned"), ("BLOCKED", "blocked")):
        if flag in flags:
            return word
    return base.lower()


def _suffix(flags: Collection[str]) -> str:
    for flag, mark in (
        ("MAINTENANCE", "$"),
        ("REBOOT_ISSUED", "^"),
        ("REBOOT_REQUESTED", "@"),
        ("POWERING_UP", "#"),
        ("POWERING_DOWN", "%"),
        ("POWER_DOWN", "!"),
        ("POWERED_DOWN", "~"),
        ("NOT_RESPONDING", "*"),
    ):
        if flag in flags:
            return mark
    return ""


def complete_word(names: Sequence[str]) -> str:
    """sinfo's StateComplete: all states of a node in lower case, `mixed+drain`."""
    return "+".join(names).lower()


def state_order(view: NodeView) -> tuple[int, int]:
    """Sort key: states with flags come after those without, as by Slurm's numbers."""
    flags = [name for name in view.state_names[1:] if name != "PLANNED"]
    return (1 if flags else 0, _ORDER.get(view.state_names[0], 0))


class UnknownState(ValueError):
    """An unknown word of --states; the exception's text is that word."""


def parse_states(text: str) -> list[list[str]]:
    """Alternatives (separated by commas) of conditions that must all hold (`&`). Empty: every state. Raises
    UnknownState.
    """
    choices = []
    for choice in text.split(","):
        words = [word for word in choice.split("&") if word]
        if any(word.lower() == "all" for word in words):
            return []
        conditions = []
        for word in words:
            name = STATE_WORDS.get(word.upper())
            if name is None:
                raise UnknownState(word)
            conditions.append(name)
        if conditions:
            choices.append(conditions)
    return choices


def matches(view: NodeView, choices: Sequence[Sequence[str]]) -> bool:
    """Whether the node is in one of the requested states."""
    return not choices or any(all(_is(view, name) for name in conditions) for conditions in choices)


def _is(view: NodeView, name: str) -> bool:
    base, flags = view.state_names[0], view.state_names[1:]
    busy = base in _BUSY or "COMPLETING" in flags
    if name == "DRAINED":
        return "DRAIN" in flags and not busy
    if name == "DRAINING":
        return "DRAIN" in flags and busy
    if name == "IDLE":
        return base == "IDLE" and not {"DRAIN", "FAIL", "COMPLETING"} & set(flags)
    return name == base or name in flags


def unknown_lines(word: str) -> tuple[str, str]:
    """sinfo's error about an unknown state."""
    return f'Bad state string: "{word}"', f"valid states: {VALID}"
