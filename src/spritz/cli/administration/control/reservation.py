"""`create`, `update`, `delete` and `show` of reservations. Source: scontrol(1) RESERVATIONS; words of Slurm 22.05."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.administration.control.pairs import find, split, unquoted
from spritz.client.errors import RemoteError
from spritz.model.queries.reservations import ListReservations, Reservations
from spritz.notation.duration import INFINITE, DurationError, parse_seconds
from spritz.notation.hostlist import HostlistError, expand
from spritz.notation.times import TimeError, parse_time
from spritz.runtime.clock import SystemClock
from spritz.runtime.zone import calendar

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session
    from spritz.model.node.reservation import Reservation

#: keys, and why one is refused
KEYS: dict[str, str] = {
    "ReservationName": "",
    "StartTime": "",
    "EndTime": "",
    "Duration": "",
    "Nodes": "",
    "NodeCnt": "",
    "CoreCnt": "",
    "TRES": "",
    "PartitionName": "",
    "Features": "",
    "Flags": "",
    "Users": "",
    "Accounts": "",
    "Groups": "",
    "MaxStartDelay": "",
    "Skip": "",
    "BurstBuffer": "burst buffers are not built",
    "Licenses": "",
    "Watts": "power is not managed",
    "TRESPerNode": "",
    "AllowedPartitions": "give PartitionName",
    "QOS": "give Users or Accounts",
    "Comment": "",
}
_OTHER_NAMES = {"NodeCount": "NodeCnt", "NodeList": "Nodes", "CoreCount": "CoreCnt", "Partition": "PartitionName"}
_OTHER_NAMES |= {"Name": "ReservationName", "Reservation": "ReservationName"}

#: as typed -> as shown
FLAGS = {
    "MAINT": "MAINT",
    "OVERLAP": "OVERLAP",
    "FLEX": "FLEX",
    "IGNORE_JOBS": "IGNORE_JOBS",
    "IGNORE_RUNNING": "IGNORE_JOBS",
    "HOURLY": "HOURLY",
    "DAILY": "DAILY",
    "WEEKDAY": "WEEKDAY",
    "WEEKEND": "WEEKEND",
    "WEEKLY": "WEEKLY",
    "STATIC_ALLOC": "STATIC",
    "FIRST_CORES": "FIRST_CORES",
    "TIME_FLOAT": "TIME_FLOAT",
    "PART_NODES": "PART_NODES",
    "PURGE_COMP": "PURGE_COMP",
    "NO_HOLD_JOBS_AFTER": "NO_HOLD_JOBS_AFTER_END",
    "NO_HOLD_JOBS_AFTER_END": "NO_HOLD_JOBS_AFTER_END",
    "MAGNETIC": "MAGNETIC",
    "ANY_NODES": "ANY_NODES",
    # as it was called before 17.11
    "LICENSE_ONLY": "ANY_NODES",
    "FORCE_START": "FORCE_START",
    "REPLACE": "REPLACE",
    "REPLACE_DOWN": "REPLACE_DOWN",
    "USER_DELETE": "USER_DELETE",
}
#: UNLIMITED, in seconds
_YEAR = 365 * 86_400


class _Wrong(Exception):
    """A word of the command is wrong; the text is scontrol's error."""


