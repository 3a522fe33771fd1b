"""Runs the fake API server by hand, until it is interrupted."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from spritz.runtime.tasks import run
from spritz.testing.kubernetes.server import KubeServer


async def serve(options: argparse.Namespace) -> None:
    async with KubeServer(port=options.port, directory=options.directory) as server:
        print(f"export KUBECONFIG={server.kubeconfig}", flush=True)
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        await ended.wait()
        for failure in server.failures:
            print(failure, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m spritz.testing.kubernetes", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="a port of the loopback interface; any free one by default")
    parser.add_argument("--directory", type=Path, help="an existing directory for the kubeconfig and the key")
    run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
