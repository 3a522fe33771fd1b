"""helpers.conf: features that nodes can change, and the programs that do it. Pure.

Source: helpers.conf(5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, structs

from spritz.config.grammar import Malformed, tokens
from spritz.config.schema import helpers_keys
from spritz.config.typed import Fields, malformed
from spritz.model.cluster.settings import FeaturePolicy
from spritz.notation import duration, hostlist
from spritz.notation.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.config.diagnostics import Diagnostics
    from spritz.config.grammar import Line, Location
    from spritz.config.kinds import Value
    from spritz.config.settings import Settings

FILE = "helpers.conf"
PLUGIN = "node_features/helpers"
#: keys that occur once in the file, and apply to all of it
_SINGLE = frozenset({"AllowUserBoot", "BootTime", "ExecTime"})


class Helper(Struct, frozen=True, gc=False):
    """The program that manages one feature, on these nodes (empty: on all)."""

    program: str
    rebootless: bool = False
    nodes: tuple[str, ...] = ()


class HelpersFile(Struct, frozen=True, kw_only=True):
    """All of helpers.conf; empty unless NodeFeaturesPlugins asks for it."""

    #: the first of each feature
    helpers: dict[str, Helper] = {}
    #: all of them, if lines with NodeName give some features other helpers elsewhere
    lines: tuple[tuple[str, Helper], ...] = ()
    exclusive: tuple[tuple[str, ...], ...] = ()
    users: tuple[str, ...] = ()
    exec_seconds: int = 10
    boot_seconds: int = 300

    def of_node(self, node: str) -> HelpersFile:
        """The file as this node sees it: only the helpers that it has."""
        if not any(helper.nodes for _feature, helper in self.lines):
            return self
        mine = {feature: helper for feature, helper in self.lines if not helper.nodes or node in helper.nodes}
        return structs.replace(self, helpers=mine)

    def policy(self, settings: Settings) -> FeaturePolicy:
        """The part of the file that decisions need."""
        if not self.helpers:
            return FeaturePolicy()
        return FeaturePolicy(
            names=tuple(sorted(self.helpers)),
            rebootless=tuple(
                sorted(set(self.helpers) - {name for name, helper in self.lines if not helper.rebootless})
            ),
            exclusive=self.exclusive,
            users=self.users,
            boot_seconds=self.boot_seconds,
            delay_seconds=_delay(settings) or 0,
        )


def _delay(settings: Settings) -> int | None:
    """SchedulerParameters=delay_boot, in minutes there; None if it is malformed."""
    try:
        return duration.parse_seconds(settings.option("SchedulerParameters", "delay_boot") or "0")
    except duration.DurationError:
        return None


def check_delay(settings: Settings, diagnostics: Diagnostics) -> None:
    """Report a `delay_boot` of SchedulerParameters that is no number of minutes."""
    if _delay(settings) is None:
        text = settings.option("SchedulerParameters", "delay_boot") or ""
        place = settings.places.get("SchedulerParameters")
        message = f"delay_boot={shown(text)}: expected minutes"
        diagnostics.error(place, message, key="SchedulerParameters")


def is_wanted(settings: Settings) -> bool:
    return PLUGIN in settings.words("NodeFeaturesPlugins")


def read(lines: Iterable[Line], diagnostics: Diagnostics) -> HelpersFile:
    """Parse the file. Never raises for its content."""
    helpers: list[tuple[str, Helper]] = []
    exclusive: list[tuple[tuple[str, ...], Location]] = []
    single: dict[str, Value] = {}
    for line in lines:
        fields = Fields(FILE, helpers_keys(), diagnostics)
        for token in tokens(line):
            if isinstance(token, Malformed):
                malformed(token, diagnostics)
            else:
                fields.add(token)
        values = fields.values
        single |= {key: value for key, value in values.items() if key in _SINGLE}
        if "MutuallyExclusive" in values:
            exclusive.append((_words(values, "MutuallyExclusive"), line.place))
        if "Feature" in values or "Helper" in values:
            _add(helpers, values, line.place, diagnostics)
        elif "Flags" in values:
            diagnostics.error(line.place, "Flags stands on a line with Feature and Helper", key="Flags")
    first = dict(reversed(helpers))
    for group, place in exclusive:
        for name in group:
            if name not in first:
                message = f"MutuallyExclusive={shown(','.join(group))}: no Feature= line has {shown(name)}"
                diagnostics.error(place, message, key="MutuallyExclusive")
    return HelpersFile(
        helpers={name: first[name] for name, _helper in helpers},
        lines=tuple(helpers),
        exclusive=tuple(group for group, _place in exclusive),
        users=_words(single, "AllowUserBoot"),
        exec_seconds=_number(single, "ExecTime", 10),
        boot_seconds=_number(single, "BootTime", 300),
    )


def _add(
    helpers: list[tuple[str, Helper]], values: dict[str, Value], place: Location, diagnostics: Diagnostics
) -> None:
    names = _words(values, "Feature")
    if not names or "Helper" not in values:
        missing = "Feature" if not names else "Helper"
        diagnostics.error(place, f"{missing} is missing: expected Feature=NAME Helper=PROGRAM", key=missing)
        return
    try:
        nodes = tuple(hostlist.expand(str(values.get("NodeName") or "")))
    except ValueError as error:
        diagnostics.error(place, f"NodeName={shown(str(values['NodeName']))}: {error}", key="NodeName")
        return
    helper = Helper(str(values["Helper"]), "rebootless" in _words(values, "Flags"), nodes)
    for name in names:
        if any(name == feature and _differ(helper, other) for feature, other in helpers):
            diagnostics.error(place, f"Feature={shown(name)} has two helpers", key="Feature")
        helpers.append((name, helper))


def _differ(helper: Helper, other: Helper) -> bool:
    """Whether a node would have both, and they are not the same."""
    together = not helper.nodes or not other.nodes or set(helper.nodes) & set(other.nodes)
    return bool(together) and (helper.program, helper.rebootless) != (other.program, other.rebootless)


def _words(values: dict[str, Value], key: str) -> tuple[str, ...]:
    value = values.get(key, ())
    return tuple(dict.fromkeys(str(word) for word in value)) if isinstance(value, tuple) else ()


def _number(values: dict[str, Value], key: str, default: int) -> int:
    value = values.get(key)
    return value if isinstance(value, int) else default
