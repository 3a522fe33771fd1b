"""`sacctmgr show configuration`, `show stats`, `clear stats`, `reconfigure`, `shutdown`, `ping`.

Source: sacctmgr(1); what 22.05 prints, and 24.05 for ping.
"""

from __future__ import annotations

from time import ctime, monotonic
from typing import TYPE_CHECKING

from spritz import SLURM_VERSION
from spritz.cli.administration.manager.arguments import match
from spritz.client.command.sync import connect_address
from spritz.client.errors import ClientError, RemoteHost
from spritz.client.locate import locate_database, read_keys
from spritz.model.accounting import accounting_admin as model
from spritz.model.commands.job import Done
from spritz.model.queries.daemons import Ping, Pong
from spritz.notation.times import format_time
from spritz.presentation.users import name_of, uid_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.cli.administration.manager.arguments import Word
    from spritz.cli.call.context import Context
    from spritz.cli.listings.acct.connect import DatabaseConnection

#: keys of slurm.conf that `show configuration` prints as they are there
_KEYS = frozenset(
    (
        "accountingstorageparameters", "accountingstoragepass", "accountingstorageuser", "authtype", "plugindir",
        "privatedata", "tcptimeout", "trackwckey",
    )
)  # fmt: skip
_STARS = "*" * 67


def show_configuration(connection: DatabaseConnection, context: Context) -> int:
    """Print the accounting keys of slurm.conf, then slurmdbd's configuration. Always 0."""
    configuration = connection.call(model.GetDatabaseConfiguration(), model.DatabaseConfiguration)
    config = locate_database()
    settings = read_keys(_KEYS, config.path)
    owner, owner_id = config.slurm_user, uid_of(config.slurm_user)
    ours = (
        ("AccountingStorageBackupHost ", config.backup_host or "(null)"),
        ("AccountingStorageHost ", config.host),
        ("AccountingStorageParameters", settings.get("accountingstorageparameters", "(null)")),
        ("AccountingStoragePass ", settings.get("accountingstoragepass", "(null)")),
        ("AccountingStoragePort ", str(config.port)),
        ("AccountingStorageType ", f"accounting_storage/{config.kind}"),
        ("AccountingStorageUser ", settings.get("accountingstorageuser", "N/A")),
        ("AuthType", settings.get("authtype", "auth/slurm")),
        ("MessageTimeout", f"{config.message_timeout_seconds:g} sec"),
        ("PluginDir", settings.get("plugindir", "(null)")),
        ("PrivateData", settings.get("privatedata", "none").lower()),
        ("SlurmUserId", f"{owner if owner_id is None else name_of(owner_id)}({owner_id})"),
        ("SLURM_CONF", config.path),
        ("SLURM_VERSION", SLURM_VERSION),
        ("TCPTimeout", f"{settings.get('tcptimeout', '2')} sec"),
        ("TrackWCKey", "Yes" if settings.get("trackwckey", "no").lower() in ("yes", "1", "true", "up") else "No"),
    )
    context.out(f"Configuration data as of {format_time(configuration.now)}\n")
    for key, text in ours:
        context.out(f"{key:<22} = {text}\n")
    context.out("\nSlurmDBD configuration:\n")
    for key, text in configuration.rows:
        context.out(f"{key:<22} = {text}\n")
    return 0


