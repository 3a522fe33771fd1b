"""Tokens to typed values: the single keys, and the records NodeName, PartitionName, DownNodes and NodeSet.

Applies the tables of `schema`, DEFAULT records and the old spellings; reports every unknown key and bad value in
`Diagnostics` and continues. Faults between lines are found in `check`.

Source: slurm.conf(5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.config.diagnostics import PRINTED_MAX, Diagnostics
from spritz.config.grammar import Line, Location, Malformed, Token, tokens
from spritz.config.kinds import OPTIONS as OPTIONS_KIND
from spritz.config.kinds import OutOfBounds, Value, amount
from spritz.config.schema import record_keys, slurm_keys, status
from spritz.config.schema.options import INTEGERS, OFF, OPTIONS, PERCENTAGES, WHOLE, WORDS
from spritz.config.schema.removed import GONE, OLD_HOSTS, RENAMED
from spritz.config.settings import ControllerHost, Settings
from spritz.notation import hostlist
from spritz.notation.errors import c_integer, shown, unsigned
from spritz.notation.names import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from spritz.config.schema.key import Key

#: first keys of records, by lower-case name
_RECORDS = {
    "nodename": "NodeName",
    "partitionname": "PartitionName",
    "downnodes": "DownNodes",
    "nodeset": "NodeSet",
}
#: keys that cannot have one value for all nodes
_NOT_IN_DEFAULT = ("NodeAddr", "NodeHostname", "BcastAddr")


class NodeLine(Struct, frozen=True, kw_only=True):
    """One NodeName line, DEFAULT values merged in. The four lists are as long as `names`; port 0 means SlurmdPort."""

    names: tuple[str, ...]
    hostnames: tuple[str, ...]
    addresses: tuple[str, ...]
    ports: tuple[int, ...]
    values: dict[str, Value]
    place: Location

    def __getitem__(self, name: str) -> Value:
        value = self.values.get(name)
        return record_keys()["nodename"][name.lower()].default if value is None else value


class PartitionLine(Struct, frozen=True, kw_only=True):
    """One PartitionName line, DEFAULT values merged in.

    `members` are its nodes in the order of the file, set by `check`.
    """

    name: str
    values: dict[str, Value]
    place: Location
    members: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Value:
        value = self.values.get(name)
        return record_keys()["partitionname"][name.lower()].default if value is None else value


class DownLine(Struct, frozen=True, kw_only=True):
    """One DownNodes line: nodes, state and reason."""

    names: tuple[str, ...]
    state: str
    reason: str
    place: Location


class NodeSetLine(Struct, frozen=True, kw_only=True):
    """One NodeSet line: nodes listed, plus those with the feature."""

    name: str
    nodes: tuple[str, ...]
    feature: str
    place: Location


class Parsed(Struct, frozen=True, kw_only=True):
    """All of slurm.conf, line by line."""

    settings: Settings
    nodes: tuple[NodeLine, ...] = ()
    partitions: tuple[PartitionLine, ...] = ()
    downs: tuple[DownLine, ...] = ()
    nodesets: tuple[NodeSetLine, ...] = ()


class Fields:
    """The typed values of one record, or of the single keys, while they are being read.

    `scope` names them in `schema.status` ("" for single keys).
    """

    def __init__(self, scope: str, table: dict[str, Key], diagnostics: Diagnostics) -> None:
        self.scope = scope
        self.table = table
        self.diagnostics = diagnostics
        self.values: dict[str, Value] = {}
        self.places: dict[str, Location] = {}

    def add(self, given: Token) -> Key | None:
        """Add one token; returns its key if it was understood."""
        token = self._current(given)
        if token is None:
            return None
        key = self.table.get(token.key.lower())
        if key is None:
            self._unknown(token)
            return None
        if token.operator:
            message = f"{token.key}{token.operator}=: only = may be used here"
            self.diagnostics.error(token.place, message, key=key.name)
            return None
        try:
            value = key.kind.parse(token.value)
        except (ValueError, OverflowError) as error:
            # For the bounds of 32-bit fields, which the key's description does not name.
            bounds = f" {error}" if isinstance(error, OutOfBounds) and " from " not in key.kind.accepted else ""
            self._bad_value(token, key, bounds)
            return None
        if key.name in self.values and key.name != "SlurmctldHost":
            self.diagnostics.warning(
                token.place, f"{key.name} is given more than once; the last value is used", key=key.name
            )
        self.values[key.name] = value
        self.places[key.name] = token.place
        self._warn_if_later(key, value, token.place)
        return key

    def _current(self, token: Token) -> Token | None:
        """`token` with today's key, and a warning if Slurm has renamed it; None if Slurm has removed it."""
        name = token.key.lower()
        if name in RENAMED.get(self.scope, {}):
            old, new = RENAMED[self.scope][name]
            message, text = f"{old} is an old name of {new}", token.value
            if old == "CryptoType" and text.startswith("crypto/"):
                text = text.replace("crypto", "cred", 1)
                message += f"; {shown(token.value)} counts as {shown(text)}"
            self.diagnostics.warning(token.place, message, key=old, once=old)
            return Token(new, text, token.place, token.operator)
        if name in GONE.get(self.scope, {}):
            old, advice = GONE[self.scope][name]
            hint = "it can be left out" if advice == "nothing" else f"use {advice}"
            message = f"{old} was removed from Slurm and has no effect"
            self.diagnostics.warning(token.place, message, key=old, hint=hint, once=old)
            return None
        return token

    def _unknown(self, token: Token) -> None:
        kind = (
            f" on a {self.scope} line" if self.scope in _RECORDS.values() else f" in {self.scope}" if self.scope else ""
        )
        hint = ""
        home = _home_of(token.key)
        if home and home != self.scope and not self.scope.endswith(".conf"):
            hint = f"it belongs on a line {home}" if home != "alone" else "it stands on a line of its own"
        elif len(self.diagnostics.items) < PRINTED_MAX:
            close = nearest(token.key, [key.name for key in self.table.values()])
            hint = f"did you mean {close}?" if close else ""
        self.diagnostics.error(token.place, f'Unknown key "{shown(token.key)}"{kind}', key=token.key, hint=hint)

    def _bad_value(self, token: Token, key: Key, bounds: str = "") -> None:
        message = f"{key.name}={shown(token.value)}: expected {key.kind.accepted}{bounds}"
        hint = ""
        if len(self.diagnostics.items) < PRINTED_MAX:
            hint = _value_hint(token.value, key)
        self.diagnostics.error(token.place, message, key=key.name, hint=hint)

    def _warn_if_later(self, key: Key, value: Value, place: Location) -> None:
        name = f"{self.scope}.{key.name}" if self.scope else key.name
        label = f"{key.name} of {self.scope}" if self.scope else key.name
        honoured = status.HONOURED.get(name)
        values = value if isinstance(value, tuple) else (value,)
        if honoured is not None and all(str(item).partition("=")[0] in honoured for item in values):
            return
        if name in status.MOOT:
            message = f"{label} has no effect: {status.MOOT[name]}"
        elif honoured is not None:
            for item in values:
                if f"{name}.{item}" in status.MOOT:
                    message = f"{key.name}={item} has no effect: {status.MOOT[f'{name}.{item}']}"
                    self.diagnostics.warning(place, message, key=key.name, once=f"{name}.{item}")
            missing = ",".join(
                str(item)
                for item in values
                if str(item).partition("=")[0] not in honoured and f"{name}.{item}" not in status.MOOT
            )
            if not missing:
                return
            best = f"with {key.kind.show(key.default)}" if key.default else "without it"
            message = f"{key.name}={missing} is not implemented yet; Spritz acts as {best}"
        elif key.kind is OPTIONS_KIND and key.name in OPTIONS:
            self._check_options(key, values, place)
            return
        elif name in status.DONE or value == key.default:
            return
        else:
            message = f"{label} is not implemented yet and has no effect"
        self.diagnostics.warning(place, message, key=key.name, once=name)

    def _check_options(self, key: Key, given: tuple[Value, ...], place: Location) -> None:
        """Warn of options without effect, and keep of a number what counts."""
        known_options = {name.lower(): name for name in OPTIONS.get(key.name, ())}
        kept: list[str] = []
        for word in map(str, given):
            option = word.partition("=")[0]
            name = known_options.get(option.lower())
            if name is None and not (key.name == "JobAcctGatherFrequency" and option.isdecimal()):
                close = nearest(option, list(known_options.values()))
                hint = f"did you mean {close}?" if close else ""
                message = f'{key.name}: unknown option "{shown(option)}" has no effect'
                self.diagnostics.warning(place, message, key=key.name, hint=hint, once=f"{key.name}.{option}")
            elif name in INTEGERS:
                kept += self._number(key, name, word, place)
                continue
            elif name in PERCENTAGES:
                self._check_percentage(key, name, word.partition("=")[2], place)
            elif name in WORDS:
                self._check_word(key, name, word.partition("=")[2], place)
            elif name is not None and f"{key.name}.{name}" in status.MOOT:
                message = f"{key.name}={name} has no effect: {status.MOOT[f'{key.name}.{name}']}"
                self.diagnostics.warning(place, message, key=key.name, once=f"{key.name}.{name}")
            elif name is not None and f"{key.name}.{name}" not in status.DONE and key.name != "JobAcctGatherFrequency":
                message = f"{key.name}={name} is not implemented yet and has no effect"
                self.diagnostics.warning(place, message, key=key.name, once=f"{key.name}.{name}")
            kept.append(word)
        self.values[key.name] = tuple(kept)

    def _check_word(self, key: Key, name: str, text: str, place: Location) -> None:
        words = WORDS[name]
        if text.lower() not in words:
            message = f"{key.name}: {name}={shown(text)}: expected {' or '.join(word for word in words if word)}"
            self.diagnostics.error(place, message, key=key.name)

    def _check_percentage(self, key: Key, name: str, text: str, place: Location) -> None:
        digits = text.replace(".", "", 1)
        if not (digits.isascii() and digits.isdecimal() and 0.0 < float(text) <= 100.0):
            message = f"{key.name}: {name}={shown(text)}: expected a percentage above 0 and up to 100"
            self.diagnostics.error(place, message, key=key.name)

    def _number(self, key: Key, name: str, word: str, place: Location) -> list[str]:
        """`name=24:00:00` -> `name=24`, with a warning: Slurm reads these numbers with atoi. Empty for `name` alone,
        which Slurm does not read.
        """
        option, equals, text = word.partition("=")
        low, high = INTEGERS[name]
        if not equals:
            message = f"{key.name}: {name} without a number has no effect"
            self.diagnostics.warning(place, message, key=key.name, hint=f"write {name}=NUMBER")
            return []
        digits = text if name in WHOLE else c_integer(text)
        number = unsigned(digits, high)
        if (number is None or number < low) and not (name in OFF and digits == "-1"):
            message = f"{key.name}: {name}={shown(text)}: expected a whole number from {low} to {high}"
            self.diagnostics.error(place, message, key=key.name)
        elif not text.strip().lstrip("+-").isdigit():
            message = f"{key.name}: {name}={shown(text)} counts as {name}={digits}"
            hint = "Slurm reads a whole number and passes over what follows"
            self.diagnostics.warning(place, message, key=key.name, hint=hint)
        return [f"{option}={digits}"]


