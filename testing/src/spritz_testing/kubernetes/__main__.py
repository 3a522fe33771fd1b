"""Runs the API server by hand, with nodes whose pods are processes of this machine, until it is interrupted.

    cd packaging/kubernetes
    python -m spritz_testing.kubernetes --operator crds.yaml example.yaml

prints how `kubectl` reaches it. With `--operator` SpritzClusters are run, and how commands and `spritz-operator` reach
the first of them is printed when its slurmctld has its configuration.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path
from typing import Any

import yaml

from spritz.k8s.api import Api
from spritz.k8s.custom_resources.cluster_objects import REST_PORT
from spritz.k8s.custom_resources.clusters import Clusters
from spritz.runtime.tasks import Supervisor, run
from spritz_testing.kubernetes.cluster import Request
from spritz_testing.kubernetes.errors import Refusal
from spritz_testing.kubernetes.nodes import Machine, Nodes
from spritz_testing.kubernetes.server import KubeServer


async def serve(options: argparse.Namespace) -> None:
    """Run server and nodes, and apply the files, until a signal arrives."""
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(KubeServer(port=options.port, directory=options.directory))
        print(f"export KUBECONFIG={server.kubeconfig}", flush=True)
        nodes = await stack.enter_async_context(
            Nodes(server, [Machine(f"m{machine_number}") for machine_number in range(options.nodes)])
        )
        for file in options.files:
            for obj in yaml.safe_load_all(file.read_text()):
                await _create(server, obj)
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        if options.operator:
            api = await stack.enter_async_context(Api.connect(server.kubeconfig))
            tasks = await stack.enter_async_context(Supervisor())
            clusters = Clusters(
                api,
                _say,
                address=lambda cluster: nodes.service_url(
                    cluster.metadata.namespace, f"{cluster.metadata.name}-rest", REST_PORT
                ),
            )
            tasks.spawn(clusters.run(), name="operator")
            tasks.spawn(_tell(nodes), name="slurm.conf")
            stack.callback(tasks.cancel_all)
        await ended.wait()
        for failure in (*server.failures, *nodes.failures):
            print(failure, file=sys.stderr)


async def _create(server: KubeServer, obj: dict[str, Any]) -> None:
    """As `kubectl create`. A resource whose definition was made just now is served a moment later."""
    metadata = obj["metadata"]
    for attempt in range(100):
        kind = server.cluster.kind_named(obj["apiVersion"], obj["kind"])
        if kind is not None:
            namespace = metadata.setdefault("namespace", "default") if kind.namespaced else ""
            try:
                await server.cluster.create(kind, namespace, obj, Request(manager="kubectl"))
            except Refusal as refusal:
                sys.exit(f"{obj['kind']} {metadata['name']}: {refusal.message}")
            return
        await asyncio.sleep(0.05 if attempt else 0)
    sys.exit(f"{obj['kind']} {metadata['name']}: the server has no {obj['apiVersion']} {obj['kind']}")


async def _tell(nodes: Nodes) -> None:
    """The configuration of the first cluster, as soon as there is one, and where its slurmrestd is."""
    pattern = "*/*-controller-0/etc/slurm.conf"
    while not (paths := sorted(nodes.root.glob(pattern))):  # noqa: ASYNC110  # nothing tells of a file
        await asyncio.sleep(0.1)
    print(f"export SLURM_CONF={paths[0]}", flush=True)
    namespace, name = paths[0].relative_to(nodes.root).parts[:2]
    rest = nodes.service_url(namespace, f"{name.removesuffix('-controller-0')}-rest", REST_PORT)
    print(f"export SLURMRESTD={rest}", flush=True)


def _say(event: str, **fields: Any) -> None:
    print(event, *(f"{name}={value}" for name, value in fields.items()), file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m spritz_testing.kubernetes", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="manifests to create")
    parser.add_argument("--port", type=int, default=0, help="a port of the loopback interface; any free one by default")
    parser.add_argument("--directory", type=Path, help="an existing directory for the kubeconfig and the key")
    parser.add_argument("--nodes", type=int, default=2, metavar="N", help="nodes m0, m1, … (%(default)s)")
    parser.add_argument("--operator", action="store_true", help="run SpritzCluster, NodeSet, LoginSet and Token")
    run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
