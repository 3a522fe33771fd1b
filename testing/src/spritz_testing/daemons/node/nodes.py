"""Compute nodes: the real slurmd on a simulated machine, with the faults of that machine.

`slurmd` is the main coroutine of a daemon; `NodeMachine` is what outlives it: the disk, the steps and their
supervisors. Everything that the daemon asks its machine for is answered here, by the table at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from spritz import process_identity
from spritz.client.channel import aio
from spritz.client.errors import ClientError
from spritz.client.trust import membership
from spritz.config.load import load
from spritz.model.commands.cluster import UpdateNode
from spritz.model.commands.job import Done
from spritz.model.node.record import NodeConfig, NodeSample
from spritz.model.node_daemon.launch import Accepted
from spritz.node import agent, cgroup, daemon, dynamic_node, health, hosts, main, settings, spool
from spritz.node.hardware import daemon_cores, gpu_detection
from spritz.node.hardware import detection as hardware
from spritz.node.hardware.detection import Hardware
from spritz.node.hardware.gpu_detection import Device
from spritz.node.launch import build
from spritz.node.launch.affinity import Topology
from spritz.node.metrics import gpu_use
from spritz.node.options import Options
from spritz.node.supervisors import connection as supervisors
from spritz.node.supervisors import leftovers, pool, zygote
from spritz.process_identity import Status
from spritz.runtime import disk
from spritz.runtime.daemon.daemonize import Startup
from spritz.runtime.programs import Failure
from spritz.stepd import processes, record
from spritz_testing.daemons import seam
from spritz_testing.daemons.history import REGISTERED, Acted, Booted, History, Linked
from spritz_testing.daemons.node import files
from spritz_testing.daemons.node.supervisors import SimulatedSupervisor, SimulatedZygote, connect
from spritz_testing.daemons.node.work import StepRun, Task
from spritz_testing.daemons.system import threads
from spritz_testing.daemons.system.machine import USERS, StoryLogger
from spritz_testing.daemons.system.network import SimulatedPipe
from spritz_testing.daemons.system.world import Process

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.client.channel.handling import Call
    from spritz.model.rejection import Rejection
    from spritz.model.resources import NodeCapacity
    from spritz_testing.daemons.system.world import Host


#: Faults that `NodeMachine.for_a_while` sets, as they are without: those of the machine, and of its disk.
_USUAL: dict[str, Any] = {
    "fork_error": 0,
    "start_seconds": None,
    "fails_jobs": False,
    "gpus": None,
    "programs": {},
    "illness": "",
    "reboot_seconds": (20.0, 90.0),
    "disk.error": 0,
    "disk.slow_seconds": 0.0,
}

#: seconds that a program of the site takes: from, to; drawn so that short ones are as likely as long ones
_PROGRAM_SECONDS = 0.005, 2.0

#: users that may run the controller
_OWNERS = frozenset((0, USERS["slurm"]))


T = TypeVar("T")


class NodeMachine:
    """The machine of one or several nodes. Its methods are faults; `history` hears what runs on it."""

    def __init__(self, host: Host, history: History) -> None:
        self.host = host
        self.world = host.world
        self.history = history
        self.random = host.world.random(f"machine {host.name}")
        self.files = files.Files(host)
        #: of slurm.conf: nodes that it serves, CPUs, partitions whose jobs share CPUs
        self.nodes: tuple[str, ...] = ()
        self.cpus = 1
        self.supervisors: list[SimulatedSupervisor] = []
        #: pids of living zygotes
        self.zygotes: set[int] = set()
        #: steps whose processes run
        self.steps: list[StepRun] = []
        #: called with each step that begins on it
        self.on_began: list[Callable[[StepRun], None]] = []
        #: called with each supervisor that comes to one of `supervisors.POINTS`
        self.on_point: list[Callable[[SimulatedSupervisor, str], None]] = []
        #: errno of every fork (ENOMEM, EAGAIN); 0: they succeed
        self.fork_error = 0
        #: how often that happens, of all forks
        self.fork_chance = 1.0
        #: seconds that supervisors need to start a step: from, to; None: as usual
        self.start_seconds: tuple[float, float] | None = None
        #: no process dies of SIGKILL before this time
        self.undying_until = 0.0
        #: nothing runs on it, and its clock goes on
        self.hangs = False
        self._held: list[Process] = []
        #: every task of users fails at once, as where a file system is missing
        self.fails_jobs = False
        #: of slurm.conf
        self.gpu_types: tuple[str, ...] = ()
        #: GPUs that its driver finds; None: those of slurm.conf. Seen with AutoDetect=nvml, when a daemon registers
        self.gpus: int | None = None
        #: programs of the site by path: seconds, and the failure ("": none)
        self.programs: dict[str, tuple[float, str]] = {}
        #: what HealthCheckProgram drains its nodes for; "": it finds no fault
        self.illness = ""
        #: seconds that a reboot by RebootProgram takes: from, to; None: the program fails
        self.reboot_seconds: tuple[float, float] | None = (20.0, 90.0)
        #: called when it is up after RebootProgram: a service manager starts its daemons
        self.on_rebooted: list[Callable[[], None]] = []
        #: when faults end that were set for a while
        self._until: dict[str, float] = {}
        #: of slurm.conf
        self.health_program = ""
        self.controllers: tuple[tuple[str, int], ...] = ()
        host.machine = self
        host.on_power_lost.append(self._lost_power)
        self.world.program = run_program

    # Faults

    def hang(self, seconds: float) -> None:
        """Nothing of it runs for so long; then everything goes on."""
        if self.hangs:
            return
        self.hangs = True
        for process in self.host.processes:
            self.hold(process)
        for task in self._tasks():
            task.pause()
        boots = self.host.boots
        self.world.after(seconds, lambda: self._goes_on() if self.host.boots == boots else None)

    def hold(self, process: Process) -> None:
        """Stop it while the machine hangs."""
        if self.hangs and not process.is_stopped:
            process.stop()
            self._held.append(process)

    def _goes_on(self) -> None:
        self.hangs = False
        held, self._held = self._held, []
        for process in held:
            process.go_on()
        for task in self._tasks():
            task.go_on()

    def for_a_while(self, name: str, value: Any, seconds: float) -> None:
        """Set a fault of this machine or its disk, one of `_USUAL`, and take it back later."""
        until = self._until[name] = max(self.world.now + seconds, self._until.get(name, 0.0))
        self._set(name, value)

        def end() -> None:
            if self.world.now >= self._until[name]:
                self._set(name, _USUAL[name])

        self.world.at(until, end)

    def _set(self, name: str, value: Any) -> None:
        owner: Any = self.files if name.startswith("disk.") else self
        setattr(owner, name.removeprefix("disk."), value)

    def let_none_die(self, seconds: float) -> None:
        """Processes wait in the kernel, and do not die of SIGKILL, for so long."""
        self.undying_until = self.world.now + seconds

    def fork(self) -> int:
        """The errno of a fork; 0: it succeeds."""
        if self.fork_error and self.fork_chance < 1.0 and self.random.random() >= self.fork_chance:
            return 0
        return self.fork_error

    def kill_supervisor(self, *, of_running_step: bool = True) -> bool:
        """SIGKILL to a supervisor, drawn by the seed. False if there is none."""
        found = [one for one in self.supervisors if one.runs_step or not of_running_step]
        if found:
            self.random.choice(found).process.end()
        return bool(found)

    # Programs of the site

    def run_program(self, path: str) -> tuple[float, Failure | None]:
        """Seconds that a program takes here, and its failure."""
        if path == self.health_program and self.illness:
            self._drain()
        usual = _PROGRAM_SECONDS[0] * (_PROGRAM_SECONDS[1] / _PROGRAM_SECONDS[0]) ** self.random.random()
        seconds, problem = self.programs.get(path, (usual, ""))
        return seconds, Failure(f"{path}: {problem}") if problem else None

    def _drain(self) -> None:
        """What HealthCheckProgram does: it lets scontrol drain the node."""
        process = Process(self.host, "scontrol")

        async def ask() -> None:
            log = StoryLogger("scontrol", process)
            request = UpdateNode(names=self.nodes, state="DRAIN", reason=self.illness)
            with contextlib.suppress(ClientError):
                channel = await aio.connect(list(self.controllers), role="command", log=log, owners=_OWNERS)
                await channel.call(request, Done)

        process.loop.run_as(lambda: process.begin(ask()))

    def reboot(self) -> bool:
        """RebootProgram was started. Whether it succeeds: then the machine goes down, with its disk synced, and up."""
        if self.reboot_seconds is None:
            return False
        seconds = self.random.uniform(*self.reboot_seconds)

        def go_down() -> None:
            if self.host.is_up:
                self.files.sync()
                self.host.lose_power()
                self.world.after(seconds, come_up)

        def come_up() -> None:
            if not self.host.is_up:
                self.host.boot()
                for told in list(self.on_rebooted):
                    told()

        self.world.after(self.random.uniform(0.1, 5.0), go_down)
        return True

    def _lost_power(self) -> None:
        self.hangs = False
        self._held.clear()
        self.zygotes.clear()
        for step in list(self.steps):
            step.lose()
        for node in self.nodes:
            self.history.add(Booted(at=self.world.now, node=node))
        self.files.lose_power()

    # Processes

    def _tasks(self) -> list[Task]:
        return [task for step in self.steps for task in step.living()]

    def find(self, pid: int) -> Task | Process | None:
        """A task or a process of this machine."""
        for process in self.host.processes:
            if process.pid == pid:
                return process
        return next((task for task in self._tasks() if task.pid == pid), None)

    def kill(self, pid: int) -> bool:
        """SIGKILL. Whether there is such a process."""
        found = self.find(pid)
        if isinstance(found, Task):
            found.step.signal(signal.SIGKILL)
        elif found is not None and self.undying_until <= self.world.now:
            found.end()
        return found is not None

    @property
    def boot_id(self) -> str:
        return f"boot-{self.host.name}-{self.host.boots}"

    def hardware(self, config: NodeConfig) -> Hardware:
        """What a daemon that serves this node finds here: what is configured."""
        capacity = config.capacity
        shape = Topology(
            sockets=capacity.sockets,
            cores_per_socket=capacity.cores_per_socket,
            threads_per_core=capacity.threads_per_core,
            order=tuple(range(capacity.cpus)),
        )
        return Hardware(
            topology=shape,
            memory_mib=capacity.memory_mib,
            tmp_mib=capacity.tmp_mib,
            uptime_seconds=self.host.monotonic(),
            booted_at=self.host.wall() - self.host.monotonic(),
            boot_id=self.boot_id,
        )


class ObservedAgent(agent.Agent):
    """slurmd's own; the history hears of each order that it accepts, and of each registration of its nodes."""

    def order(self, message: Struct, call: Call | None = None) -> Accepted | Rejection:
        answer = super().order(message, call)
        if isinstance(answer, Accepted):
            _note_order(message, call)
        return answer

    def registered(self, node: str, term: int, ended_jobs: tuple[tuple[int, int], ...] = ()) -> None:
        machine, sender = _machine(), _sender(term, None)
        machine.history.add(Linked(at=machine.world.now, node=node))
        super().registered(node, term, ended_jobs)
        host, pid = ("", 0) if sender is None else (sender.host.name, sender.pid)
        machine.history.add(Acted(at=machine.world.now, host=host, pid=pid, term=term, kind=REGISTERED, node=node))


