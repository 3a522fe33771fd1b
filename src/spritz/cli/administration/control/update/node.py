"""`update NodeName=…`. Source: scontrol(1) NODES - SPECIFICATIONS FOR UPDATE COMMAND."""

from __future__ import annotations

import pwd
from typing import TYPE_CHECKING

from spritz.cli.administration.control.pairs import find, not_supported, split, unquoted
from spritz.cli.administration.control.update.job_keys import number
from spritz.model.commands.cluster import UpdateNode
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.notation.errors import unsigned
from spritz.notation.hostlist import HostlistError, expand

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.cli.administration.control.session import Session

#: states that users may set, in words that may be abbreviated; "": passed to the core
STATES = (
    "CANCEL_REBOOT",
    "DRAIN",
    "DOWN",
    "FAIL",
    "FUTURE",
    "IDLE",
    "NORESP",
    "POWER_DOWN",
    "POWER_DOWN_ASAP",
    "POWER_DOWN_FORCE",
    "POWER_UP",
    "RESUME",
    "UNDRAIN",
)
REFUSED_STATES: dict[str, str] = {}
#: states that a node has by itself: scontrol sends them, and the controller refuses
_BY_ITSELF = ("ALLOCATED", "ERROR", "MIXED", "UNKNOWN")


class Key:
    """`field` of UpdateNode.changes and how its text is read; `refused` says why there is none."""

    __slots__ = ("field", "parse", "refused")

    def __init__(self, field: str = "", parse: Callable[[str], object] = str, refused: str = "") -> None:
        self.field = field
        self.parse = parse
        self.refused = refused


class _NoWeight(SpritzError):
    """After it nothing is left to change, which Slurm's scontrol says too."""


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _count(text: str) -> int:
    value = unsigned(text, 0xFFFFFFFD)
    if value is None:
        raise _NoWeight(f"Weight value ({text}) is not a valid number")
    return value


def _user(text: str) -> int:
    """A name or a number. Raises SpritzError."""
    if text.isascii() and text.isdecimal() and int(text) < 0xFFFFFFFF:
        return int(text)
    try:
        return pwd.getpwnam(text).pw_uid
    except KeyError:
        raise SpritzError(f"Invalid user: {text}") from None


def _seconds(text: str) -> int:
    """Seconds; INFINITE or -1: not by itself. Raises SpritzError."""
    if text.upper() in ("INFINITE", "-1"):
        return 0

    return number(text, "ResumeAfter")


KEYS: dict[str, Key] = {
    "ActiveFeatures": Key("active_features", _words),
    "AvailableFeatures": Key("features", _words),
    "CertToken": Key(refused="certificates are not built"),
    "Comment": Key("comment"),
    "CpuBind": Key(refused="set it in slurm.conf and reconfigure"),
    "Extra": Key("extra"),
    "Features": Key("features", _words),
    "Gres": Key(refused="set it in slurm.conf and reconfigure"),
    "InstanceId": Key(refused="instances are not recorded"),
    "InstanceType": Key(refused="instances are not recorded"),
    "NodeAddr": Key("address"),
    "NodeHostName": Key("hostname"),
    "Reason": Key("reason"),
    "ReasonUid": Key("reason_uid", _user),
    "ResumeAfter": Key("resume_after_seconds", _seconds),
    "State": Key("state"),
    "Topology": Key("topology"),
    "TopologyStr": Key("topology"),
    "Weight": Key("weight", _count),
}


def run(session: Session, words: list[str]) -> int:
    """`scontrol update NodeName=LIST KEY=VALUE…`. Returns the exit status."""
    names: list[str] = []
    changes: dict[str, object] = {}
    state = reason = ""
    uid: int | None = None
    seconds: int | None = None
    for word in words:
        key, value = split(word)
        value = unquoted(value)
        if len(key) >= 3 and "nodename".startswith(key.lower()):
            names = _names(session, value)
            continue
        row = find(key, KEYS)
        if row is None:
            return not_supported(session, word)
        known, entry = row
        if entry.refused:
            session.context.error(f"update of a node's {known} is not supported by Spritz: {entry.refused}")
            return 1
        if known == "State":
            chosen = _state(session, word, value)
            if chosen is None:
                return 1
            state = chosen
        elif known == "Reason":
            reason = value
        elif known == "ReasonUid":
            uid = _user(value)
        elif known == "ResumeAfter":
            seconds = _seconds(value)
        else:
            try:
                changes[entry.field] = entry.parse(value)
            except _NoWeight as error:
                session.context.error(error.message)
    if not state and not reason and uid is None and seconds is None and not changes:
        session.say("No changes specified")
        return 1
    if state in ("DOWN", "DRAIN", "FAIL") and not reason:
        session.say("You must specify a reason when DOWNING or DRAINING a node. Request denied")
        return 1
    update = UpdateNode(
        names=tuple(names),
        state=state,
        reason=reason,
        reason_uid=uid,
        resume_after_seconds=seconds,
        changes=changes,
    )
    session.call(update, Done)
    return 0


def _names(session: Session, text: str) -> list[str]:
    if text.upper() == "ALL":
        from spritz.model.queries.nodes import ListNodes, Nodes

        return [view.node.name for view in session.joined(ListNodes(all=True, pieces=True), Nodes, "nodes").nodes]

    try:
        return expand(text)
    except HostlistError as error:
        raise SpritzError(str(error)) from error


def _state(session: Session, word: str, text: str) -> str | None:
    """The state's full name; None after saying why not."""
    upper = text.upper()
    for name in sorted((*STATES, *REFUSED_STATES, *_BY_ITSELF), key=len):
        if upper and name.startswith(upper) and (len(upper) >= 3 or name == upper):
            if name in REFUSED_STATES:
                session.context.error(f"node state {name} is not supported by Spritz: {REFUSED_STATES[name]}")
                return None
            return name
    session.say(f"Invalid input: {word}")
    session.say("Request aborted")
    session.say("Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN")
    session.say("Not all states are valid given a node's prior state")
    return None