def show_statistics(connection: DatabaseConnection, words: Sequence[Word], context: Context) -> int:
    """Print request counts by kind and by user, and roll-up statistics. The words `ave_time` and `total_time` sort by
    these.
    """
    counts = connection.call(model.GetCallStatistics(), model.CallCounts)
    order = words[0].value.lower() if words else ""
    context.out(
        f"{_STARS}\nsacctmgr show stats output at {_when(counts.now)}\nData since{'':20}{_when(counts.since)}\n"
    )
    context.out(f"All statistics are in microseconds\n{_STARS}\n")
    for rollup in counts.rollups:
        context.out(f"\nInternal DBD {rollup.name} last ran {_when(rollup.last_at)}\n")
        context.out(
            f"\tLast cycle:   {rollup.last}\n\tMax cycle:    {rollup.longest}\n\tTotal time:   {rollup.total}\n"
            f"\tTotal cycles: {rollup.count}\n\tMean cycle:   {rollup.total // max(1, rollup.count)}\n"
        )
    if counts.connections:
        context.out("\nConnections (Spritz)\n")
    for name, count in counts.connections.items():
        context.out(f"\t{name:<25} {count}\n")
    context.out("\nRemote Procedure Call statistics by message type\n")
    for row in sorted_counts(counts.kinds, order):
        average = row.microseconds // max(1, row.count)
        context.out(f"\t{row.name:<25} count:{row.count:<6} ave_time:{average:<6} total_time:{row.microseconds}\n")
    context.out("\nRemote Procedure Call statistics by user\n")

    for row in sorted_counts(counts.users, order):
        average = row.microseconds // max(1, row.count)
        name = name_of(int(row.name)) if int(row.name) >= 0 else "unknown"
        context.out(
            f"\t{name:<20}({int(row.name):>10}) count:{row.count:<6} ave_time:{average:<6} "
            f"total_time:{row.microseconds}\n"
        )
    return 0


def sorted_counts(rows: Sequence[model.CallCount], order: str) -> list[model.CallCount]:
    """Sorted by count, or by `order` "ave_time" or "total_time"; the largest first."""
    if order == "ave_time":
        return sorted(rows, key=lambda row: (-(row.microseconds // max(1, row.count)), row.name))
    if order == "total_time":
        return sorted(rows, key=lambda row: (-row.microseconds, row.name))
    return sorted(rows, key=lambda row: (-row.count, -row.microseconds, row.name))


def _when(at: float) -> str:
    return f"{ctime(at)} ({int(at)})"


def clear_statistics(connection: DatabaseConnection | None, words: Sequence[str], context: Context) -> int:
    """`sacctmgr clear stats`: reset the request counters of slurmdbd. Returns the exit status."""
    if connection is None or not words or match(words[0].lower(), ("stats",), 2) is None:
        context.err('No valid entity in clear command\nInput line must include "stats"\n')
        return 1
    connection.call(model.ClearStatistics(), Done)
    return 0


def reconfigure(connection: DatabaseConnection) -> int:
    """Make slurmdbd read its configuration again. Raises ClientError with the errors in it."""
    connection.call(model.ReconfigureDatabase(), Done)
    return 0


def shutdown(connection: DatabaseConnection) -> int:
    connection.call(model.ShutdownDatabase(), Done)
    return 0


def ping(context: Context, as_json: str | None = None) -> int:
    """0 if a slurmdbd answers, else 1: one of them serves, and the other does not listen.

    `as_json`: the value of `--json=` (`presentation.json.envelope`); then always 0, as in Slurm.
    Raises RemoteHost if slurmdbd is configured on another machine.
    """
    config = locate_database()
    if config.kind != "slurmdbd":
        context.err("Slurm accounting storage is disabled\n")
        return 1
    began = monotonic()
    answered: Pong | None = None
    remote: RemoteHost | None = None
    for address in config.addresses:
        try:
            with connect_address(address, timeout=config.message_timeout_seconds, owners=config.owners()) as connection:
                answered = connection.call(Ping(), Pong)
            break
        except RemoteHost as error:
            remote = remote or error.naming(f"{config.path}: AccountingStorageHost={config.host}")
        except ClientError:
            continue
    if remote is not None and answered is None:
        raise remote
    hosts = [host for host in (config.host, config.backup_host) if host]
    # A lone slurmdbd may be named by an alias of its machine, and so may the first of two.
    serving = config.host
    if answered is not None and config.backup_host.partition(".")[0] == answered.host.partition(".")[0]:
        serving = config.backup_host
    up_by_host = {host: answered is not None and host == serving for host in hosts}
    if as_json is not None:
        from spritz.presentation.json.ping import show_databases

        show_databases(context, as_json, up_by_host, int((monotonic() - began) * 1e6))
        return 0
    for role, (host, up) in zip(("primary", "backup"), up_by_host.items(), strict=False):
        context.out(f"slurmdbd({role}) at {host} is {'UP' if up else 'DOWN'}\n")
    return 0 if answered is not None else 1