def _note_order(order: Any, call: Call | None) -> None:
    """An order was accepted here, from its controller or passed on by another node."""
    machine = _machine()
    sender = _sender(order.term, call)
    machine.history.add(
        Acted(
            at=machine.world.now,
            host="" if sender is None else sender.host.name,
            pid=0 if sender is None else sender.pid,
            term=order.term,
            kind="ResumeTasks" if getattr(order, "resume", False) else type(order).__name__,
            node=order.node,
            subject=_subject(order),
            version=getattr(order, "version", 0),
        )
    )


def _sender(term: int, call: Call | None) -> Process | None:
    """The controller's process that gave an order: the peer, or the one that leads with this term."""
    if call is not None and isinstance(call.channel.pipe, SimulatedPipe):
        peer = call.channel.pipe.end.other.process
        if peer.name == "slurmctld":
            return peer
    processes = [process for host in threads.world().hosts.values() for process in host.processes if process.inside]
    return next((process for process in processes if process.inside.context.journal.term == term), None)


def _subject(order: Any) -> str:
    """The job or step of an order, and its life: the same whenever the order is repeated."""
    job = getattr(order, "job", None)
    job_id, life = (
        (job.id, job.restart_count) if job is not None else (order.job_id, getattr(order, "restart_count", 0))
    )
    step = getattr(order, "step_id", None)
    return f"{job_id}{'' if step is None else f'.{step}'} life {life}"


