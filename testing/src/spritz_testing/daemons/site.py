"""A simulated cluster: its hosts, its slurm.conf, and its daemons as units."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from spritz.model.resources import NodeCapacity
from spritz_testing.daemons import seam
from spritz_testing.daemons.controller import checks_inside, copies, releases
from spritz_testing.daemons.controller.controllers import controller_unit
from spritz_testing.daemons.controller.standby import Standbys
from spritz_testing.daemons.history import History
from spritz_testing.daemons.node.nodes import NodeMachine, dynamic_slurmd, machine_of, slurmd
from spritz_testing.daemons.system import disk_calls
from spritz_testing.daemons.system.disk import Disk
from spritz_testing.daemons.system.restoring import Operator
from spritz_testing.daemons.units import Unit

if TYPE_CHECKING:
    from pathlib import Path

    from spritz_testing.daemons.accounting import Accounting
    from spritz_testing.daemons.clients.users import Users
    from spritz_testing.daemons.plan import Scale
    from spritz_testing.daemons.system.world import Host, World

seam.NAMES += [disk_calls.names, checks_inside.names, copies.names]
seam.MORE.append(releases.table)

_CONF = """\
ClusterName=sim
{controllers}
SlurmUser=slurm
SlurmdUser=root
StateSaveLocation={root}/{controller}/state
SlurmdSpoolDir={root}/%n/spool
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
ReturnToService=2
MinJobAge={remembered}
KillWait=10
SlurmdTimeout=120
TreeWidth={tree_width}
TaskPlugin=task/affinity
MpiParams=ports=12000-12005
HealthCheckProgram=/site/health
RebootProgram=/site/reboot
HealthCheckInterval=60
DefMemPerCPU=500
PriorityType=priority/basic
SchedulerParameters=enable_user_top{passes}
MaxNodeCount={most_nodes}
Licenses={licenses}
{more}
NodeName=n[1-{nodes}] NodeAddr=10.0.1.[1-{nodes}] CPUs=8 RealMemory=16000 Gres=gpu:4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES DefaultTime=60 PriorityTier={tiers[main]} PreemptMode=OFF
PartitionName=shared Nodes=ALL OverSubscribe=YES:2 DefaultTime=60 PriorityTier={tiers[shared]} PreemptMode={turns}
PartitionName=low Nodes=ALL DefaultTime=60 PriorityTier={tiers[low]}
PartitionName=high Nodes=ALL DefaultTime=60 PriorityTier={tiers[high]} MaxNodes={high_nodes} PreemptMode=OFF
"""

#: PriorityTier of each partition, and the most nodes of a job in `high`
TIERS = {"main": 5, "shared": 5, "low": 1, "high": 9}
HIGH_NODES_MAX = 2

#: What quick passes leave to full ones, whose plans are stale by the time they are applied: nearly nothing on a cluster
#: of this size by default.
_PASSES = "", "", ",default_queue_depth=1", ",default_queue_depth=1", ",default_queue_depth=3", ",defer"

#: With `Scale.slow_passes`: full passes follow each other, and quick ones are rare.
_RARE_QUICK = "5000000,default_queue_depth=1", "30000000"
_SLOW_PASSES = tuple(f",defer,bf_interval=1,sched_min_interval={rest}" for rest in _RARE_QUICK)

#: With `Scale.slow_passes`: most seconds of a full pass
_SLOW_PASS_SECONDS = 30.0

#: most nodes that are added to those of slurm.conf
_SPARE_NODES = 4


class Site:
    """One cluster in a world. `units` are its daemons by "host/daemon"."""

    def __init__(self, world: World, scale: Scale) -> None:
        self.world = world
        self.scale = scale
        self.history = History()
        self.units: dict[str, Unit] = {}
        #: what runs on compute nodes, by host
        self.machines: dict[str, NodeMachine] = {}
        self.controllers = [world.host("ctl1", "10.0.0.1")]
        self.nodes = [world.host(f"n{number}", f"10.0.1.{number}") for number in range(1, scale.nodes + 1)]
        #: where users' commands run
        self.login = world.host("login", "10.0.2.1")
        #: keys of slurm.conf that an administrator has changed
        self.settings: dict[str, str] = dict(scale.settings)
        if scale.slow_passes:
            world.child_seconds_max = _SLOW_PASS_SECONDS
        self.conf: Path = world.root / "slurm.conf"
        random = world.random("site")
        #: programs that run before and after jobs
        self.programs = [f"{name}=/site/{name.lower()}" for name in ("Prolog", "Epilog") if random.random() < 0.7]
        #: of the tree by which orders for several nodes are passed on: one makes it as deep as can be
        self.tree_width = random.choice((1, 1, 2))
        #: further lines of slurm.conf
        self.lines: list[str] = []
        #: the database and the hosts of further controllers; None without the part "standby"
        self.standbys: Standbys | None = None
        if "standby" in scale.parts:
            self.standbys = Standbys(world)
            self.controllers += self.standbys.hosts
            self.lines += self.standbys.lines
        #: slurmdbd and its database; None without the part "accounting"
        self.accounting: Accounting | None = None
        if "accounting" in scale.parts:
            from spritz_testing.daemons import accounting

            self.accounting = accounting.Accounting(world)
            self.lines.append(accounting.SLURM_CONF)
            self.add(self.accounting.unit)
        #: set when there are users
        self.users: Users | None = None
        self.write_conf()
        self.disks = {host.name: Disk(host) for host in self.controllers}
        self.operators = {name: Operator(disk, self.history) for name, disk in self.disks.items()}
        for host in self.controllers:
            self.add(controller_unit(host, str(self.conf), self.standbys))
        for host in self.nodes:
            self.add_node(host)

    def add_node(self, host: Host) -> None:
        """A machine with a slurmd."""
        self.machines[host.name] = machine_of(host, self.history)
        self.add(Unit(host, "slurmd", lambda process: slurmd(process, str(self.conf), "", self.history)))

    def start_dynamic_node(self, name: str) -> None:
        """A machine that slurm.conf does not have boots, with a slurmd that makes it a node (`slurmd -Z`)."""
        if name not in self.machines:
            host = self.world.host(name, f"10.0.3.{len(self.world.hosts)}")
            self.machines[name] = machine_of(host, self.history)
            if self.users is not None:
                self.users.watch(self.machines[name])
            capacity = NodeCapacity(cpus=4, cores_per_socket=4, memory_mib=8_000)
            self.add(
                Unit(host, "slurmd", lambda process: dynamic_slurmd(process, str(self.conf), capacity, self.history))
            )
        self.units[f"{name}/slurmd"].start()

    def stop_dynamic_node(self, name: str) -> None:
        """The administrator stops its daemon."""
        if name in self.machines:
            self.units[f"{name}/slurmd"].stop()

    def add(self, unit: Unit) -> None:
        self.units[f"{unit.host.name}/{unit.name}"] = unit

    def write_conf(self, more: str = "") -> None:
        """slurm.conf for the hosts that there are, and with further lines."""
        scale = self.scale
        if self.accounting is not None and not scale.preemption:
            self.settings |= {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}
        preemption = f"PreemptType=preempt/partition_prio\nPreemptMode={scale.preemption}" if scale.preemption else ""
        settings = (f"{key}={value}" for key, value in self.settings.items())
        controllers = "\n".join(f"SlurmctldHost={host.name}({host.address})" for host in self.controllers)
        self.conf.write_text(
            _CONF.format(
                controllers=controllers,
                controller=self.controllers[0].name,
                passes=Random(f"{self.world.seed} passes").choice(_SLOW_PASSES if scale.slow_passes else _PASSES),
                root=self.world.root,
                nodes=len(self.nodes),
                tiers=TIERS,
                turns="GANG" if "GANG" in scale.preemption else "OFF",
                high_nodes=HIGH_NODES_MAX,
                most_nodes=len(self.nodes) + _SPARE_NODES,
                tree_width=self.tree_width,
                remembered=scale.remembered_seconds,
                licenses=",".join(f"{name}:{count}" for name, count in scale.licenses.items()),
                more="\n".join(line for line in (*self.lines, *self.programs, preemption, *settings, more) if line),
            )
        )
        gres = f"NodeName=n[1-{len(self.nodes)}] Name=gpu Count=4\n"
        (self.world.root / "gres.conf").write_text(scale.gres + gres)

    def start(self) -> None:
        for unit in self.units.values():
            unit.start()
        if self.accounting is not None:
            self.accounting.begin_policy(self.controllers[0])
