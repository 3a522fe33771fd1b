"""-M, --clusters: which clusters are meant, and having a command speak to another than slurm.conf's.

slurmdbd knows every cluster's controller by the address with which it registered. On one machine the kernel vouches for
the caller, as always; on others the daemon of that cluster which has joined the machine (`client.locate`).

Every command imports this module: its functions import what reads slurm.conf or sends records (msgspec takes 13 ms).

Source: squeue(1), sbatch(1), SLURM_CLUSTERS; wording and status of 22.05, with slurmdbd and without.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.options import Fatal
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from spritz.cli.call.context import Context
    from spritz.client.command.sync import Connection
    from spritz.client.locate import ControllerConfig
    from spritz.model.job.record import JobSpec
    from spritz.model.limits.records import Book, ClusterRow


def chosen(text: str, context: Context, *, names_source: str = "--cluster") -> list[ControllerConfig]:
    """The reachable clusters of the comma list `text` (`all`: every cluster); the others are reported.

    Raises SpritzError if there is none, `names_source`: the source of the names; ClientError if there is no slurm.conf.
    """
    from spritz.client.locate import locate_controller, locate_database

    this_cluster = locate_controller()
    names = list(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip())) or [""]
    candidates: list[ControllerConfig] = []
    if names == [this_cluster.cluster_name]:
        return [this_cluster]
    if locate_database(this_cluster.path).kind != "slurmdbd":
        if names == ["all"] or this_cluster.cluster_name in names:
            candidates.append(this_cluster)
        if names not in (["all"], [this_cluster.cluster_name]):
            context.error("Problem talking to database")
    else:
        known = _registered(this_cluster.path, names_source)
        for name in sorted(known) if names == ["all"] else names:
            if name == this_cluster.cluster_name:
                candidates.append(this_cluster)
            elif name not in known:
                context.error(f"No cluster '{name}' known by database.")
            elif known[name].port:
                candidates.append(_config(known[name], this_cluster))
            else:
                context.error(f"Slurmctld on '{name}' hasn't registered yet.")
    if candidates:
        return candidates

    if names == ["all"]:
        raise SpritzError("No clusters can be reached now. Contact your admin to resolve the problem.")
    raise SpritzError(
        f"'{text}' can't be reached now, or it is an invalid entry for {names_source}.  "
        "Use 'sacctmgr list clusters' to see available clusters."
    )


def federated() -> list[ControllerConfig]:
    """The clusters of this cluster's federation, by number; none if it is in none, or without slurmdbd. A member whose
    controller never registered is left out. Raises SpritzError if slurmdbd does not answer.
    """
    from spritz.client.locate import locate_controller, locate_database
    from spritz.model.limits.federations import member_of, members_of

    this_cluster = locate_controller()
    if locate_database(this_cluster.path).kind != "slurmdbd":
        return []

    book = _book(this_cluster.path, "--federation")
    rows = {row.name: row for row in book.clusters}
    members = members_of(book.federation_members, member_of(book, this_cluster.cluster_name).federation)
    configs = [rows[member.cluster] for member in members if member.cluster in rows]
    return [
        this_cluster if row.name == this_cluster.cluster_name else _config(row, this_cluster)
        for row in configs
        if row.port
    ]


def federated_by_default() -> list[ControllerConfig]:
    """The clusters of this cluster's federation if FederationParameters=fed_display has listings show them; else none.

    While slurmdbd does not answer, none: listings then show this cluster.
    """
    from spritz.client.locate import locate_controller

    try:
        return federated() if locate_controller().lists_federation else []
    except SpritzError:
        return []


def others_of_federation(spec: JobSpec) -> list[ControllerConfig]:
    """The other clusters of the federation that may take a submission of the job, by number; none without slurmdbd.

    Raises SpritzError if slurmdbd does not answer.
    """
    from spritz.client.locate import locate_controller, locate_database
    from spritz.model.federation import viable
    from spritz.model.limits.federations import member_of, members_of

    this_cluster = locate_controller()
    if locate_database(this_cluster.path).kind != "slurmdbd":
        return []
    book = _book(this_cluster.path, "--federation")
    rows = {row.name: row for row in book.clusters if row.port and row.name != this_cluster.cluster_name}
    members = members_of(book.federation_members, member_of(book, this_cluster.cluster_name).federation)
    return [_config(rows[name], this_cluster) for name in viable(members, spec) if name in rows]


def origin_of(job_id: int) -> str:
    """Name of the cluster of this federation that took the job; "" if none of it did."""
    from spritz.client.locate import locate_controller
    from spritz.model.federation import origin_number
    from spritz.model.limits.federations import member_of, members_of

    this_cluster = locate_controller()
    book = _book(this_cluster.path, "--federation")
    members = members_of(book.federation_members, member_of(book, this_cluster.cluster_name).federation)
    return next((member.cluster for member in members if member.number == origin_number(job_id)), "")


def named(name: str) -> ControllerConfig:
    """How to reach the cluster. Raises SpritzError if slurmdbd does not answer, or does not know where it is."""
    from spritz.client.locate import locate_controller

    this_cluster = locate_controller()
    row = _registered(this_cluster.path, "--federation").get(name)
    if row is None or not row.port:
        raise SpritzError(f"Slurmctld on '{name}' hasn't registered yet.")
    return _config(row, this_cluster)


def of_job(job_id: int) -> ControllerConfig | None:
    """The cluster of the federation to ask about a job: the one that runs it, or else its origin. None: this one."""
    from spritz.client.command.sync import connect_controller
    from spritz.client.errors import ClientError
    from spritz.client.locate import locate_controller, locate_database
    from spritz.model.federation import origin_number
    from spritz.model.job.job_filter import JobFilter, JobTarget
    from spritz.model.limits.federations import member_of, members_of
    from spritz.model.queries.job_records import Jobs
    from spritz.model.queries.jobs import ListJobs

    this_cluster = locate_controller()
    if not origin_number(job_id) or locate_database(this_cluster.path).kind != "slurmdbd":
        return None
    book = _book(this_cluster.path, "--federation")
    reached = {row.name: _config(row, this_cluster) for row in book.clusters if row.port} | {
        this_cluster.cluster_name: this_cluster
    }
    members = members_of(book.federation_members, member_of(book, this_cluster.cluster_name).federation)
    origin = next(
        (member.cluster for member in members if member.number == origin_number(job_id)), this_cluster.cluster_name
    )
    if origin not in reached:
        return None
    query = ListJobs(filter=JobFilter(targets=(JobTarget(job_id),)), all=True)
    use(reached[origin])
    try:
        with connect_controller() as controller:
            pieces = controller.stream(query, Jobs, timeout=controller.timeout_seconds)
            jobs = [job for piece in pieces for job in piece.jobs]
    except ClientError:
        return reached[origin]  # a further request reports its answer, or its silence
    finally:
        use(this_cluster)
    runs_on = next((job.federation.runs_on for job in jobs if job.federation is not None and not job.state.ended), "")
    config = reached.get(runs_on or origin, this_cluster)
    return None if config.cluster_name == this_cluster.cluster_name else config


def follow_job(text: str) -> None:
    """For a job of a federation that another cluster runs: have this call speak to that cluster. Other text than a
    job's number is for the caller to refuse, and without slurmdbd this cluster is asked.
    """
    # The upper bits name the cluster (model.federation.LOCAL_BITS, whose module is slow to load).
    if text.isascii() and text.isdigit() and len(text) < 11 and int(text) >> 26:
        with suppress(SpritzError):
            cluster = of_job(int(text))
            if cluster is not None:
                use(cluster)


def connections(
    several: Sequence[ControllerConfig], connect: Callable[[], Connection]
) -> Iterator[tuple[str, Connection]]:
    """One cluster after another: its name and an open connection. Unreachable ones are reported and skipped. Raises
    AlreadyReported if none is reachable.
    """
    reached = 0
    for cluster in several:
        use(cluster)
        try:
            connection = connect()
        except AlreadyReported:
            continue
        reached += 1
        with connection:
            yield cluster.cluster_name, connection
    if several and not reached:
        raise AlreadyReported


def only(text: str, context: Context, *, names_source: str = "--cluster") -> str:
    """Have this call speak to the one cluster of `text`; its name. Raises Fatal for several."""
    candidates = chosen(text, context, names_source=names_source)
    if len(candidates) > 1:
        raise Fatal(f"Only one cluster can be used at a time with {context.program}")
    use(candidates[0])
    return candidates[0].cluster_name


def use(cluster: ControllerConfig) -> None:
    """From here on this call speaks to that cluster's controller."""
    from spritz.client import locate

    locate.set_target(None)
    if cluster != locate.locate_controller():
        locate.set_target(cluster)


