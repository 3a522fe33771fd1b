"""`create` and `delete NodeName=…`, `reboot`, `cancel_reboot`. Source: scontrol(1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.cli.administration.control.pairs import split, unquoted
from spritz.client.errors import RemoteError
from spritz.model.commands.cluster import CreateNodes, DeleteNodes, RebootNodes, UpdateNode
from spritz.model.commands.job import Done
from spritz.notation.hostlist import HostlistError, expand

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session


def create(session: Session, words: list[str]) -> int:
    """create NodeName=LIST State=CLOUD|FUTURE KEY=VALUE …: keys as in slurm.conf."""
    # The line begins with NodeName, wherever that stood.
    first = [word for word in words if "nodename".startswith(split(word)[0].lower())]
    parts = [f"NodeName={split(word)[1]}" for word in first] + [_quoted(word) for word in words if word not in first]
    try:
        session.call(CreateNodes(line=" ".join(parts)), Done)
    except RemoteError as error:
        session.say(f"Error creating node(s): {error.message}")
        session.hint(error.hint)
        return 1
    return 0


def _quoted(word: str) -> str:
    key, value = split(word)
    value = unquoted(value)
    return f'{key}="{value}"' if any(letter.isspace() for letter in value) else f"{key}={value}"


def delete(session: Session, text: str) -> int:
    """`scontrol delete NodeName=LIST`: removes dynamic nodes."""
    names = _expanded(session, text)
    if names is None:
        return 1
    try:
        session.call(DeleteNodes(names=names), Done)
    except RemoteError as error:
        session.say(f"Error deleting nodes: {error.message}")
        session.hint(error.hint)
        return 1
    return 0


def _expanded(session: Session, text: str) -> tuple[str, ...] | None:
    try:
        return tuple(expand(text))
    except HostlistError as error:
        session.say(str(error))
        return None


def reboot(session: Session, words: list[str]) -> int:
    """`reboot [ASAP] [nextstate=RESUME|DOWN] [reason=TEXT] ALL|NODES`: reboot nodes when they are idle."""
    asap, next_state, reason = False, "", ""
    remaining = list(words)
    while remaining:
        key, value = split(remaining[0])
        if remaining[0].lower() == "asap":
            asap = True
        elif key.lower() == "nextstate":
            if value.upper() not in ("RESUME", "DOWN"):
                session.say(f"Invalid nextstate: {value}. Must be RESUME or DOWN")
                return 1
            next_state = value.upper()
        elif key.lower() == "reason":
            reason = unquoted(value)
        else:
            break
        remaining.pop(0)
    if len(remaining) != 1:
        session.say(
            "Missing node list. Specify ALL|<NodeList>" if not remaining else f"too many arguments: {remaining[1]}"
        )
        return 1
    names = () if remaining[0].upper() == "ALL" else _expanded(session, remaining[0])
    if names is None:
        return 1
    try:
        session.call(RebootNodes(names=names, asap=asap, next_state=next_state, reason=reason), Done)
    except RemoteError as error:
        session.say(f"scontrol_reboot_nodes error: {error.message}")
        session.hint(error.hint)
        return 1
    return 0


def cancel_reboot(session: Session, words: list[str]) -> int:
    names = _expanded(session, words[0])
    if names is None:
        return 1
    try:
        session.call(UpdateNode(names=names, state="CANCEL_REBOOT"), Done)
    except RemoteError as error:
        session.say(f"slurm_update error: {error.message}")
        session.hint(error.hint)
        return 1
    return 0
