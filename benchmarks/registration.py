"""Nodes that register all at once, each over a connection of its own, while the controller is asked other things.

    python -m benchmarks.registration [NODES]          on the controller's machine: plain connections
    python -m benchmarks.registration [NODES] --tls    from another machine: TLS, and a certificate of each node (root)

Prints the seconds from the first connection until the last node is registered, and how long a command's question
about partitions took meanwhile. The nodes are connections of two processes of this benchmark,
which share the processors with the controller.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import pairwise
from statistics import median, quantiles

import psutil
from tests.e2e.cluster import Cluster
from tests.machines.lan import Lan

NODES, PROCESSES = 5000, 2

#: What runs as nodes: prints "ready", begins at a line of its input, prints how many are registered, and how
#: often they were refused. A node is a connection that speaks the protocol of slurmd and little else, because all of
#: them share two processors.
_AS_NODES = """
import asyncio, resource, sys, time
from spritz.client.trust.membership import find_membership
from spritz.model.node_daemon.launch import PingNode
from spritz.model.node_daemon.reports import NodeSamples, RegisterNode
from spritz.model.resources import NodeCapacity
from spritz.runtime import tasks, tls
from spritz.runtime.authority import own_keys
from spritz.runtime.randomness import SystemRandomness, backoff
from spritz.wire.envelope import Request, Response, decode_envelope, encode, encode_request, encode_response
from spritz.wire.frames import FrameDecoder
from spritz.wire.versions import hello

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
first, last, cluster, host, port, conf = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
contexts = {}
if conf:
    authorities = find_membership(conf).authorities
    for number in range(first, last):
        keys = own_keys(authorities, tls.Machine(cluster, tls.NODE, f"n{number}"), time.time())
        contexts[number] = tls.client_context(keys)

class Node(asyncio.Protocol):
    def __init__(self, number):
        self.number, self.frames = number, FrameDecoder()
        self.registered = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        assert not conf or tls.machine_of(transport.get_extra_info("peercert")).role == tls.CONTROLLER
        request = RegisterNode(name=f"n{self.number}", capacity=NodeCapacity(cpus=8, memory_mib=8000), booted_at=1.0,
                               daemon_started_at=1.0, version="25.05")
        transport.write(encode(hello("slurmd")) + encode_request(1, request))

    def data_received(self, data):
        for envelope in map(decode_envelope, self.frames.feed(data)):
            if isinstance(envelope, Response):
                self.registered.set_result(not envelope.error)
            elif isinstance(envelope, Request) and envelope.kind == PingNode.__name__:
                self.transport.write(encode_response(envelope.id, NodeSamples(samples=())))

    def connection_lost(self, error):
        if not self.registered.done():
            self.registered.set_result(False)

async def register(number):
    loop, refused = asyncio.get_running_loop(), 0
    address = f"10.79.{number // 250}.{1 + number % 250}"  # see `main`
    secure = dict(ssl=contexts[number], server_hostname="", local_addr=(address, 0)) if conf else {}
    for wait in backoff(SystemRandomness()):  # as slurmd
        try:
            _, node = await loop.create_connection(lambda: Node(number), host, int(port), **secure)
            if await node.registered:
                return refused
        except OSError:
            pass  # too many handshakes are under way
        refused += 1
        await asyncio.sleep(wait)

async def main():
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    refused = await asyncio.gather(*map(register, range(first, last)))
    print(len(refused), sum(refused), flush=True)
    await asyncio.to_thread(sys.stdin.readline)

tasks.run(main())  # the loop of slurmd
"""


#: A command that asks again and again: prints the seconds of each answer.
_PROBE = """
import time
from spritz.client.locate import locate_controller
from spritz.client.command.sync import connect_controller
from spritz.model.queries.partitions import ListPartitions, Partitions
with connect_controller(locate_controller()) as controller:
    while True:
        began = time.perf_counter()
        controller.call(ListPartitions(), Partitions, timeout=60)
        print(time.perf_counter() - began, flush=True)
        time.sleep(0.005)
