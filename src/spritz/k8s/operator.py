"""`spritz-operator`: places pods in the cluster's queue, synchronises nodes, and runs clusters.

    spritz-operator --slurmrestd URL [--policy FILE] [--kubeconfig FILE] [--scheduler-name NAME]
    spritz-operator --clusters [--kubeconfig FILE]

Of several that run, one works: the one that has the Lease. The token of slurmrestd comes from SLURM_JWT or the file
--token-file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pwd
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop
from lightkube.core.exceptions import ConfigError

from spritz.http.rest import TokenFile
from spritz.k8s import living
from spritz.k8s.admission.custom_resources import PATH, ResourceAdmission
from spritz.k8s.admission.pods import pod_answers
from spritz.k8s.admission.webhooks import Answer, Webhooks
from spritz.k8s.api import Api, Retries
from spritz.k8s.custom_resources.clusters import Clusters
from spritz.k8s.election import Election
from spritz.k8s.living import EXIT_STATUS, Ending, keep, must_end
from spritz.k8s.policy import Policy, PolicyError, read
from spritz.k8s.scheduling.node_sync import NodeSync
from spritz.k8s.scheduling.pod_scheduler import PodScheduler
from spritz.k8s.slurm import Slurm


def log(event: str, **fields: Any) -> None:
    """Write an event as a line of JSON to standard error."""
    print(json.dumps({"at": round(time.time(), 3), "event": event, **fields}), file=sys.stderr, flush=True)  # noqa: TID251  # the operator's own log


async def operate(
    api: Api, slurm: Slurm | None, policy: Policy, *, name: str = "spritz", nodes: bool = True, clusters: bool = False
) -> None:
    """Operate until cancelled. `slurm`: schedule pods; `clusters`: manage SpritzClusters and NodeSets."""
    async with asyncio.TaskGroup() as group:
        if clusters:
            keep(group, Clusters(api, log).run(), name="clusters")
        if slurm is not None:
            keep(group, _place(api, slurm, policy, name=name, nodes=nodes), name="placing")


async def _place(api: Api, slurm: Slurm, policy: Policy, *, name: str, nodes: bool) -> None:
    pods = PodScheduler(api, slurm, policy, log, name=name)
    cleared = None
    async with asyncio.TaskGroup() as group:
        if nodes:
            sync = NodeSync(api, slurm, policy, log, pods.nodes, inventory=pods.claims.inventory, scheduler=name)
            pods.node_changed = sync.changed
            pods.claims.inventory.gres, pods.runs_jobs = sync.gres, sync.runs_jobs
            sync.made = pods.look_again
            cleared = sync.cleared
            keep(group, sync.run(), name="node-sync")
        keep(group, pods.run(cleared), name="pod-scheduler")


def entry() -> None:
    sys.exit(main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Operate until SIGTERM or SIGINT. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="spritz-operator", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--slurmrestd",
        metavar="URL",
        help="slurmrestd of the cluster that queues the pods: http://host:port or unix:/path",
    )
    parser.add_argument(
        "--clusters", action="store_true", help="manage the clusters that SpritzCluster and NodeSet describe"
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="token of an administrator, read again when it changes (default: $SLURM_JWT)",
    )
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="YAML file: user, account and QOS by namespace; pods without a user are refused",
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig of the API server (default: as for kubectl)")
    parser.add_argument(
        "--scheduler-name", metavar="NAME", default="spritz", help="schedule pods with this schedulerName (spritz)"
    )
    parser.add_argument("--no-nodes", action="store_true", help="do not create or delete nodes in Slurm")
    parser.add_argument(
        "--lease-seconds",
        metavar="N",
        type=float,
        default=15.0,
        help="seconds without renewal after which another operator leads (15)",
    )
    parser.add_argument(
        "--namespace",
        metavar="NAME",
        default="",
        help="namespace of the Lease and the certificate (default: the operator's)",
    )
    parser.add_argument(
        "--webhook-port",
        metavar="PORT",
        type=int,
        help="serve admission webhooks: for pods (with --slurmrestd), for our own resources (with --clusters)",
    )
    arguments = parser.parse_args(argv)
    if arguments.lease_seconds < 1:
        parser.error("--lease-seconds must be at least 1")
    if not arguments.slurmrestd and not arguments.clusters:
        parser.error("nothing to do: give --slurmrestd, --clusters or both")
    try:
        policy = read(Path(arguments.policy).read_text(encoding="utf-8")) if arguments.policy else Policy()
        token = TokenFile(arguments.token_file) if arguments.token_file else os.environ.get("SLURM_JWT", "")
    except (OSError, ValueError, PolicyError) as error:
        print(f"spritz-operator: {error}", file=sys.stderr)
        return 1
    others = sorted(policy.users - {_own_user()})
    if others and not token:
        # slurmrestd takes a caller of its Unix socket for itself, whatever user is named.
        words = f"jobs of other users are queued with a token: give --token-file or SLURM_JWT ({', '.join(others)})"
        print(f"spritz-operator: {arguments.policy} names other users: {words}", file=sys.stderr)
        return 1
    if arguments.slurmrestd and not policy.users:
        log("policy.no_user", message="every pod is refused: no rule of --policy names a user for its jobs")
    living.begin(Ending(lambda: log("operator.unended", exit_status=EXIT_STATUS)))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_run(arguments, policy, token))
    except ConfigError as error:
        print(f"spritz-operator: {error}", file=sys.stderr)
        return 1
    finally:
        living.has_ended()


def _own_user() -> str:
    """The user of this process; its number if it has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