class _Reader:
    """Words of one command, read into the fields of a ReservationRequest."""

    def __init__(self, session: Session, now: float) -> None:
        self.session = session
        self.now = now
        self.fields: dict[str, object] = {}
        self._seen: set[str] = set()

    def read(self, word: str) -> None:
        """One `Key=value`. Raises _Wrong."""
        key, value = split(word)
        sign = ""
        if word[len(key) : len(key) + 1] in ("+", "-") and value[:1] in ("+", "-"):
            sign, value = value[0], value[1:]
        table = {**KEYS, **dict.fromkeys(_OTHER_NAMES, "")}
        row = find(key, table)
        if row is None:
            raise _Wrong(f"Unknown parameter {word}.")
        name = _OTHER_NAMES.get(row[0], row[0])
        if row[1]:
            raise _Wrong(f"{name} of a reservation is not supported by Spritz: {row[1]}.")
        if sign and name not in ("Users", "Accounts", "Flags"):
            raise _Wrong(f"The +=/-= notation is not supported when updating {name}.")
        value = unquoted(value)
        if name in self._seen:
            raise _Wrong(f"Parameter {word} specified more than once.")
        self._seen.add(name)
        if name in ("Users", "Accounts", "Groups"):
            self._people(name.lower(), value, sign)
        elif name == "Flags":
            self._flags(value, sign, word)
        elif name == "Skip":
            self.fields["skip"] = True
        else:
            self._plain(name, value, word)

    def _plain(self, name: str, value: str, word: str) -> None:
        fields = self.fields
        if name == "ReservationName":
            fields["name"] = value
        elif name in ("StartTime", "EndTime"):
            fields["start_at" if name == "StartTime" else "end_at"] = self._time(name, value, word)
        elif name == "Duration":
            fields["duration_seconds"] = float(self._duration(value, f"Invalid duration {word}."))
        elif name == "MaxStartDelay":
            # Seconds are rounded up to minutes; unlike a duration, -1 is none.
            if value.startswith("-"):
                raise _Wrong(f"Invalid duration {word}.")
            fields["max_start_delay_seconds"] = -(-self._duration(value, f"Invalid max start delay {word}.") // 60) * 60
        elif name == "PartitionName":
            fields["partition"] = value
        elif name == "Features":
            fields["features"] = value
        elif name == "Nodes":
            fields["nodes"] = self._nodes(value)
        elif name == "NodeCnt":
            fields["node_count"] = sum(self._counts(value, f"Invalid node count {word}."))
        elif name == "Licenses":
            fields["licenses"] = self._licenses(value)
        elif name == "Comment":
            fields["comment"] = value
        elif name == "TRESPerNode":
            self._tres_per_node(value)
        elif name == "CoreCnt":
            fields["core_counts"] = self._counts(value, f"Invalid core count {word}.")
        else:
            self._tres(value)

    def _time(self, name: str, value: str, word: str) -> float:
        try:
            return parse_time(value, self.now)
        except TimeError as error:
            self.session.say(str(error))
            raise _Wrong(f"Invalid {'start' if name == 'StartTime' else 'end'} time {word}.") from error

    def _duration(self, value: str, complaint: str) -> int:
        try:
            seconds = parse_seconds(value)
        except DurationError as error:
            raise _Wrong(complaint) from error
        return _YEAR if seconds >= INFINITE else -(-seconds // 60) * 60

    def _counts(self, value: str, complaint: str) -> tuple[int, ...]:
        counts = []
        for word in value.split(","):
            if not (word.isascii() and word.isdigit() and len(word) < 9):
                raise _Wrong(complaint)
            counts.append(int(word))
        return tuple(counts)

    def _nodes(self, value: str) -> tuple[str, ...]:
        if value.upper() == "ALL":
            return ("ALL",)

        try:
            return tuple(expand(value))
        except HostlistError as error:
            raise _Wrong(f"{error}.") from error

    def _tres(self, value: str) -> None:
        gres: list[tuple[str, str, int]] = []
        licenses: list[tuple[str, int]] = []
        for kind, count in self._each_tres(value):
            if kind in ("cpu", "node"):
                self.fields["cpu_count" if kind == "cpu" else "node_count"] = count
            elif kind.startswith("license/"):
                licenses.append((kind.partition("/")[2], count))
            else:
                name, _, device = kind.partition("/")[2].partition(":")
                gres.append((name, device, count))
        if gres:
            self.fields["gres"] = tuple(gres)
        if licenses:
            self.fields["licenses"] = tuple(licenses)

    def _each_tres(self, value: str) -> list[tuple[str, int]]:
        items = []
        for word in value.split(","):
            kind, _, count = word.strip().replace("gres:", "gres/", 1).rpartition("=")
            if not kind:
                # gres/gpu:2, as in --gres
                kind, _, count = word.strip().rpartition(":")
            if kind not in ("cpu", "node") and not (kind.startswith(("gres/", "license/")) and kind[-1] != "/"):
                raise _Wrong(f"couldn't identify configured TRES '{kind or word}'.")
            if not (count.isascii() and count.isdigit() and len(count) < 9):
                raise _Wrong(f"Invalid TRES count {word}.")
            items.append((kind, int(count)))
        return items

    def _tres_per_node(self, value: str) -> None:
        gres = []
        for kind, count in self._each_tres(value):
            if not kind.startswith("gres/"):
                raise _Wrong(f"TRESPerNode={kind} of a reservation is not supported by Spritz: give gres/….")
            name, _, device = kind.partition("/")[2].partition(":")
            gres.append((name, device, count))
        self.fields["gres_per_node"] = tuple(gres)

    def _licenses(self, value: str) -> tuple[tuple[str, int], ...]:
        licenses = []
        for word in value.split(",") if value else ():
            name, sign, count = word.replace("=", ":", 1).partition(":")
            if not name or (sign and not (count.isascii() and count.isdigit() and len(count) < 9)):
                raise _Wrong(f"Invalid license specification {word}.")
            licenses.append((name, int(count or 1)))
        return tuple(licenses)

    def _people(self, field: str, value: str, sign: str) -> None:
        words = [word for word in value.split(",") if word]
        if sign:
            if field == "groups":
                raise _Wrong("The +=/-= notation is not supported when updating Groups.")
            self.fields[f"{field}_{'added' if sign == '+' else 'removed'}"] = tuple(words)
            return
        denied = [word.startswith("-") for word in words]
        if any(denied) and (field == "groups" or not all(denied)):
            raise _Wrong(f"{field.capitalize()} can be permitted or denied, not both.")
        self.fields[field] = tuple(word.removeprefix("-") for word in words)
        if any(denied):
            self.fields[f"{field}_denied"] = True

    def _flags(self, value: str, sign: str, word: str) -> None:
        flags = []
        if not sign and value[:1] in ("+", "-"):
            sign, value = value[0], value[1:]
        for text in value.split(",") if value else ():
            name, equals, duration = text.partition("=")
            upper = name.upper()
            known = FLAGS.get(upper) or next(
                (flag for flag_name, flag in FLAGS.items() if len(upper) >= 3 and flag_name.startswith(upper)), None
            )
            if known is None or (equals and known != "PURGE_COMP"):
                raise _Wrong(f"Error parsing flags {value}.")
            if equals:
                self.fields["purge_seconds"] = self._duration(duration, f"Error parsing flags {value}.")
            flags.append(known)
        self.fields[{"": "flags", "+": "flags_added", "-": "flags_removed"}[sign]] = tuple(flags)


def _read(session: Session, words: list[str], outcome: str) -> dict[str, object] | None:
    """The fields, or None after a complaint."""
    reader = _Reader(session, SystemClock().now())
    for word in words:
        try:
            reader.read(word)
        except _Wrong as wrong:
            session.context.error(f"{wrong}  No reservation {outcome}.")
            return None
    fields = reader.fields
    flags = fields.get("flags") or fields.get("flags_added") or ()
    start_at = fields.get("start_at")
    if isinstance(flags, tuple) and "TIME_FLOAT" in flags and isinstance(start_at, float):
        fields["float_seconds"] = max(0.0, start_at - int(reader.now))
    return fields | calendar(start_at if isinstance(start_at, float) else None, reader.now)


def create(session: Session, words: list[str]) -> int:
    """`create reservation KEY=VALUE…`: prints the new reservation's name. Returns the exit status."""
    from spritz.model.commands.reservation import CreateReservation, ReservationMade, ReservationRequest

    fields = _read(session, words, "created")
    if fields is None:
        return 1
    complaint = _incomplete(fields)
    if complaint:
        session.context.error(f"{complaint}  No reservation created.")
        return 1
    request = ReservationRequest(**fields)  # type: ignore[arg-type]  # names and types are those of `_Reader`
    try:
        answer = session.call(CreateReservation(request=request), ReservationMade)
    except RemoteError as error:
        session.say(f"Error creating the reservation: {error.message}")
        if error.code == "ESLURM_NODES_BUSY":
            session.say(
                "Note, unless nodes are directly requested a reservation must exist in a single partition.\n"
                "If no partition is requested the default partition is assumed."
            )
        session.hint(error.hint)
        return 1
    session.out(f"Reservation created: {answer.name}\n")
    return 0


def _incomplete(fields: dict[str, object]) -> str:
    """scontrol's own complaint about missing or contradictory keys; "" if there is none."""
    flags = fields.get("flags") or ()
    assert isinstance(flags, tuple)
    if "PART_NODES" in flags and not (fields.get("partition") and fields.get("nodes") == ("ALL",)):
        return "PART_NODES flag requires specifying a Partition and ALL nodes."
    start_at, end_at, seconds = fields.get("start_at"), fields.get("end_at"), fields.get("duration_seconds")
    if start_at is None:
        return "A start time must be given."
    if end_at is None and seconds is None:
        return "An end time or duration must be given."
    if isinstance(start_at, float) and isinstance(end_at, float):
        if isinstance(seconds, float) and abs(start_at + seconds - end_at) >= 1:
            return "StartTime + Duration does not equal EndTime."
        if end_at < start_at:
            return "Start time cannot be after end time."
    placed = ("nodes", "node_count", "core_counts", "cpu_count", "gres", "gres_per_node", "licenses")
    if not any(fields.get(name) for name in placed):
        return "CoreCnt, Nodes, NodeCnt, BurstBuffer, Licenses or Watts must be specified."
    if not any(fields.get(name) for name in ("users", "accounts", "groups")):
        return "Either Users/Groups and/or Accounts must be specified."
    return ""


def run(session: Session, words: list[str]) -> int:
    """`update ReservationName=NAME KEY=VALUE…`: change the keys that are given. Returns the exit status."""
    from spritz.model.commands.job import Done
    from spritz.model.commands.reservation import ReservationRequest, UpdateReservation

    fields = _read(session, words, "update")
    if fields is None:
        session.say("slurm_update error: No error")
        return 1
    request = ReservationRequest(**fields)  # type: ignore[arg-type]  # names and types are those of `_Reader`
    try:
        session.call(UpdateReservation(request=request), Done)
    except RemoteError as error:
        session.say(f"Error updating the reservation: {error.message}")
        session.say(f"slurm_update error: {error.message}")
        session.hint(error.hint)
        return 1
    session.out("Reservation updated.\n")
    return 0


def delete(session: Session, word: str, name: str) -> int:
    """`delete ReservationName=NAME`: refused by the controller while jobs run in it."""
    from spritz.model.commands.job import Done
    from spritz.model.commands.reservation import DeleteReservation

    try:
        session.call(DeleteReservation(name=name), Done)
    except RemoteError as error:
        session.say(f"delete_reservation {word}: {error.message}")
        session.hint(error.hint)
        return 1
    return 0


def show(session: Session, words: list[str]) -> int:
    """`show reservation [NAME]`: print one reservation, or all. Returns the exit status."""
    names = tuple(words[0].split(",")) if words else ()
    answer = session.call(ListReservations(names=names), Reservations)
    reservations: list[Reservation] = answer.reservations
    if session.json is not None and (reservations or not words):
        from spritz.presentation.json.reservations import show_records

        show_records(session.context, session.json, answer.now, reservations)
        return 0
    if not reservations:
        session.out(f"Reservation {words[0]} not found\n" if words else "No reservations in the system\n")
        return 1 if words else 0
    from spritz.presentation.reservation_text import record_text

    session.out("".join([record_text(item, answer.now, session.oneliner) for item in reservations]))
    return 0