"""

_CONF = """\
ClusterName=many
SlurmctldHost=alpha
SlurmctldPort=26877
SlurmUser=root
AuthType=auth/slurm
StateSaveLocation=/run/ctl
SlurmctldPidFile=/run/ctld.pid
SlurmctldLogFile=/run/ctld.log
NodeName=n[1-{count}] CPUs=8 RealMemory=8000
PartitionName=main Nodes=ALL Default=YES
"""


def main() -> None:
    """Measure and print."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    count = int(words[0]) if words else NODES
    if "--tls" not in sys.argv:
        cluster = Cluster(nodes=count)
        try:
            cluster.start_controller()
            assert cluster.controller is not None, "it was started"
            environ = os.environ | {"SLURM_CONF": str(cluster.conf)}
            _measure(count, cluster.controller.pid, [], [], environ, [cluster.name, "127.0.0.1", str(cluster.port), ""])
        finally:
            cluster.close()
        return
    with Lan() as lan:
        alpha, beta = lan.machine("alpha"), lan.machine("beta")
        conf = lan.root / "slurm.conf"
        # Each node has an address of its own.
        batch = lan.root / "addresses"
        batch.write_text("".join(f"addr add 10.79.{n // 250}.{1 + n % 250}/32 dev lo\n" for n in range(1, count + 1)))
        beta.do("ip", "-batch", str(batch))
        alpha.do("ip", "route", "add", "10.79.0.0/16", "via", beta.address)
        conf.write_text(_CONF.format(count=count))
        (lan.root / "slurm.key").write_bytes(os.urandom(64))
        (lan.root / "slurm.key").chmod(0o600)
        alpha.out("slurmctld", SLURM_CONF=str(conf))
        environ = alpha.environment(SLURM_CONF=str(conf))
        controller = int((alpha.own / "run/ctld.pid").read_text())
        _measure(count, controller, alpha.enter(), beta.enter(), environ, ["many", alpha.address, "26877", str(conf)])


def _spent(pid: int) -> float:
    """Processor seconds of a process so far."""
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


def _measure(
    count: int, controller: int, here: list[str], there: list[str], environ: dict[str, str], where: list[str]
) -> None:
    """`here` and `there` are what commands of the controller's machine and of the nodes' begin with."""
    python = [sys.executable, "-c"]
    bounds = [1 + count * part // PROCESSES for part in range(PROCESSES + 1)]
    # At a site the nodes have processors of their own; here they get those that slurmctld leaves.
    nodes = [
        subprocess.Popen(
            [*there, "nice", "-n", "10", *python, _AS_NODES, str(first), str(last), *where],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for first, last in pairwise(bounds)
    ]
    for process in nodes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    probe = subprocess.Popen([*here, *python, _PROBE], env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert probe.stdout is not None
        probe.stdout.readline()
        began, before, theirs = time.monotonic(), _spent(controller), -sum(_spent(node.pid) for node in nodes)
        for process in nodes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        answers = [process.stdout.readline().split() for process in nodes if process.stdout is not None]
        seconds, spent = time.monotonic() - began, _spent(controller) - before
        theirs += sum(_spent(node.pid) for node in nodes)
    finally:
        probe.kill()
        for process in nodes:
            process.kill()
    took = [1e3 * float(line) for line in probe.communicate()[0].splitlines() if line.strip()]
    for process in nodes:
        process.communicate()
    registered, refused = (sum(map(int, numbers)) for numbers in zip(*answers, strict=True))
    print(f"{registered} nodes registered within {seconds:.2f} s, {refused} connections refused")
    print(f"processor seconds: slurmctld {spent:.2f}, nodes {theirs:.2f}")
    print(
        f"{len(took)} questions meanwhile: median {median(took):.1f} ms,"
        f" p99 {quantiles(took, n=100)[98]:.1f} ms, longest {max(took):.1f} ms"
    )


if __name__ == "__main__":
    main()