def _home_of(key: str) -> str:
    """Where a key belongs: a record's name, "alone", or "" if no table has it."""
    name = key.lower()
    if name in slurm_keys():
        return "alone"
    homes = [record for record in _RECORDS if name in record_keys()[record]]
    return " or ".join(_RECORDS[record] for record in homes[:2])


def _misspelt_record(key: str) -> str | None:
    """The record whose name is meant by an unknown key; None for other keys."""
    name = key.lower()
    if name in slurm_keys() or name in RENAMED[""] or name in GONE[""] or name in OLD_HOSTS or _home_of(name):
        return None
    return nearest(key, _RECORDS.values())


def _value_hint(text: str, key: Key) -> str:
    if key.kind.name == "MiB":
        try:
            return f"write {amount(text) // 2**20} for {text}"
        except ValueError:
            return ""
    if not key.kind.words:
        return ""
    known_words = {word.lower() for word in key.kind.words}
    for part in text.split(","):
        if part.strip().lower() not in known_words:
            close = nearest(part.strip(), list(key.kind.words))
            return f"did you mean {close}?" if close else ""
    return ""


def read(lines: Iterable[Line], diagnostics: Diagnostics) -> Parsed:
    """Parse slurm.conf from its logical lines (includes already resolved). Never raises for the content."""
    return _Reader(diagnostics).read(lines)