def machine_of(host: Host, history: History) -> NodeMachine:
    """The machine of this host, made once."""
    found: NodeMachine | None = host.machine
    return found if found is not None else NodeMachine(host, history)


def run_program(process: Process, path: str, variables: Mapping[str, str]) -> tuple[float, Failure | None]:
    """As `World.program`: how a program ends on the machine of this process."""
    machine: NodeMachine | None = process.host.machine
    return machine.run_program(path) if machine is not None else (0.01, None)


async def slurmd(process: Process, conf: str, nodes: str, history: History) -> int:
    """Main coroutine of a slurmd for these nodes (a hostlist; "": the one that is named as its host)."""
    machine = machine_of(process.host, history)
    machine.hold(process)
    await asyncio.sleep(0)
    served = settings.own_nodes(load(conf), nodes, process.host.name)
    options = Options(foreground=True, config_file=conf, nodes=nodes)
    return await _serve(process, machine, options, served, None)


async def dynamic_slurmd(process: Process, conf: str, capacity: NodeCapacity, history: History) -> int:
    """Main coroutine of `slurmd -Z` on a machine with this hardware: it waits for the controller to take the node."""
    machine = machine_of(process.host, history)
    machine.hold(process)
    options = Options(foreground=True, config_file=conf, dynamic=True, conf=f"NodeAddr={process.host.address}")
    found = machine.hardware(NodeConfig(name=process.host.name, capacity=capacity))
    own = await in_thread(process, lambda: dynamic_node.introduce(conf, options, found, None))
    return await _serve(process, machine, options, [own], own)


