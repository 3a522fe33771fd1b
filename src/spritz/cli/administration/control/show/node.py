"""`show node`, `show aliases`, `getaddrs`. Source: scontrol(1) show node."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.model.queries.nodes import ListNodes, Nodes
from spritz.notation.hostlist import HostlistError, expand

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session


def run(session: Session, words: list[str]) -> int:
    """`show node [NAMES]`: print the nodes of a hostlist, or all. Returns the exit status."""
    answer = session.joined(ListNodes(all=True, pieces=True), Nodes, "nodes")
    views = {view.node.name: view for view in answer.nodes}
    status = 0
    if words and words[0].upper() != "ALL":
        try:
            names = expand(words[0])
        except HostlistError as error:
            session.say(str(error))
            return 1
        chosen = []
        for name in names:
            if name in views:
                chosen.append(views[name])
            else:
                session.out(f"Node {name} not found\n")
                status = 1
    else:
        chosen = [view for view in answer.nodes if session.future or "FUTURE" not in view.state_names]
        if not chosen:
            session.out("No nodes in the system\n")
    if session.json is not None:
        from spritz.presentation.json.nodes import show_records

        show_records(session.context, session.json, answer.now, chosen)
        return status
    session.tell_age(answer.now, len(answer.nodes))
    from spritz.presentation.node.node_record import record_text

    session.out("".join([record_text(view, session.oneliner, session.details) for view in chosen]))
    return status


def aliases(session: Session, words: list[str]) -> int:
    """show aliases HOSTNAME: nodes on that host."""
    answer = session.joined(ListNodes(all=True, pieces=True), Nodes, "nodes")
    host = words[0] if words else _this_host()
    names = [v.node.name for v in answer.nodes if host in (v.node.hostname, v.node.address)]
    if names:
        session.out(" ".join(names) + "\n")
    return 0


def _this_host() -> str:
    return os.uname().nodename.partition(".")[0]


def addresses(session: Session, words: list[str]) -> int:
    """`scontrol getaddrs HOSTS`: prints `name: address:port` for each node."""
    answer = session.call(ListNodes(names=tuple(expand(words[0])), all=True), Nodes)
    for view in answer.nodes:
        session.out(f"{view.node.name}: {view.node.address}:{view.node.config.port}\n")
    return 0
