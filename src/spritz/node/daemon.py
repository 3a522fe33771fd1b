"""The slurmd process: adopts running steps, connects to the controller, serves, and stops without harm to jobs.

Source: slurmd(8) SIGNALS; slurm.conf(5) SlurmdPort, HealthCheckInterval.
"""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import shlex
import signal
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from spritz import SLURM_VERSION, __version__
from spritz.client.channel.admission import Limits
from spritz.client.channel.aio import Address, PersistentChannel, connect
from spritz.client.channel.leader import must_lead, watch_leader
from spritz.client.channel.server import Server
from spritz.client.errors import RemoteError
from spritz.client.locate import controller_socket_name
from spritz.client.relay.peers import Peers
from spritz.client.trust.membership import known_as
from spritz.model.errors import SpritzError
from spritz.model.node.machines import ConfigurationFiles, FetchConfiguration
from spritz.model.node_daemon.launch import (
    Accepted,
    ForwardOrder,
    PingNode,
    RebootNode,
    ReloadNode,
    SignedLaunch,
    StopDaemon,
)
from spritz.model.node_daemon.reports import HEARTBEAT_SECONDS, NodeSamples, Registered, RegisterNode
from spritz.model.queries.daemons import Ping, Pong
from spritz.model.rejection import Rejection
from spritz.node import health, hosts
from spritz.node.agent import Agent
from spritz.node.enforcement import EARLIER, enforcement_by_resource
from spritz.node.forwarding import Forwarder
from spritz.node.hardware.daemon_cores import run_on
from spritz.node.hardware.detection import disk_mib
from spritz.node.hardware.feature_helpers import FeatureHelpers
from spritz.node.hardware.gpu_detection import fitted, nvml_devices
from spritz.node.metrics.gpu_use import GpuUse
from spritz.node.metrics.job_mapping import gpus_of, write_mapping
from spritz.node.metrics.job_use import JobUse
from spritz.node.supervisors.zygote import Zygote
from spritz.runtime import log as runtime_log
from spritz.runtime import tls
from spritz.runtime.clock import SystemClock
from spritz.runtime.programs import run_programs
from spritz.runtime.sockets import AddressInUse, tcp_socket
from spritz.runtime.tasks import END_SECONDS, STOP_SECONDS, Supervisor, must_end
from spritz.runtime.watchdog import Watchdog
from spritz.runtime.worker import Worker
from spritz.timeouts import within
from spritz.wire.credential import BadCredential

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Struct

    from spritz.client.channel.channel import Channel
    from spritz.client.channel.handling import Call, Handler
    from spritz.client.joining.member import Member
    from spritz.client.relay.relay import Relay
    from spritz.model.node.record import GpuSample
    from spritz.model.resources import NodeCapacity
    from spritz.node.hardware.detection import Hardware
    from spritz.node.options import Options
    from spritz.node.settings import DaemonSettings, NodeSettings
    from spritz.runtime.daemon.daemonize import Startup
    from spritz.runtime.log import Logger

#: Seconds between attempts to reach the controller: bounds the delay of starts after its return.
RECONNECT_SECONDS_MAX = 1.0
#: Seconds that reading the configuration again may take.
READ_SECONDS = 60.0
#: Seconds after which a daemon without a controller serves anyway: running jobs need it.
FIRST_CONNECTION_SECONDS = 2.0

#: How many HealthCheckPrograms run at once, if this daemon has many nodes.
CHECKS_AT_ONCE = 16

#: Seconds to reach the next node for a forwarded order. The controller has another path, so a longer wait is no use.
BRANCH_SECONDS = 2.0

#: The port answers pings and accepts forwarded orders; open files are for steps.
PORT_LIMITS = Limits(connections=200)

_IGNORED_SIGNALS = (signal.SIGUSR1, signal.SIGTSTP, signal.SIGXCPU, signal.SIGQUIT, signal.SIGALRM, signal.SIGPIPE)