async def in_thread(process: Process, work: Callable[[], T]) -> T:
    """The result of blocking code of a process, which does nothing else meanwhile."""
    done: asyncio.Future[T] = process.loop.create_future()

    def run() -> None:
        try:
            result = work()
        except Exception as error:
            process.loop.call_soon_threadsafe(done.set_exception, error)
        else:
            process.loop.call_soon_threadsafe(done.set_result, result)

    threads.Thread(target=run, name="main").start()
    return await done


async def _serve(
    process: Process, machine: NodeMachine, options: Options, served: Sequence[NodeConfig], own: NodeConfig | None
) -> int:
    conf = options.config_file
    config = load(conf)
    machine.nodes = tuple(node.name for node in served)
    machine.cpus = served[0].capacity.cpus
    gpus = (line for line in served[0].capacity.gres if line.name == "gpu")
    machine.gpu_types = tuple(line.type or "gpu" for line in gpus for _ in range(line.count))
    machine.health_program = config.settings.text("HealthCheckProgram")
    port = int(str(config.settings["SlurmctldPort"]).partition("-")[0])
    machine.controllers = tuple((address, port) for address in config.settings.controller_addresses)
    found = machine.hardware(served[0])
    ours = main._Ours(own, None, False)
    known = main._read(conf, options, found, ours)
    for node in known.nodes.values():
        machine.files.makedirs(node.spool, exist_ok=True)
    served_by = daemon.Daemon(
        options,
        known,
        found,
        StoryLogger("slurmd", process),
        lambda: main._read(conf, options, found, ours, again=True),
        main._owners(known.slurm_user),
    )
    return await served_by.run(Startup(None))


# What stands for functions of the production code


def _machine() -> NodeMachine:
    machine: NodeMachine = threads.world().running.host.machine
    return machine


def _started(found: Task | Process | None) -> int:
    if found is None:
        return -1
    return found.started_ticks if isinstance(found, Task) else found.pid


def _identify(pid: int, **_: Any) -> process_identity.Process:
    return process_identity.Process(pid, _started(_machine().find(pid)))


def _lives(process: process_identity.Process, **_: Any) -> bool:
    return process.started >= 0 and _started(_machine().find(process.pid)) == process.started


def _send(process: process_identity.Process, number: int, **_: Any) -> bool:
    assert number == signal.SIGKILL, "daemons send no other"
    return _lives(process) and _machine().kill(process.pid)


def _status_of(pid: int, **_: Any) -> Status | None:
    found = _machine().find(pid)
    if found is None:
        return None
    return Status("S", found.step.adopted_by if isinstance(found, Task) else 1, _started(found))


def _marked(marker: bytes) -> list[process_identity.Process]:
    directory = marker.partition(b"=")[2].decode()
    tasks = [task for step in _machine().steps if step.directory == directory for task in step.living()]
    return [process_identity.Process(task.pid, task.started_ticks) for task in tasks]


def _children_of(pid: int) -> list[int]:
    """Tasks that a dead supervisor left to its zygote."""
    return [task.pid for step in _machine().steps if step.adopted_by == pid for task in step.living()]


def _name_of(pid: int) -> str:
    found = _machine().find(pid)
    return "" if found is None else "sim" if isinstance(found, Task) else found.name


def _kill_supervisor(directory: str) -> process_identity.Process | None:
    machine = _machine()
    for supervisor in machine.supervisors:
        if supervisor.directory == directory:
            pid = supervisor.process.pid
            machine.kill(pid)
            return process_identity.Process(pid, pid)
    return None