async def _run(arguments: argparse.Namespace, policy: Policy, token: str | TokenFile) -> int:
    slurm = Slurm(arguments.slurmrestd, token) if arguments.slurmrestd else None
    async with (
        Api.connect(arguments.kubeconfig) as api,
        # A client of its own: renewals do not wait behind other requests, and only the election retries them.
        Api.connect(arguments.kubeconfig, retries=Retries(attempts=1)) as election_api,
        # Every replica serves webhooks, whether it leads or not.
        Api.connect(arguments.kubeconfig) as hooks,
    ):
        election = Election(
            election_api,
            "spritz-operator" if slurm is not None else "spritz-clusters",
            log,
            namespace=arguments.namespace,
            seconds=arguments.lease_seconds,
        )
        api.guard = election.check
        if slurm is not None:
            slurm.guard = election.check
        current = asyncio.current_task()
        assert current is not None

        def stop() -> None:
            must_end()
            current.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        log("operator.started", slurmrestd=arguments.slurmrestd, clusters=arguments.clusters)

        async def work() -> None:
            await operate(
                api,
                slurm,
                policy,
                name=arguments.scheduler_name,
                nodes=not arguments.no_nodes,
                clusters=arguments.clusters,
            )

        try:
            async with asyncio.TaskGroup() as group:
                keep(group, election.run(work), name="election")
                if arguments.webhook_port is not None:
                    webhooks = _webhooks(hooks, policy, arguments, lambda: election.is_alive)
                    keep(group, webhooks.run(), name="webhooks")
        except asyncio.CancelledError:
            log("operator.stopped")
        finally:
            if slurm is not None:
                await slurm.close()
    return 0


def _webhooks(api: Api, policy: Policy, arguments: argparse.Namespace, is_alive: Callable[[], bool]) -> Webhooks:
    answers: dict[str, Answer] = {}
    names = []
    if arguments.slurmrestd:
        answers |= pod_answers(arguments.scheduler_name, policy)
        names.append("spritz-webhooks")
    if arguments.clusters:
        answers[PATH] = ResourceAdmission(api).answer
        names.append("spritz-clusters")
    place = {"namespace": arguments.namespace, "port": arguments.webhook_port}
    return Webhooks(api, log, answers, names=names, is_alive=is_alive, **place)


if __name__ == "__main__":
    entry()
