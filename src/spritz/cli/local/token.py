"""Create, list and revoke tokens that let machines join the cluster.

For administrators, on the controller's machine.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from msgspec import to_builtins

from spritz.cli.call.context import Context
from spritz.cli.local.paths import ClusterPaths
from spritz.client.command.sync import connect_controller
from spritz.client.locate import locate_controller
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.node.machines import CreateToken, ListTokens, RevokeToken, TokenCreated, Tokens, certified, cut_off
from spritz.notation import hostlist
from spritz.notation.duration import parse_minutes
from spritz.runtime.clock import SystemClock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from spritz.client.command.sync import Connection


#: letters shown of a key's fingerprint
_KEY_LETTERS = 8


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", help="directory of the cluster (default: the one that commands use)")
    actions = parser.add_subparsers(dest="action", required=True)
    create = actions.add_parser("create", help="create a token, and print the command that joins with it")
    create.add_argument(
        "--role", choices=("node", "login"), default="node", help="role of machines that join with it (default: node)"
    )
    create.add_argument(
        "--lifetime", metavar="TIME", default="1-0", help="time until it expires, as days-hours (default: 1-0)"
    )
    create.add_argument(
        "--uses", metavar="N", type=int, default=0, help="number of machines that may join (default: 0, any number)"
    )
    create.add_argument(
        "--host", metavar="NAME", default="", help="valid only for this machine, which may have joined before"
    )
    create.add_argument("--token-only", action="store_true", help="print the token alone, for scripts")
    create.add_argument("--json", action="store_true", help="one JSON object")
    listed = actions.add_parser("list", help="list valid tokens, and machines that have joined")
    listed.add_argument("--json", action="store_true", help="one JSON object")
    revoke = actions.add_parser("revoke", help="revoke a token or a machine's certificate")
    revoke.add_argument(
        "id", nargs="?", default="", metavar="ID", help="id of a token, as `spritz token list` prints it"
    )
    revoke.add_argument("--host", metavar="NAME", default="", help="a machine that has joined")


def run(arguments: Namespace, context: Context) -> int:
    """0. Raises SpritzError if the controller refuses."""
    path = ClusterPaths.of(arguments.dir).slurm_conf if arguments.dir else None
    actions = {"create": _create, "list": _list, "revoke": _revoke}
    with connect_controller(locate_controller(path)) as controller:
        return actions[arguments.action](arguments, controller, context)


def _create(arguments: Namespace, controller: Connection, context: Context) -> int:
    try:
        minutes = parse_minutes(arguments.lifetime)
    except ValueError as error:
        raise SpritzError(
            f"--lifetime: {error}", hint="for example --lifetime 1-0 (a day), --lifetime 30 (minutes)"
        ) from error
    if not minutes:
        raise SpritzError("--lifetime: a token's time is limited", hint="for example --lifetime 7-0 for a week")
    request = CreateToken(
        role=arguments.role, lifetime_seconds=minutes * 60.0, uses=arguments.uses, host=arguments.host.lower()
    )
    created = controller.call(request, TokenCreated)
    if arguments.json:
        _json({**to_builtins(created), "join": join_line(created.address, created.token)}, context)
        return 0
    context.out(f"{created.token}\n" if arguments.token_only else f"{join_line(created.address, created.token)}\n")
    return 0


def join_line(address: str, token: str) -> str:
    """The command with which a machine joins. `address`: HOST[:PORT] of the controller."""
    return f"spritz join {address} --token {token}"


def _list(arguments: Namespace, controller: Connection, context: Context) -> int:
    answer = controller.call(ListTokens(), Tokens)
    if arguments.json:
        _json(to_builtins(answer), context)
        return 0
    rows = [("TOKEN", "ROLE", "USED", "EXPIRES", "HOST")]
    for token in answer.tokens:
        used = f"{token.used}/{token.uses}" if token.uses else str(token.used)
        rows.append((token.id, token.role, used, _moment(token.expires_at), token.host or "any"))
    _table(rows, context)
    context.out("\n")
    machines = [("MACHINE", "ROLE", "JOINED", "CERTIFIED", "TOKEN", "KEY")]
    for machine in answer.machines:
        moments = (_moment(machine.joined_at), _moment(machine.certified_at))
        key = machine.keys[0][:_KEY_LETTERS] if machine.keys else "unknown"
        machines.append((machine.host, machine.role, *moments, machine.token_id, key))
    _table(machines, context)
    context.out("".join(f"{line}\n" for line in _readiness(answer, SystemClock().now())))
    return 0


def _readiness(answer: Tokens, now: float) -> list[str]:
    """The next possible steps while the cluster's key is being replaced, and the machines that each would cut off."""
    default, *others = answer.keys or ("",)
    machines, lines = certified(answer.machines, now), list[str]()
    if hosts := cut_off(machines, answer.keys):
        lines += ["", f"Cut off, since a step came too early: {_names(hosts)}. Take the change of slurm.jwks"]
        lines += ["back, or let them join again: spritz token create --host NAME, and the line that it prints there."]
    if not others:
        return lines
    lines += ["", f"The cluster has {len(answer.keys)} keys. Default: {default[:_KEY_LETTERS]}"]
    for key in others:
        waiting = [each.host for each in machines if not each.trusts(key)]
        lines.append(f"  {key[:_KEY_LETTERS]} may become the default: {_verdict(waiting)}")
    waiting = [each.host for each in machines if not each.is_of(default)]
    lines.append(f"  {default[:_KEY_LETTERS]} may become the only key: {_verdict(waiting)}")
    if waiting or any(not each.trusts(key) for each in machines for key in others):
        lines.append("Machines renew by themselves within minutes of slurmctld's restart; one that is off joins again:")
        lines.append("spritz token create --host NAME, and the line that it prints there.")
    return lines


def _verdict(waiting: Sequence[str]) -> str:
    return f"NOT YET, it would cut off {_names(waiting)}" if waiting else "yes, all machines are ready"


def _names(hosts: Sequence[str]) -> str:
    return hostlist.compress(sorted(set(hosts)))


def _revoke(arguments: Namespace, controller: Connection, context: Context) -> int:
    if bool(arguments.id) == bool(arguments.host):
        raise SpritzError("revoke takes a token's ID, or --host NAME", hint="`spritz token list` shows both")
    controller.call(RevokeToken(id=arguments.id, host=arguments.host.lower()), Done)
    return 0


def _json(answer: object, context: Context) -> None:
    context.out(json.dumps(answer, indent=1) + "\n")


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M", time.localtime(seconds))


def _table(rows: Sequence[tuple[str, ...]], context: Context) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        context.out("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() + "\n")
