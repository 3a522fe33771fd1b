"""Runs the kubelet by hand, until it is interrupted.

python -m spritz_testing.kubelet --kubeconfig admin.conf --nodes 3
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from lightkube import KubeConfig

from spritz.k8s.api import Api
from spritz.runtime.tasks import run
from spritz_testing.kubelet import image
from spritz_testing.kubelet.agent import Kubelet


async def serve(options: argparse.Namespace) -> None:
    """Run the nodes until a signal arrives."""
    configuration = KubeConfig.from_file(str(options.kubeconfig)).get()
    assert configuration is not None
    users = {name: 2001 + number for number, name in enumerate(options.user)}
    server = configuration.cluster.server
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with (
        Api.connect(options.kubeconfig, field_manager="kubelet") as api,
        Kubelet(api, server, count=options.nodes, directory=options.directory, users=users) as kubelet,
    ):
        print(f"{', '.join(kubelet.nodes)}: logs are in {kubelet.directory}/pods", flush=True)
        await ended.wait()
        for failure in kubelet.failures:
            print(failure, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m spritz_testing.kubelet", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--kubeconfig", type=Path, required=True, metavar="FILE", help="an administrator's")
    parser.add_argument("--nodes", type=int, default=3, metavar="N", help="how many nodes (%(default)s)")
    parser.add_argument("--directory", type=Path, help="an existing directory for volumes and logs, which stays")
    parser.add_argument("--user", action="append", default=[], metavar="NAME", help="a user of the image")
    options = parser.parse_args()
    why = image.missing()
    if why:
        sys.exit(f"spritz_testing.kubelet: {why}")
    run(serve(options))


if __name__ == "__main__":
    main()
