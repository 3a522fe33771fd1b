"""Node states as sinfo and scontrol name them: long, compact, with the suffixes `* ~ # % ! $ @ ^ -`.

Source: sinfo(1) NODE STATE CODES; `node_state_string`, `node_state_string_compact` of slurm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

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

#: Words of --states and their meaning, in the order in which Slurm looks: the beginning of a word means the first that
#: begins so (`d` DOWN, `dr` DRAIN).
STATE_WORDS = {
    "UNKNOWN": "UNKNOWN",
    "UNK": "UNKNOWN",
    "DOWN": "DOWN",
    "IDLE": "IDLE",
    "ALLOCATED": "ALLOCATED",
    "ERROR": "ERROR",
    "MIXED": "MIXED",
    "FUTURE": "FUTURE",
    "FUTR": "FUTURE",
    "BLOCKED": "BLOCKED",
    "INVALID_REG": "INVALID_REG",
    "PLANNED": "PLANNED",
    "PLND": "PLANNED",
    "DRAIN": "DRAIN",
    "DRAINED": "DRAINED",
    "RESV": "RESERVED",
    "RESERVED": "RESERVED",
    # of the releases before 24.05; no node is in this state
    "PERFCTRS": "PERFCTRS",
    "NPC": "PERFCTRS",
    "DRAINING": "DRAINING",
    "DRNG": "DRAINING",
    "DYNAMIC_FUTURE": "DYNAMIC_FUTURE",
    "DYNAMIC_NORM": "DYNAMIC_NORM",
    "COMPLETING": "COMPLETING",
    "NO_RESPOND": "NOT_RESPONDING",
    "NOT_RESPONDING": "NOT_RESPONDING",
    "POWER_UP": "POWER_UP",
    "POW_UP": "POWER_UP",
    "POWERING_DOWN": "POWERING_DOWN",
    "POWRING_DN": "POWERING_DOWN",
    "POWERED_DOWN": "POWERED_DOWN",
    "POWERED_DN": "POWERED_DOWN",
    "POWER_DOWN": "POWER_DOWN",
    "POW_DN": "POWER_DOWN",
    "POWERING_UP": "POWERING_UP",
    "FAIL": "FAIL",
    "FAILING": "FAIL",
    "MAINTENANCE": "MAINTENANCE",
    "REBOOT_REQUESTED": "REBOOT_REQUESTED",
    "REBOOT_ISSUED": "REBOOT_ISSUED",
    "CLOUD": "CLOUD",
    "EXTERNAL": "EXTERNAL",
}

VALID = (
    "unknown,down,idle,allocated,error,mixed,future,drain,drained,draining,no_respond,reserved,cloud,completing,"
    "powering_down,powered_down,power_down,powering_up,power_up,fail,maint,reboot,reboot_issued,planned,blocked,inval,"
    "external,dynamic_future,dynamic_norm"
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


class Condition(NamedTuple):
    """One word of --states: the node is in this state, or is not."""

    state: str
    negated: bool = False


class Conditions(NamedTuple):
    """All words of --states. None of them (of `""` or `","`) means no node, as in Slurm."""

    words: tuple[Condition, ...] = ()
    #: all must hold, not any
    joined: bool = False

    def names(self, state: str) -> bool:
        """Whether nodes in `state` are asked for."""
        return Condition(state) in self.words


def parse_states(text: str) -> Conditions | None:
    """Words separated by `,` (any holds); by `+` or `&` anywhere, all must hold. `~` or `!` before a word inverts it.
    None for `all`. Raises UnknownState.
    """
    if text.lower() == "all":
        return None
    words = []
    for word in text.replace("+", "&").replace("&", ",").split(","):
        if not word:
            continue
        negated = word[0] in "~!"
        start = word[negated:].upper()
        state = next((state for name, state in STATE_WORDS.items() if name.startswith(start)), None)
        if state is None:
            raise UnknownState(word[negated:])
        words.append(Condition(state, negated))
    return Conditions(tuple(words), "+" in text or "&" in text)


def matches(view: NodeView, conditions: Conditions | None) -> bool:
    """Whether the node is in the requested states."""
    if conditions is None:
        return True
    results = [_is(view, word.state) is not word.negated for word in conditions.words]
    return bool(results) and (all if conditions.joined else any)(results)


def _is(view: NodeView, name: str) -> bool:
    base, flags = view.state_names[0], view.state_names[1:]
    busy = base in _BUSY or "COMPLETING" in flags
    if name == "DRAINED":
        return "DRAIN" in flags and not busy
    if name == "DRAINING":
        return "DRAIN" in flags and busy
    if name == "ALLOCATED":
        return base == name or view.cpus_allocated > 0
    return name == base or name in flags


def unknown_lines(word: str) -> tuple[str, str]:
    """sinfo's error about an unknown state."""
    return f'Bad state string: "{word}"', f"valid states: {VALID}"