def each(clusters: Sequence[ControllerConfig], show: Callable[[ControllerConfig], int]) -> int:
    """Call `show` for one cluster after another; returns the worst status. An unreachable cluster does not stop the
    others.
    """
    status = 0
    for cluster in clusters:
        use(cluster)
        try:
            status = max(status, show(cluster))
        except AlreadyReported as silent:
            if len(clusters) == 1:
                raise
            status = max(status, silent.exit_code)
    return status


def source(parsed: Sequence[tuple[str, str | None]]) -> str:
    """The name of the option in messages: the environment variable's if the command line does not have it."""
    return "--cluster" if any(key == "clusters" for key, _ in parsed) else "SLURM_CLUSTERS"


def _registered(path: str, names_source: str) -> dict[str, ClusterRow]:
    """Every cluster of the database, by name. Raises SpritzError if slurmdbd does not answer."""
    return {row.name: row for row in _book(path, names_source).clusters}


def _book(path: str, names_source: str) -> Book:
    from spritz.client.command.sync import connect_address
    from spritz.client.errors import ClientError
    from spritz.client.locate import locate_database
    from spritz.model.limits.records import Book, GetBook

    database, problem = locate_database(path), ""
    for address in database.addresses:
        try:
            timeout, owners = database.message_timeout_seconds, database.owners()
            with connect_address(address, timeout=timeout, owners=owners) as connection:
                return connection.call(GetBook(), Book)
        except ClientError as error:
            problem = error.hint.rpartition(": ")[2] or error.message
    where = (
        f"{names_source} from your command line"
        if names_source.startswith("--")
        else f"{names_source} from your environment"
    )
    raise SpritzError(
        f"There is a problem talking to the database: {problem}.  Only local cluster communication is available, "
        f"remove {where} or contact your admin to resolve the problem."
    )


def _config(row: ClusterRow, this_cluster: ControllerConfig) -> ControllerConfig:
    """How to reach it. SlurmUser is taken to be the same."""
    from msgspec.structs import replace

    return replace(
        this_cluster, cluster_name=row.name, hosts=(row.host,), names=(row.host,), port=row.port, state_save_location=""
    )
