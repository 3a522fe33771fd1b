"""Power saving as decisions need it. Source: slurm.conf(5) ResumeProgram, SuspendProgram, SuspendExcNodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz.config.kinds import words_of
from spritz.model.cluster.power import PowerPolicy
from spritz.model.ids import INFINITE
from spritz.model.states import NodeFlag
from spritz.notation import hostlist
from spritz.notation.errors import shown

if TYPE_CHECKING:
    from spritz.config.diagnostics import Diagnostics
    from spritz.config.settings import Settings
    from spritz.config.typed import Parsed


#: values of SuspendExcStates
_STATES = frozenset({"DOWN", *NodeFlag.__members__})


def power_policy(have: Settings) -> PowerPolicy:
    suspend = have.integer("SuspendTime")
    most = have.option("SlurmctldParameters", "max_powered_nodes")
    return PowerPolicy(
        resumes=bool(have.text("ResumeProgram")),
        suspends=bool(have.text("SuspendProgram")),
        resume_rate=have.integer("ResumeRate"),
        suspend_rate=have.integer("SuspendRate"),
        powered_max=int(most) if most else None,
        resume_timeout_seconds=have.integer("ResumeTimeout"),
        suspend_timeout_seconds=have.integer("SuspendTimeout"),
        suspend_seconds=None if suspend >= INFINITE else suspend,
        kept=kept_nodes(have.text("SuspendExcNodes")),
        kept_partitions=have.words("SuspendExcParts"),
        kept_states=tuple(word for word in have.words("SuspendExcStates") if word in _STATES),
        idle_on_suspend=have.has_option("SlurmctldParameters", "idle_on_node_suspend"),
        reboots=bool(have.text("RebootProgram")),
        reboots_here=have.has_option("SlurmctldParameters", "reboot_from_controller"),
        hides="cloud" not in have.words("PrivateData"),
        registered_addresses=have.has_option("SlurmctldParameters", "cloud_reg_addrs"),
    )


def kept_nodes(text: str) -> tuple[tuple[tuple[str, ...], int], ...]:
    """`n[1-3],n[10-20]:4,m[1-9]`: sets of nodes, and how many of each stay up (0: all).

    A count covers all nodes since the previous count. Raises HostlistError, or ValueError for a malformed count.
    """
    kept = []
    names: list[str] = []
    for item in _items(text):
        nodes, colon, count = item.rpartition(":")
        names += hostlist.expand(nodes if colon else item)
        if colon:
            if not count.isdecimal() or not int(count):
                raise ValueError(f"{count!r} is not a number of nodes")
            kept.append((tuple(names), int(count)))
            names = []
    if names:
        kept.append((tuple(names), 0))
    return tuple(kept)


def changed_exceptions(policy: PowerPolicy, key: str, sign: str, text: str) -> PowerPolicy:
    """The policy with another list under that key, or (`sign` + or -) with items added or removed. Raises ValueError
    for malformed text.
    """
    if key == "SuspendExcNodes":
        kept = kept_nodes(text)
        if sign == "-":
            gone = {name for names, _count in kept for name in names}
            exceptions = ((tuple(name for name in names if name not in gone), count) for names, count in policy.kept)
            return replace(policy, kept=tuple(item for item in exceptions if item[0]))
        return replace(policy, kept=(*policy.kept, *kept) if sign else kept)
    field = {"SuspendExcParts": "kept_partitions", "SuspendExcStates": "kept_states"}.get(key)
    if field is None:
        raise ValueError(f"{key} is not a list of exceptions")
    words = words_of(text if field == "kept_partitions" else text.upper())
    if field == "kept_states" and not _STATES.issuperset(words):
        raise ValueError(text)
    old: tuple[str, ...] = getattr(policy, field)
    if sign == "-":
        words = tuple(word for word in old if word not in words)
    elif sign:
        words = tuple(dict.fromkeys((*old, *words)))
    return replace(policy, **{field: words})


def exceptions_text(policy: PowerPolicy) -> dict[str, str]:
    """The lists as `scontrol show config` prints them."""
    nodes = ",".join(hostlist.compress(names) + (f":{count}" if count else "") for names, count in policy.kept)
    texts = {
        "SuspendExcNodes": nodes,
        "SuspendExcParts": ",".join(policy.kept_partitions),
        "SuspendExcStates": ",".join(policy.kept_states),
    }
    return {key: text or "(null)" for key, text in texts.items()}


def _items(text: str) -> list[str]:
    """Split at commas outside brackets."""
    items, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            items.append("")
        else:
            items[-1] += letter
    return [item for item in items if item]


def check_power(parsed: Parsed, diagnostics: Diagnostics) -> None:
    """Add faults in the combination of power saving keys."""
    settings = parsed.settings
    text = settings.text("SuspendExcNodes")
    try:
        names = {name for nodes, _count in kept_nodes(text) for name in nodes}
    except ValueError as error:
        message = f"SuspendExcNodes={shown(text)}: expected nodes[:count],…"
        diagnostics.error(settings.places.get("SuspendExcNodes"), message, key="SuspendExcNodes", hint=str(error))
        names = set()
    unknown = sorted(names - {name for line in parsed.nodes for name in line.names})
    if unknown:
        diagnostics.warning(
            settings.places.get("SuspendExcNodes"), f"SuspendExcNodes names no node {unknown[0]}", key="SuspendExcNodes"
        )
    present = [key for key in ("ResumeProgram", "SuspendProgram") if settings.text(key)]
    if len(present) == 1:
        missing = "SuspendProgram" if present == ["ResumeProgram"] else "ResumeProgram"
        diagnostics.warning(
            settings.places.get(present[0]), f"{present[0]} without {missing}: no node is powered down", key=present[0]
        )
