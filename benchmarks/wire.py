"""How long does a message take? Codec, one call at a time, and many on their way at once, over real sockets.

Run with `python -m benchmarks.wire`. Prints medians of several rounds; the server runs in a process of its own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from msgspec import Struct

from spritz.client.channel.handling import Call
from spritz.client.channel.server import Server
from spritz.client.command.sync import connect_address
from spritz.runtime import tasks
from spritz.runtime.log import get_logger
from spritz.runtime.worker import Worker
from spritz.wire.envelope import decode_envelope, encode_request
from spritz.wire.frames import PREFIX_BYTES, FrameDecoder
from spritz.wire.requests import RequestDecoder

ROUNDS = 7


class Submit(Struct, frozen=True, kw_only=True):
    """About what a small submission weighs."""

    name: str = "train"
    script: str = "#!/bin/bash\nsrun python train.py\n" * 10
    environment: tuple[str, ...] = tuple(f"VARIABLE_{n}=value {n}" for n in range(40))
    nodes: int = 2
    tasks: int = 8


class Submitted(Struct, frozen=True, kw_only=True):
    """The answer."""

    job_id: int


def median_of(measure: Callable[[], float]) -> float:
    """Median of `ROUNDS` rounds, in whatever unit the measurement has."""
    return statistics.median(measure() for _ in range(ROUNDS))


def each(count: int, work: Callable[[], object]) -> float:
    """Seconds per call."""
    started = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - started) / count


def measure_codec() -> None:
    """Encoding and decoding without any socket."""
    request = Submitted(job_id=7)
    frame = encode_request(7, request)
    table, frames = RequestDecoder([Submitted]), FrameDecoder()

    def decode() -> None:
        envelope = decode_envelope(frames.feed(frame)[0])
        table.decode(envelope)  # type: ignore[arg-type]  # it is the request made above

    print(
        f"encode a small request   {median_of(lambda: each(20_000, lambda: encode_request(7, request))) * 1e6:8.2f} us"
    )
    print(f"decode it again          {median_of(lambda: each(20_000, decode)) * 1e6:8.2f} us")
    print(f"bytes of it              {len(frame) - PREFIX_BYTES:8d}")


def measure_calls(name: str, address: str | tuple[str, int]) -> None:
    """Calls to the server process: alone, and a thousand at once."""
    with connect_address(address, timeout=10) as connection:
        call = median_of(lambda: each(1000, lambda: connection.call(Submit(), Submitted)))
        print(f"{name}: one call        {call * 1e6:8.1f} us")

        def pipelined() -> None:
            connection.send_many([Submit()] * 1000)
            for _ in range(1000):
                connection.receive()

        rate = 1000 / median_of(lambda: each(3, pipelined))
        print(f"{name}: pipelined       {rate:8.0f} calls/s")

    def connect_and_call() -> None:
        with connect_address(address, timeout=10) as connection:
            connection.call(Submit(), Submitted)

    print(f"{name}: connect + call  {median_of(lambda: each(200, connect_and_call)) * 1e6:8.1f} us")


def measure_import() -> None:
    """What the client adds to the start of a command that imports msgspec."""

    def start(program: str) -> float:
        return each(10, lambda: subprocess.run([sys.executable, "-c", program], check=True))

    bare = median_of(lambda: start("import msgspec"))
    client = median_of(lambda: start("import msgspec, spritz.client.command.sync, spritz.client.locate"))
    print(f"interpreter + msgspec    {bare * 1e3:8.1f} ms")
    print(f"the client adds          {(client - bare) * 1e3:8.1f} ms")


async def serve(name: str) -> None:
    """The server process: answers until its standard input ends."""

    def submitted(request: Submit, call: Call) -> Submitted:
        return Submitted(job_id=request.nodes)

    async with Server({Submit: submitted}, role="benchmark", log=get_logger("benchmark")) as server:
        await server.listen_unix(name)
        listener = await server.listen_tcp("127.0.0.1", 0)
        print(listener.name[1], flush=True)
        await Worker("stdin").run(sys.stdin.read)


def main() -> None:
    """All of it."""
    measure_codec()
    name = f"\0spritz/benchmark/{os.getpid()}"
    command = [sys.executable, "-m", "benchmarks.wire", "serve", name[1:]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        measure_calls("unix", name)
        measure_calls("tcp ", ("127.0.0.1", port))
        server.communicate()
    measure_import()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        tasks.run(serve("\0" + sys.argv[2]))
    else:
        main()