class Daemon:
    """One slurmd process. `reread` returns new settings, or raises SpritzError and changes nothing."""

    def __init__(
        self,
        options: Options,
        settings: DaemonSettings,
        hardware: Hardware,
        log: Logger,
        reread: Callable[[], DaemonSettings],
        owners: frozenset[int],
        member: Member | None = None,
        fetched: Callable[[ConfigurationFiles], None] | None = None,
    ) -> None:
        #: set if the controller is on another machine
        self._member = member
        #: the certificate of the port, where other machines connect to it
        self._certificate: tls.PortCertificate | None = None
        #: stores a configuration sent by the controller; None: the administrator maintains the files
        self._fetched = fetched
        self._options = options
        self._settings = settings
        self._hardware = hardware
        self._log = log
        self._reread = reread
        self._owners = owners
        self._clock = SystemClock()
        #: CPUs for the daemon; empty: all
        self._cpus: tuple[int, ...] = ()
        self._reader = Worker("configuration")
        #: queries drivers and file systems, which may hang
        self._looks = Worker("hardware")
        self._gpu_use, self._gpu_looks = GpuUse(), Worker("gpus")
        self._gpus: tuple[GpuSample, ...] = ()
        self._job_use = JobUse()
        self._looking = False
        self._started_at = self._clock.now()
        self._stopping = asyncio.Event()
        self._connected = asyncio.Event()
        #: HealthCheckProgram has run once: nodes register after it
        self._checked = asyncio.Event()
        self._checks = asyncio.Semaphore(CHECKS_AT_ONCE)
        #: own nodes that the controller refuses, and why: logged when it changes, not on every attempt
        self._refused: dict[str, str] = {}
        #: reboots that were started: node, and the time of the order
        self._reboots: set[tuple[str, float]] = set()
        self._helpers = FeatureHelpers(log)
        #: node -> the last order after which it changed, or failed to change, features without a reboot
        self._changed_for: dict[str, float] = {}

    async def run(self, startup: Startup) -> int:
        """Serve until stopped. Raises SpritzError if it cannot begin."""
        namespaces = self._settings.private_hosts or any(
            node.setup.container is not None for node in self._settings.nodes.values()
        )
        # Before the zygote starts: it and the supervisors that it forks inherit these cores.
        self._keep_to_own_cores(())
        zygote = self._zygote = Zygote(self._log_descriptor(), _raise_files_limit(), own_namespaces=namespaces)
        zygote.start()
        async with Supervisor(self._contained_failure, end_seconds=END_SECONDS) as tasks:
            self._tasks = tasks
            self._agent = Agent(
                self._settings.nodes,
                self._settings.hooks,
                zygote=zygote,
                tasks=tasks,
                clock=self._clock,
                log=self._log,
            )
            table = self._table()
            served: dict[type[Struct], Handler] = {Ping: self._pong, ForwardOrder: self._forwarder.from_node}
            try:
                async with Server(served, role="slurmd", log=self._log, limits=PORT_LIMITS) as server:
                    if self._member is not None:
                        self._secure(server, self._member)
                    await self._listen(server)
                    await self._write_hosts()
                    self._log_confinement()
                    # Before the first registration: a step that is missing there counts as lost, and its job is
                    # requeued although the step still runs.
                    adopted = self._agent.adopt(self._boot_id)
                    self._watch_signals()
                    relay = self._begin_relay(tasks)
                    await self._follow_controller(tasks, table, relay, adopted, startup)
                    if relay is not None:
                        relay.close()
            finally:
                self._forwarder.close()
                self._agent.release()
                tasks.cancel_all()
        self._log.info("daemon.stopped", unreported=len(self._agent.reporter))
        return 0

    async def _follow_controller(
        self,
        tasks: Supervisor,
        table: dict[type[Struct], Handler],
        relay: Relay | None,
        adopted: int,
        startup: Startup,
    ) -> None:
        """Keep a connection to the controller until stopped. `adopted`: number of steps of an earlier process."""
        async with PersistentChannel(
            self._controller_addresses,
            role="slurmd",
            log=self._log,
            table=table,
            on_connect=self._register,
            owners=self._owners,
            ceiling_seconds=RECONNECT_SECONDS_MAX,
            secure=self._member.secure() if self._member is not None else None,
            each=len(self._settings.controllers) > 1,
        ) as link:
            self._link = link
            if self._member is not None:
                self._member.link = link
                tasks.keep(self._member.keep_certified(link, self._log), name="certificate")
            tasks.keep(self._beat(link), name="heartbeat")
            tasks.keep(self._check_health(), name="health")
            if len(self._settings.controllers) > 1:
                abandon = relay.abandon if relay is not None else None
                tasks.keep(watch_leader(link, self._clock, self._log, abandon), name="leader")
            await self._wait_for_controller()
            self._log.info("daemon.started", nodes=len(self._settings.nodes), adopted=adopted, version=__version__)
            startup.serves()
            with Watchdog(self._log, startup.alive):
                await self._stopping.wait()
            must_end(STOP_SECONDS)

    def _log_confinement(self) -> None:
        """Log what holds jobs to their resources, and what slurm.conf asks for that cannot be held."""
        if self._settings.unconfined:
            self._log.warning(
                "cgroup.unavailable", key="ConstrainRAMSpace", detail="memory limits are held by sampling"
            )
        for key, detail in self._settings.unheld:
            self._log.warning("cgroup.unavailable", key=key, detail=detail)
        version, held = self._settings.cgroup_version, self._held()
        if version in EARLIER and "cgroup" in held.values():
            self._log.warning("cgroup.version", version=version, detail=EARLIER[version])
        self._log.info("daemon.confines", root=os.geteuid() == 0, **held)

    def _held(self) -> dict[str, str]:
        """Resource -> what enforces its limit on our nodes, which are alike."""
        setup = next(iter(self._settings.nodes.values())).setup
        return enforcement_by_resource(setup, self._settings.cgroup_version)

    # Connections

    async def _listen(self, server: Server) -> None:
        ports = {node.config.port: node.config for node in self._settings.nodes.values()}
        for port, config in ports.items():
            await server.listen_socket(node_socket(config.address, port))

    def _secure(self, server: Server, member: Member) -> None:
        """Accept forwarded orders from nodes on other machines, and connections of step supervisors there."""
        certificate = self._certificate = tls.PortCertificate(
            lambda: member.membership.keys(member.cluster, tls.NODE, self._clock.now()), self._log
        )
        member.port = certificate
        self._peers = Peers(member.cluster, member.secure(tls.NODE, tls.STREAMS), self._tasks, self._log)
        server.secure(certificate.context, self._peers)
        self._tasks.keep(certificate.keep(self._clock), name="certificate.port")

    async def _connect(self, address: str, port: int) -> Channel:
        """A channel to another node's daemon, for forwarding orders."""
        secure = self._member.secure("node") if self._member is not None else None
        channel = await connect(
            [(address, port)],
            role="slurmd",
            log=self._log,
            owners=self._owners,
            timeout=BRANCH_SECONDS,
            secure=secure,
        )
        channel.pipe.expect_acknowledgements(BRANCH_SECONDS)
        return channel

    def _begin_relay(self, tasks: Supervisor) -> Relay | None:
        """A relay for users of this machine to a controller elsewhere; None if all controllers are here. One of several
        controllers serves them itself while it runs.
        """
        if self._member is None:
            return None
        relay = self._member.relay(tasks, self._log, self._settings.database, at_once=False)
        relay.peers = self._peers
        return relay

    def _controller_addresses(self) -> list[Address]:
        settings = self._settings
        if self._member is not None:
            return list(self._member.addresses)
        local = controller_socket_name(settings.cluster_name, settings.controller_port)
        return [local, *((address, settings.controller_port) for address in settings.controllers)]

    async def _wait_for_controller(self) -> None:
        try:
            async with within(FIRST_CONNECTION_SECONDS):
                await self._connected.wait()
        except TimeoutError:
            if self._checked.is_set():
                self._log.info("controller.away", detail="serving; registration follows when it answers")
            else:
                self._log.info("health.runs", detail="serving; registration follows HealthCheckProgram")

    async def _register(self, channel: Channel) -> None:
        """Register every node, pipelined; nodes that the controller does not know are logged and left out."""
        await self._wait_for_check(channel)
        if len(self._settings.controllers) > 1:
            await must_lead(channel)
        known = await self._register_nodes(channel, tuple(self._settings.nodes))
        if not known:
            raise SpritzError("the controller knows none of the nodes of this slurmd")
        self._agent.connected(channel)
        self._connected.set()

    async def _wait_for_check(self, channel: Channel) -> None:
        """Commands of HealthCheckProgram are relayed to the controller that leads: without it they would wait for the
        registration, which waits for them.
        """
        if self._member is None or len(self._settings.controllers) == 1:
            await self._checked.wait()
            return
        await must_lead(channel)
        self._member.registers = True
        try:
            await self._checked.wait()
        finally:
            self._member.registers = False

    async def _register_nodes(self, channel: Channel, names: tuple[str, ...]) -> int:
        """Returns how many of them the controller knows."""
        requests = await asyncio.gather(*map(self._registration, names))
        answers = await asyncio.gather(
            *(
                channel.call(request, Registered, timeout=60.0, arrived=partial(self._registered, request.name))
                for request in requests
            ),
            return_exceptions=True,
        )
        known = 0
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Registered):
                known += 1
                self._refused.pop(request.name, None)
                for message in answer.messages:
                    self._log.info("node.registered", node=request.name, message=message)
            elif isinstance(answer, RemoteError):
                if self._refused.get(request.name) != answer.message:
                    self._refused[request.name] = answer.message
                    self._log.error("node.refused", node=request.name, reason=answer.message)
                if answer.code == "ESLURM_INVALID_NODE_NAME":
                    self._agent.dismissed(request.name)
            else:
                raise answer
        return known

    def _registered(self, name: str, answer: Registered) -> None:
        """Before the launches that follow: what the controller has ended here may still have their resources."""
        self._agent.registered(name, answer.term, answer.ended_jobs)

    @property
    def _boot_id(self) -> str:
        """-b: as if the machine had booted when this daemon started."""
        known = self._hardware.boot_id
        return f"{known}.{self._started_at}" if self._options.boot_now else known

    async def _registration(self, name: str) -> RegisterNode:
        config, helpers = self._settings.nodes[name].config, self._settings.helpers.of_node(name)
        active = await self._helpers.active(helpers, self._variables(name)) if helpers.helpers else ()
        now = self._clock.now()
        term, term_seconds = self._agent.heard(name)
        return RegisterNode(
            name=name,
            capacity=await self._capacity(name),
            booted_at=self._started_at if self._options.boot_now else self._hardware.booted_at,
            boot_id=self._boot_id,
            daemon_started_at=self._started_at,
            version=SLURM_VERSION,
            operating_system=f"{platform.system()} {platform.release()} {platform.version()}",
            architecture=platform.machine(),
            hostname=known_as(self._member.membership if self._member is not None else None),
            address=config.address,
            port=config.port,
            running=self._agent.running(name),
            jobs=self._agent.lives(name),
            sample=health.samples([name], now)[0],
            spool_id=self._agent.spool_id(name),
            features_changeable=tuple(helpers.helpers) if self._settings.helpers.helpers else None,
            features_active=active,
            changed_for=self._changed_for.get(name, 0.0),
            extra=self._options.extra,
            term=term,
            term_seconds=term_seconds,
            last_job_id=self._agent.last_job_id(name),
            runs=self._agent.runs(name),
        )

    def _variables(self, node: str) -> dict[str, str]:
        """Variables of programs that run for one node."""
        path = os.environ.get("PATH", "/usr/bin:/bin")
        return {"PATH": path, "SLURMD_NODENAME": node, "SLURM_CONF": self._settings.path}

    async def _capacity(self, name: str) -> NodeCapacity:
        """Detected hardware. Nodes that share the machine, or may declare anything, report what is configured."""
        configured = self._settings.nodes[name].config.capacity
        if self._settings.config_overrides or self._settings.private_hosts or len(self._settings.nodes) > 1:
            return configured
        shape = self._hardware.topology
        gres = configured.gres
        if self._settings.nodes[name].finds_gpus:
            gpus = fitted(gres, await self._looks.run(nvml_devices))
            self._agent.know_gpus(name, gpus)
            gres = gpus.gres
        return structs.replace(
            configured,
            cpus=self._hardware.cpus if configured.cpus > self._hardware.cpus else configured.cpus,
            sockets=shape.sockets,
            cores_per_socket=shape.cores_per_socket,
            threads_per_core=shape.threads_per_core,
            memory_mib=self._hardware.memory_mib,
            tmp_mib=await self._looks.run(disk_mib, self._settings.tmp_fs),
            gres=gres,
        )

    # Requests

    def _table(self) -> dict[type[Struct], Handler]:
        table = self._agent.table()
        launches = None
        if self._member is not None:
            from spritz.node.credentials import LAUNCHES, Launches

            launches = self._launches = Launches(self._member.membership, self._member.cluster, self._clock)
            plain = {kind: _of_this_machine(table[kind]) for kind in LAUNCHES} if self._member.has_controller else {}
            table = {kind: handler for kind, handler in table.items() if kind not in LAUNCHES} | plain
            table[SignedLaunch] = self._signed_launch
        self._forwarder = Forwarder(
            self._agent.order,
            self._connect,
            self._connected.is_set,
            self._owners,
            launches,
            self._started_at,
            self._log,
        )
        return {
            **table,
            ForwardOrder: self._forwarder.from_controller,
            PingNode: self._ping,
            ReloadNode: self._reload_order,
            RebootNode: self._reboot_order,
            StopDaemon: self._stop_order,
        }

    def _signed_launch(self, request: SignedLaunch, call: Call) -> Accepted | Rejection:
        try:
            launch = self._launches.open(request)
        except BadCredential as error:
            reason = f"{error.message} ({error.hint})" if error.hint else error.message
            self._log.error("launch.refused", kind=request.kind[:60], reason=reason, peer=call.channel.pipe.peer_name)
            return Rejection(code="ESLURM_INVALID_JOB_CREDENTIAL", message=reason)
        return self._agent.order(launch, call)

    def _pong(self, request: Ping, call: Call) -> Pong:
        return Pong(
            host=socket.gethostname(),
            pid=os.getpid(),
            version=SLURM_VERSION,
            software=__version__,
            started_at=self._started_at,
            now=self._clock.now(),
            mode="slurmd",
        )

    def _ping(self, request: PingNode, call: Call) -> NodeSamples:
        self._agent.hear(request.term)
        return self._samples()

    async def _reload_order(self, request: ReloadNode, call: Call) -> Accepted:
        if self._fetched is not None:
            files = await self._link.call(FetchConfiguration(), ConfigurationFiles)
            await self._reader.run(self._fetched, files, seconds=READ_SECONDS)
        await self._reload()
        # The controller may know the nodes now that it refused, and want more of others than they have.
        self._tasks.spawn_contained(self._register_again(tuple(sorted(self._settings.nodes))), name="register")
        return Accepted()

    async def _register_again(self, names: tuple[str, ...]) -> None:
        channel = await self._link.channel(timeout=FIRST_CONNECTION_SECONDS)
        await self._register_nodes(channel, names)

    def _reboot_order(self, request: RebootNode, call: Call) -> Accepted:
        order = (request.node, request.ordered_at)
        if order not in self._reboots:
            self._reboots.add(order)
            self._tasks.spawn_contained(self._change(request), name="reboot")
        return Accepted()

    async def _change(self, request: RebootNode) -> None:
        """Change features, and reboot for them if necessary. A helper's failure shows at once."""
        node, features, helpers = request.node, request.features, self._settings.helpers.of_node(request.node)
        if features:
            self._log.info("feature.activating", node=node, features=",".join(features))
            done = await self._helpers.activate(helpers, features, self._variables(node))
            if not done or all(helpers.helpers[name].rebootless for name in features):
                self._changed_for[node] = request.ordered_at
                await self._register_again((node,))
                return
        await self._reboot(node)

    async def _reboot(self, node: str) -> None:
        """Start RebootProgram, which outlives this process. Its failure shows when ResumeTimeout has passed."""
        words = shlex.split(self._settings.reboot_program)
        if not words:
            self._log.error("reboot.failed", node=node, error="RebootProgram is not configured here")
            return
        self._log.info("reboot.began", node=node, program=words[0])
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=self._variables(node),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            self._log.error("reboot.failed", node=node, error=error.strerror or "")
            return
        if self._settings.ends_for_reboot:
            self._stopping.set()
        if await process.wait():
            self._log.error("reboot.failed", node=node, exit_status=process.returncode)

    def _stop_order(self, request: StopDaemon, call: Call) -> Accepted:
        self._log.info("daemon.terminating", by="controller")
        self._stopping.set()
        return Accepted()

    # Health

    def _samples(self) -> NodeSamples:
        samples = health.samples(self._settings.nodes, self._clock.now())
        if self._gpus and len(samples) == 1:
            samples = (structs.replace(samples[0], gpus=self._gpus),)
        used = self._job_use.by_node
        if used:
            samples = tuple(structs.replace(sample, jobs=used.get(sample.name, ())) for sample in samples)
        return NodeSamples(samples=samples)

    async def _beat(self, link: PersistentChannel) -> None:
        while True:
            await self._clock.sleep(HEARTBEAT_SECONDS)
            link.notify(self._samples())
            if self._has_use and not self._looking:
                self._tasks.spawn_contained(self._look_at_use(), name="use.look")

    @property
    def _has_use(self) -> bool:
        """Whether `_look_at_use` has anything to look at."""
        return self._settings.measures_jobs or self._gpu_use.present or bool(self._settings.job_mapping_directory)

    async def _look_at_use(self) -> None:
        """Figures of jobs and GPUs for the next heartbeat, and dcgm-exporter's files. Nothing else waits for a hanging
        driver.
        """
        self._looking = True
        try:
            if self._settings.measures_jobs:
                measured = await self._agent.measure_all()
                await self._gpu_looks.run(self._job_use.take, measured, self._clock.monotonic())
            if self._gpu_use.present and len(self._settings.nodes) == 1:
                self._gpus = await self._gpu_looks.run(self._gpu_use.read)
            directory = self._settings.job_mapping_directory
            if directory and len(self._settings.nodes) == 1:
                name = next(iter(self._settings.nodes))
                await self._gpu_looks.run(write_mapping, directory, gpus_of(name, self._agent.jobs(name)))
        except OSError as error:
            self._log.error("gpu_jobs.not_written", detail=str(error))
        finally:
            self._looking = False

    async def _check_health(self) -> None:
        # Before the first registration, whatever HealthCheckNodeState says: a faulty node would get jobs.
        if self._settings.hooks.health_program and self._settings.hooks.health_seconds:
            await asyncio.gather(*map(self._check_node, self._settings.nodes))
        self._checked.set()
        began = self._clock.monotonic()
        while True:
            interval = self._settings.hooks.health_seconds if self._settings.hooks.health_program else 0.0
            await self._clock.sleep(max(0.0, began + (interval or 60.0) - self._clock.monotonic()))
            began = self._clock.monotonic()
            if interval:
                await self._check_round(interval)

    async def _check_round(self, interval: float) -> None:
        states = self._settings.hooks.health_states
        local_nodes, every = list(self._settings.nodes), list(self._settings.addresses)
        async with Supervisor() as checks:
            for name, pause in health.pauses(states, local_nodes, every, interval):
                await self._clock.sleep(pause)
                capacity = self._settings.nodes[name].config.capacity
                if health.wants_check(states, health.state_of(capacity, name, self._agent.jobs(name))):
                    checks.spawn(self._check_node(name), name="health.check")

    async def _check_node(self, name: str) -> None:
        """The program itself drains the node if it finds a fault; a failure to run it is only logged, as in Slurm."""
        async with self._checks:
            hooks = self._settings.hooks
            failure = await run_programs((hooks.health_program,), self._variables(name), hooks.health_timeout_seconds)
        if failure is not None:
            self._log.error("health.failed", node=name, **failure._asdict())

    # Start, reload and stop

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._terminated, number)
        loop.add_signal_handler(
            signal.SIGHUP, lambda: self._tasks.spawn_contained(self._reload(), name="configuration")
        )
        loop.add_signal_handler(signal.SIGUSR2, runtime_log.reopen)
        for number in _IGNORED_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _terminated(self, number: int) -> None:
        self._log.info("daemon.terminating", signal=signal.Signals(number).name)
        self._stopping.set()

    async def _reload(self) -> None:
        try:
            settings = await self._reader.run(self._reread, seconds=READ_SECONDS)
        except SpritzError as error:
            self._log.error("config.refused", detail=error.message, hint="the old configuration stays in force")
            return
        # Only the controller takes a node out of service: one that has gone from the file is served until it says so.
        nodes = {name: self._with_directories_kept(node) for name, node in settings.nodes.items()}
        held = self._held()
        self._settings = structs.replace(settings, nodes=self._settings.nodes | nodes)
        self._agent.configure(nodes, settings.hooks)
        if self._held() != held:
            self._log_confinement()
        if self._keep_to_own_cores((self._zygote.pid,) if self._zygote.pid else ()):
            self._agent.renew_supervisors()
        await self._write_hosts()
        if self._certificate is not None:
            await self._certificate.renew()
        self._log.info("config.read", path=settings.path)

    def _with_directories_kept(self, node: NodeSettings) -> NodeSettings:
        """Private directories keep the settings that were checked, and made possible, at the start."""
        before = self._settings.nodes.get(node.config.name)
        if before is None or before.setup.container == node.setup.container:
            return node
        self._log.warning(
            "config.later", key="JobContainerType", detail="private directories change when slurmd restarts"
        )
        return structs.replace(node, setup=structs.replace(node.setup, container=before.setup.container))

    def _keep_to_own_cores(self, others: tuple[int, ...]) -> bool:
        """Run this process and `others`, with their children, on the cores reserved for the system.

        False if nothing has changed.
        """
        cpus = self._settings.own_cpus
        if cpus == self._cpus:
            return False
        try:
            run_on(cpus or self._hardware.topology.order, (os.getpid(), *others))
        except OSError as error:
            self._log.warning("cores.unbound", cpus=",".join(map(str, cpus)), error=error.strerror)
        else:
            self._log.info("daemon.cores", cpus=",".join(map(str, cpus)) or "all")
        self._cpus = cpus
        return True

    async def _write_hosts(self) -> None:
        """Runs in the background, since it resolves host names."""
        if self._settings.private_hosts:
            spools = [node.spool for node in self._settings.nodes.values()]
            await self._reader.run(hosts.write, spools, self._settings.addresses)

    def _log_descriptor(self) -> int | None:
        path = self._options.log_file or self._settings.log_file
        if not path:
            return None
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _contained_failure(self, name: str, error: Exception) -> None:
        self._log.error("task.failed", exception=error, task=name)


def _raise_files_limit() -> tuple[int, int]:
    """Raise the limit of open files to its maximum (one per step). Returns the previous limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    return before


def _of_this_machine(handler: Handler) -> Handler:
    """Adds a check for launches by a controller on this machine: only the kernel identifies that one."""

    def handle(request: Any, call: Call) -> Any:
        if not call.channel.pipe.is_same_machine:
            return Rejection(code="ESLURM_INVALID_JOB_CREDENTIAL", message="a launch from another machine needs one")
        return handler(request, call)

    return handle


def node_socket(address: str, port: int) -> socket.socket:
    """A listening socket for a node at this NodeAddr. Raises SpritzError."""
    try:
        return tcp_socket(_own_address(address), port)
    except AddressInUse as error:
        raise SpritzError(
            f"Unable to bind listen port ({port}): Address already in use",
            hint="another slurmd of this node may be running; SlurmdPort or Port= sets another port",
        ) from error
    except OSError as error:
        raise SpritzError(f"Unable to bind listen port ({port}): {error.strerror or error}") from error


def _own_address(address: str) -> str:
    """Nodes with a loopback address listen there only; others everywhere."""
    return address if address.startswith("127.") or address in ("localhost", "::1") else ""
