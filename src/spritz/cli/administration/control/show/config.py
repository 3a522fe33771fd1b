"""`show config`, and small things of the whole cluster: daemons, licenses, reservations, topology.

Source: scontrol(1) show.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.administration.control.daemons import ping
from spritz.cli.administration.control.show.topology import show
from spritz.client.locate import locate_controller
from spritz.model.errors import SpritzError
from spritz.model.queries.configuration import ConfigText, ShowConfig
from spritz.presentation.record import moment

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session


def config(session: Session, words: list[str]) -> int:
    """show config [KEY]: every key as it is in force."""
    answer = session.call(ShowConfig(), ConfigText)
    ours = {"BOOT_TIME": lambda: moment(answer.started_at), "HASH_VAL": lambda: _hash(answer.digest)}
    every = [(key, ours[key]() if key in ours else value) for key, value in answer.pairs]
    if words:
        name = words[0].lower()
        pairs = [(key, value) for key, value in every if key.lower() == name]
        if not pairs:
            session.say(f"{words[0]} is not a configuration parameter")
            return 1
        session.out("".join([f"{key:<23} = {value}\n" for key, value in pairs]))
        return 0
    lines = [f"Configuration data as of {moment(answer.now)}"]
    lines += [f"{key:<23} = {value}" if key else value for key, value in every]
    session.out("\n".join(lines) + "\n\n")

    return ping(session, [])


def _hash(theirs: str) -> str:
    """Whether the local configuration files equal the controller's."""
    from spritz.config.load import load

    path = locate_controller().path
    try:
        digest = load(path).digest if path else ""
    except SpritzError:
        digest = ""
    return "Match" if digest == theirs else f"Different Ours=0x{digest[:8] or '0'} Slurmctld=0x{theirs[:8]}"


def daemons(session: Session, words: list[str]) -> int:
    """show daemons: which should run on this machine."""
    from spritz.model.queries.nodes import ListNodes, Nodes

    here = os.uname().nodename.partition(".")[0]
    local = {here, "localhost", "127.0.0.1", "::1"}
    names = []
    if any(host.partition(".")[0] in local or host in local for host in locate_controller().hosts):
        names.append("slurmctld")
    answer = session.joined(ListNodes(all=True, pieces=True), Nodes, "nodes")
    configs = [view.node.config for view in answer.nodes]
    if any({config.name, config.hostname.partition(".")[0]} & local for config in configs):
        names.append("slurmd")
    session.out(" ".join(names) + (" \n" if names == ["slurmctld"] else "\n"))  # a blank behind it, as Slurm has it
    return 0


def licenses(session: Session, words: list[str]) -> int:
    """show licenses: total, used and free."""
    from spritz.model.queries.jobs import JobRows
    from spritz.presentation.licenses import HOLDERS, LicenseCounts

    config = session.call(ShowConfig(), ConfigText)
    counts = LicenseCounts(config)
    if not counts and session.json is None:
        session.out("No licenses configured in Slurm.\n")
        return 0
    for piece in session.controller().stream(HOLDERS, JobRows):
        counts.count(piece.rows)
    if session.json is not None:
        from spritz.presentation.json.licenses import show_records

        show_records(session.context, session.json, config.now, counts, words[0] if words else "")
        return 0
    for name, total, used, free, remote in counts.lines():
        if words and name != words[0]:
            continue
        separator = " " if session.oneliner else "\n    "
        session.out(
            f"LicenseName={name}{separator}Total={total} Used={used} Free={free} Reserved=0 "
            f"Remote={'yes' if remote else 'no'}\n"
        )
    return 0


def topology(session: Session, words: list[str]) -> int:
    """show topology [NAME | topo=NETWORK | unit=NAME | node=NAME]: switches or blocks, in the order of the file."""
    return show(session, words)