class _Reader:
    def __init__(self, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        self.single = Fields("", slurm_keys(), diagnostics)
        self.hosts: list[ControllerHost] = []
        self.old_hosts: dict[str, Token] = {}
        self.defaults: dict[str, dict[str, Value]] = {"NodeName": {}, "PartitionName": {}, "DownNodes": {}}
        self.nodes: list[NodeLine] = []
        self.partitions: list[PartitionLine] = []
        self.downs: list[DownLine] = []
        self.nodesets: list[NodeSetLine] = []

    def read(self, lines: Iterable[Line]) -> Parsed:
        for line in lines:
            line_tokens = tokens(line)
            for token in line_tokens:
                if isinstance(token, Malformed):
                    malformed(token, self.diagnostics)
                elif token.key.lower() in _RECORDS:
                    self._record(_RECORDS[token.key.lower()], token, line_tokens)
                elif record := _misspelt_record(token.key):
                    hint = f"did you mean {record}?"
                    self.diagnostics.error(token.place, f'Unknown key "{shown(token.key)}"', key=token.key, hint=hint)
                    break  # the other keys belong to the record: faults in them would hide this one
                else:
                    self._single(token)
        self._old_hosts()
        return Parsed(
            settings=Settings(self.single.values, self.single.places, tuple(self.hosts)),
            nodes=tuple(self.nodes),
            partitions=tuple(self.partitions),
            downs=tuple(self.downs),
            nodesets=tuple(self.nodesets),
        )

    def _single(self, token: Token) -> None:
        name = token.key.lower()
        if name in OLD_HOSTS:
            old = OLD_HOSTS[name]
            self.diagnostics.warning(token.place, f"{old} is an old form of SlurmctldHost", key=old, once=old)
            self.old_hosts[name] = token
            return
        if name == "frontendname":
            message = "FrontendName: front end nodes are no longer in Slurm"
            self.diagnostics.error(token.place, message, key="FrontendName", hint="describe the nodes with NodeName")
            return
        key = self.single.add(token)
        if key is not None and key.name == "SlurmctldHost":
            host = _controller_host(token.value)
            if any(host.name == other.name for other in self.hosts):
                self.diagnostics.error(
                    token.place, f"SlurmctldHost={shown(host.name)} is given more than once", key=key.name
                )
            self.hosts.append(host)

    def _old_hosts(self) -> None:
        if self.hosts:
            return
        for name_key, address_key in (("controlmachine", "controladdr"), ("backupcontroller", "backupaddr")):
            token = self.old_hosts.get(name_key)
            if token is None or not token.value:
                continue
            address = self.old_hosts.get(address_key)
            # ControlMachine may list several hosts, which share the address.
            name = token.value.split(",")[0]
            self.hosts.append(ControllerHost(name, address.value if address else name))
        if self.hosts:
            self.single.values["SlurmctldHost"] = self.hosts[0].name

    def _record(self, kind: str, first: Token, remaining: Iterator[Token | Malformed]) -> None:
        fields = Fields(kind, record_keys()[kind.lower()], self.diagnostics)
        fields.add(first)
        for token in remaining:
            if isinstance(token, Malformed):
                malformed(token, self.diagnostics)
            elif kind == "PartitionName" and token.key.lower() == "priority":
                self._old_priority(fields, token)
            else:
                fields.add(token)
        fields.values.pop(kind, None)
        if kind in self.defaults and first.value.upper() == "DEFAULT":
            self._default(kind, fields, first)
            return
        values = {**self.defaults[kind], **fields.values} if kind in self.defaults else fields.values
        getattr(self, f"_{kind.lower()}")(first, values)

    def _old_priority(self, fields: Fields, token: Token) -> None:
        message = "Priority of a partition is an old form of PriorityTier and PriorityJobFactor"
        self.diagnostics.warning(token.place, message, key="Priority", once="PartitionName.Priority")
        for name in ("PriorityTier", "PriorityJobFactor"):
            fields.add(Token(name, token.value, token.place, token.operator))

    def _default(self, kind: str, fields: Fields, first: Token) -> None:
        for name in _NOT_IN_DEFAULT:
            if kind == "NodeName" and name in fields.values:
                del fields.values[name]
                self.diagnostics.error(first.place, f"{name} is not allowed with NodeName=DEFAULT", key=name)
        self.defaults[kind].update(fields.values)

    def _nodename(self, first: Token, values: dict[str, Value]) -> None:
        names = self.hosts_of(first, first.value)
        if not names:
            self._need_name(first)
            return
        for name in names:
            if name.upper() in ("ALL", "DEFAULT") or "/" in name or "=" in name:
                self.diagnostics.error(first.place, f'"{shown(name)}" cannot be the name of a node', key="NodeName")
                return
        hostnames = self._as_many(first, values, "NodeHostname", names) or names
        addresses = self._as_many(first, values, "NodeAddr", names) or hostnames
        self._as_many(first, values, "BcastAddr", names)
        self.nodes.append(
            NodeLine(
                names=names,
                hostnames=hostnames,
                addresses=addresses,
                ports=self._ports(first, values, len(names)),
                values=values,
                place=first.place,
            )
        )

    def _partitionname(self, first: Token, values: dict[str, Value]) -> None:
        names = self.hosts_of(first, first.value)
        if not names:
            self._need_name(first)
        for name in names:
            self.partitions.append(PartitionLine(name=name, values=values, place=first.place))

    def _downnodes(self, first: Token, values: dict[str, Value]) -> None:
        names = self.hosts_of(first, first.value)
        state, reason = str(values.get("State", "DOWN")), str(values.get("Reason", ""))
        self.downs.append(DownLine(names=names, state=state, reason=reason, place=first.place))

    def _nodeset(self, first: Token, values: dict[str, Value]) -> None:
        nodes = self.hosts_of(first, str(values.get("Nodes", "")))
        feature = str(values.get("Feature", ""))
        if not first.value:
            self._need_name(first)
        elif not nodes and not feature:
            message = f'NodeSet "{shown(first.value)}" has neither Nodes nor Feature'
            self.diagnostics.error(first.place, message, key="NodeSet")
        self.nodesets.append(NodeSetLine(name=first.value, nodes=nodes, feature=feature, place=first.place))

    def _need_name(self, first: Token) -> None:
        self.diagnostics.error(first.place, f"{first.key} needs a name", key=first.key)

    def hosts_of(self, token: Token, text: str) -> tuple[str, ...]:
        """Names of a hostlist; empty, with an error, if it is malformed."""
        try:
            return tuple(hostlist.expand(text))
        except ValueError as error:
            self.diagnostics.error(token.place, f"{token.key}: {error}", key=token.key)
            return ()

    def _as_many(self, first: Token, values: dict[str, Value], key: str, names: tuple[str, ...]) -> tuple[str, ...]:
        """Expansion of a key that parallels the names: one value per name, or one for all."""
        text = values.get(key)
        if not isinstance(text, str):
            return ()
        names_read = self.hosts_of(Token(key, text, first.place), text)
        if len(names_read) == 1:
            return names_read * len(names)
        if names_read and len(names_read) != len(names):
            message = f"{key}={shown(text)} names {len(names_read)}, NodeName={shown(first.value)} names {len(names)}"
            self.diagnostics.error(first.place, message, key=key, hint="give as many, or one for all")
            return ()
        return names_read

    def _ports(self, first: Token, values: dict[str, Value], count: int) -> tuple[int, ...]:
        given = values.get("Port")
        if not isinstance(given, tuple):
            return (0,) * count
        ports = tuple(int(port) for port in given)
        if len(ports) == 1:
            return ports * count
        if len(ports) != count:
            message = f"Port names {len(ports)} ports, NodeName={shown(first.value)} names {count} nodes"
            self.diagnostics.error(first.place, message, key="Port", hint="give as many, or one for all")
            return (0,) * count
        return ports


def malformed(part: Malformed, diagnostics: Diagnostics) -> None:
    """Report a part of a line that is not `key=value`."""
    diagnostics.error(part.place, f'Parse error: "{shown(part.text)}"', hint="expected key=value")


def _controller_host(text: str) -> ControllerHost:
    name, _, remainder = text.partition("(")
    return ControllerHost(name, remainder.removesuffix(")") or name)