def _devices() -> list[Device]:
    """GPUs that the driver of this machine finds."""
    machine = _machine()
    types = machine.gpu_types[: machine.gpus]
    return [Device(type=kind, files=f"/dev/nvidia{index}", uuid=f"GPU-{index}") for index, kind in enumerate(types)]


def _samples(names: Iterable[str], now: float) -> tuple[NodeSample, ...]:
    return tuple(NodeSample(name=name, cpu_load=100, free_memory_mib=1000, sampled_at=now) for name in names)


def _private_directory(path: str, *, mode: int = 0o700) -> str:
    files.here().makedirs(path, exist_ok=True)
    return path


def _sync_directory(path: str) -> None:
    here = files.here()
    descriptor = here.open(path, 0)
    try:
        here.fsync(descriptor)
    finally:
        here.close(descriptor)


class _Disk:
    """Stands for the module `runtime.disk`: its functions on the simulated disk."""

    private_directory = staticmethod(_private_directory)
    write_atomically = staticmethod(seam.rebound(disk.write_atomically, os=files.Os(), sync_directory=_sync_directory))


class _Socket:
    """Stands for the module `socket`: who this machine is."""

    @staticmethod
    def gethostname() -> str:
        return threads.world().running.host.name

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


class _Asyncio:
    """Stands for the module `asyncio` in the daemon, which starts RebootProgram with it."""

    @staticmethod
    async def create_subprocess_exec(*words: str, **_: Any) -> _Asyncio:
        child = _Asyncio()
        child.returncode = 0 if _machine().reboot() else 1
        return child

    returncode = 0

    async def wait(self) -> int:
        await asyncio.sleep(0.05)
        return self.returncode

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


class _NoErrors:
    """Stands for the module `sys`: what is printed there is for people."""

    stderr = io.StringIO()


class _Platform:
    """Stands for the module `platform`: the same on every machine that simulates."""

    system = staticmethod(lambda: "Linux")
    release = staticmethod(lambda: "6.1.0")
    version = staticmethod(lambda: "#1 SMP")
    machine = staticmethod(lambda: "x86_64")


def _replacements() -> list[tuple[object, object]]:
    return [
        (zygote.Zygote, SimulatedZygote),
        (spool.connect, connect),
        (supervisors.kill_supervisor, _kill_supervisor),
        (hardware.uptime_seconds, lambda root="": threads.world().running.host.monotonic()),
        (hardware.disk_mib, lambda path: 0),
        (health.samples, _samples),
        (gpu_detection.nvml_devices, _devices),
        (daemon._raise_files_limit, lambda: (1024, 4096)),
        (daemon_cores.run_on, lambda cpus, pids: None),
        (process_identity.identify, _identify),
        (process_identity.exists, _lives),
        (process_identity.lives, _lives),
        (process_identity.send, _send),
        (process_identity.status_of, _status_of),
        (process_identity.boot_id, lambda **_: _machine().boot_id),
        (record.this_boot, lambda: _machine().boot_id),
        (processes.marked, _marked),
        (processes.in_sessions, lambda leaders: []),
        (processes.children_of, _children_of),
        (processes.descendants, lambda pid: []),
        (processes.name_of, _name_of),
        (processes.described, lambda pid: f"{pid} ({_name_of(pid)})"),
        (processes.memory_bytes, lambda pid: (0, 1 << 20, 0)),
        (cgroup.missing, lambda plugin, controllers: ""),
        (cgroup.version, lambda kinds: ""),
        (cgroup.prepare_memory, lambda name, kinds: ""),
        (cgroup.prepare_devices, lambda name, kinds: ""),
        (cgroup.prepare_cores, lambda name, kinds: ""),
        (cgroup.prepare_tree, lambda name, kinds: ""),
    ]


def _names() -> list[tuple[ModuleType, str, object]]:
    os_here, socket_here = files.Os(), _Socket()
    with_os = (agent, build, cgroup, daemon, gpu_use, hosts, leftovers, pool, record, spool, supervisors, main)
    with_socket = (daemon, main, membership, settings, spool)
    names: list[tuple[ModuleType, str, object]] = [(module, "os", os_here) for module in with_os]
    names += [(module, "socket", socket_here) for module in with_socket]
    names += [(module, "open", files.open_here) for module in (spool, record)]
    names += [(spool, "disk", _Disk), (spool, "shutil", files.Shutil), (hosts, "disk", _Disk)]
    names.append((daemon, "Agent", ObservedAgent))
    names += [(dynamic_node, "sys", _NoErrors), (daemon, "platform", _Platform), (daemon, "asyncio", _Asyncio())]
    return names


seam.MORE.append(_replacements)
seam.NAMES.append(_names)
