"""A cluster without processes for tests of commands: the real core and queries behind a real socket, in one thread.

The commands run in the test's own process, with streams of their own.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec import Struct

from spritz.cli.call.context import Context
from spritz.cli.call.entry import call
from spritz.client.channel.handling import Call, Handler
from spritz.client.locate import controller_socket_name
from spritz.controller.api.commands import PLAIN_COMMANDS
from spritz.controller.api.nodes import NodeQueries
from spritz.controller.api.partitions import PartitionQueries
from spritz.controller.api.queue.jobs import JobQueries
from spritz.controller.api.queue.steps import StepQueries
from spritz.controller.api.reservations import ReservationApi
from spritz.model.cluster.settings import Caller
from spritz.model.commands.reservation import CreateReservation, UpdateReservation
from spritz.model.node.record import NodeSample
from spritz.model.queries.configuration import ConfigText, ShowConfig
from spritz.model.queries.daemons import Ping, Pong
from spritz.model.queries.jobs import GetScript, ListJobs
from spritz.model.queries.nodes import ListNodes
from spritz.model.queries.partitions import ListPartitions
from spritz.model.queries.reservations import ListReservations
from spritz.model.queries.steps import ListSteps
from spritz_testing.builders import ALICE, ROOT, World
from tests.unit.client.conversation import serving

PORT = 6817

Main = Callable[[list[str], Context], int]


class _Clock:
    def __init__(self, site: Site) -> None:
        self._site = site

    def now(self) -> float:
        return self._site.world.now

    async def sleep(self, seconds: float) -> None:
        return None


class _Writer:
    is_durable = True

    async def durable(self) -> None:
        return None


class Site:
    """`world` is the cluster; `caller` is who the commands' user is; `run` runs one command."""

    def __init__(self, directory: Path) -> None:
        self.world = World(nodes=4)
        self.caller: Caller = ROOT
        self.scripts: dict[str, bytes] = {}
        #: node whose registration was refused -> why
        self.refusals: dict[str, str] = {}
        self.environ = {"PATH": os.environ["PATH"]}
        self.directory = directory
        self.pairs = [("ClusterName", "site"), ("MaxArraySize", "1001")]

    # -- serving

    def table(self) -> dict[type[Struct], Handler]:
        """Handlers over the world."""
        site = self

        async def script_of(key: str, seconds: float = 0.0) -> bytes:
            return site.scripts[key]

        context: Any = SimpleNamespace(
            machine=SimpleNamespace(),
            identity=SimpleNamespace(caller=lambda call: site.caller),
            clock=_Clock(self),
            writer=_Writer(),
            nodes=SimpleNamespace(
                samples={"n1": NodeSample(name="n1", cpu_load=150, free_memory_mib=5000)},
                refusal=lambda name: site.refusals.get(name, ""),
            ),
            blobs=SimpleNamespace(get=script_of),
            # Records show what they say themselves.
            forecasts=SimpleNamespace(
                of=lambda job, now: job,
                multifactor=False,
                version=0,
                has_planned=lambda name: False,
                is_planned=lambda job: True,
            ),
        )
        # A test may put another world in place before it asks.
        context.machine = _Machine(self)

        def decide(command: Struct, call: Call) -> Struct:
            outcome = site.world.do(command, site.caller)
            reply = outcome.rejection or outcome.reply
            assert isinstance(reply, Struct)
            return reply

        jobs = JobQueries(context)
        return {
            **dict.fromkeys(PLAIN_COMMANDS, decide),
            ListJobs: jobs.list_jobs,
            GetScript: jobs.get_script,
            ListSteps: StepQueries(context).list_steps,
            ListNodes: NodeQueries(context).list_nodes,
            ListPartitions: PartitionQueries(context).list_partitions,
            CreateReservation: decide,
            UpdateReservation: decide,
            ListReservations: ReservationApi(context).list_reservations,
            Ping: lambda request, call: Pong(
                host="here", pid=1, version="25.05.0", software="spritz", started_at=0.0, now=site.world.now
            ),
            ShowConfig: lambda request, call: ConfigText(
                now=site.world.now, pairs=site.pairs, settings=site.world.settings
            ),
        }

    # -- running commands

    def run(self, main: Main, *words: str, stdin: str = "", **environ: str) -> Ran:
        """Run a command in this process."""
        out, err = io.StringIO(), io.StringIO()
        program = main.__module__.rpartition(".")[2]
        context = Context(program, {**self.environ, **environ}, str(self.directory), io.StringIO(stdin), out, err)
        status = call(main, list(words), context)
        return Ran(status, out.getvalue(), err.getvalue())

    def submit(self, caller: Caller = ALICE, **fields: Any) -> int:
        """A job in the queue."""
        return self.world.submit(caller, **fields)

    def running(self, *nodes: str, caller: Caller = ALICE, **fields: Any) -> int:
        """A job that runs."""
        job = self.world.submit(caller, **fields)
        self.world.start(job, *(nodes or ("n1",)))
        return job


class _Machine:
    """The state of whatever world the site has now."""

    def __init__(self, site: Site) -> None:
        self._site = site

    @property
    def state(self) -> Any:
        return self._site.world.state


class Ran:
    """What a command did."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

    @property
    def lines(self) -> list[str]:
        """Lines of standard output."""
        return self.out.splitlines()

    def __repr__(self) -> str:
        return f"Ran({self.status}, {self.out!r}, {self.err!r})"


@contextmanager
def open_site(directory: Path) -> Iterator[Site]:
    """A site that is being served; SLURM_CONF is the caller's to set (`directory`/slurm.conf)."""
    site = Site(directory)
    name = f"site{os.getpid()}x{id(site)}"
    user = "root" if os.getuid() == 0 else str(os.getuid())
    conf = directory / "slurm.conf"
    conf.write_text(f"ClusterName={name}\nSlurmctldHost=localhost\nSlurmctldPort={PORT}\nSlurmUser={user}\n")
    with serving(site.table(), controller_socket_name(name, PORT)):
        yield site
