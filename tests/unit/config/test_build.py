"""Configurations as model records. Source: slurm.conf(5), gres.conf(5)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spritz.config.load import load
from spritz.model.ids import INFINITE
from spritz.model.resources import GresCapacity, NodeCapacity
from spritz.model.states import PartitionState
from tests.unit.config.configs import FILES, loaded


def capacity_of(directory: Path, line: str, **others: str) -> NodeCapacity:
    nodes = f"NodeName=n1 {line}\nPartitionName=p Nodes=ALL\n"
    (node,) = loaded(directory, "GresTypes=gpu,shard,bandwidth\n", nodes=nodes, **others).nodes
    return node.capacity


@pytest.mark.parametrize(
    ("line", "cpus", "sockets", "cores", "threads"),
    [
        ("", 1, 1, 1, 1),
        ("CPUs=8", 8, 8, 1, 1),
        ("CPUs=8 CoresPerSocket=4", 8, 2, 4, 1),
        ("CPUs=16 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", 16, 2, 4, 2),
        ("Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", 16, 2, 4, 2),
        ("CPUs=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", 8, 2, 4, 2),
        ("Boards=2 SocketsPerBoard=2 CoresPerSocket=3", 12, 4, 3, 1),
        ("Procs=6 CoresPerSocket=4", 4, 1, 4, 1),
        ("CPUs=7 Sockets=2 CoresPerSocket=4", 8, 2, 4, 1),
    ],
)
def test_cpus_and_their_parts_follow_from_each_other(
    tmp_path: Path, line: str, cpus: int, sockets: int, cores: int, threads: int
) -> None:
    found = capacity_of(tmp_path, line)
    assert (found.cpus, found.sockets, found.cores_per_socket, found.threads_per_core) == (
        cpus,
        sockets,
        cores,
        threads,
    )


@pytest.mark.parametrize(
    ("line", "mask"),
    [
        ("CPUs=8 CoreSpecCount=2", "c0"),
        ("Sockets=1 CoresPerSocket=4 ThreadsPerCore=2 CoreSpecCount=1", "c0"),
        ("Sockets=2 CoresPerSocket=4 CoreSpecCount=3", "c8"),
        ("CPUs=8 CPUSpecList=0-1,7", "83"),
        ("CPUs=8", "0"),
    ],
)
def test_cpus_kept_for_the_system_are_a_mask(tmp_path: Path, line: str, mask: str) -> None:
    assert capacity_of(tmp_path, line).cpus_reserved == mask


def test_cores_for_the_system_are_the_first_ones_on_demand(tmp_path: Path) -> None:
    line = "NodeName=n1 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 CoreSpecCount=3\n"
    # Cores 0 and 4, the first of each socket, and core 1.
    config = loaded(tmp_path, "SchedulerParameters=spec_cores_first\n", nodes=line + "PartitionName=p Nodes=ALL\n")
    assert config.nodes[0].capacity.cpus_reserved == "30f"


def test_memory_disk_weight_features_and_state_reach_the_node(tmp_path: Path) -> None:
    nodes = (
        "NodeName=n[1-2] RealMemory=1000 TmpDisk=50 MemSpecLimit=100 Weight=7 Feature=a,b State=DRAIN Reason=why\n"
        'DownNodes=n2 State=FAIL Reason="broken fan"\nPartitionName=p Nodes=ALL\n'
    )
    first, second = loaded(tmp_path, nodes=nodes).nodes
    assert (first.capacity.memory_mib, first.capacity.tmp_mib, first.capacity.memory_reserved_mib) == (1000, 50, 100)
    assert (first.weight, first.features, first.initial_state, first.reason) == (7, ("a", "b"), "DRAIN", "why")
    assert (second.initial_state, second.reason) == ("FAIL", "broken fan")


def test_nodes_kept_out_by_the_file_say_so(tmp_path: Path) -> None:
    nodes = "NodeName=n[1-3] State=DRAIN\nDownNodes=n2 State=DOWN\nNodeName=n4\nPartitionName=p Nodes=ALL\n"
    reasons = [node.reason for node in loaded(tmp_path, nodes=nodes).nodes]
    assert reasons == ["DRAIN in slurm.conf", "DOWN in slurm.conf", "DRAIN in slurm.conf", ""]


def test_ports_and_addresses_have_their_defaults(tmp_path: Path) -> None:
    nodes = "NodeName=n1\nNodeName=n2 NodeHostname=h\nNodeName=n3 NodeAddr=a Port=99\nPartitionName=p Nodes=ALL\n"
    found = loaded(tmp_path, "SlurmdPort=7\n", nodes=nodes).nodes
    assert [(node.hostname, node.address, node.port) for node in found] == [
        ("n1", "n1", 7),
        ("h", "h", 7),
        ("n3", "a", 99),
    ]


def test_gres_without_gres_conf_are_counts(tmp_path: Path) -> None:
    assert capacity_of(tmp_path, "Gres=gpu:a:2,gpu:b,bandwidth:lustre:no_consume:4G").gres == (
        GresCapacity(name="gpu", type="a", count=2, first_index=0),
        GresCapacity(name="gpu", type="b", count=1, first_index=2),
        GresCapacity(name="bandwidth", type="lustre", count=4 * 2**30, flags=("no_consume",)),
    )


def test_gres_conf_gives_devices_to_the_counts(tmp_path: Path) -> None:
    gres = (
        "NodeName=n1 Name=gpu Type=b File=/dev/nvidia[4-5] Cores=1\n"
        "NodeName=n1 Name=gpu Type=a File=/dev/nvidia[0-3] Cores=0 Links=\n"
        "Name=gpu Type=c File=/dev/other\n"
    )
    assert capacity_of(tmp_path, "CPUs=2 Gres=gpu:a:4,gpu:b:2", gres=gres).gres == (
        GresCapacity(
            name="gpu",
            type="a",
            count=4,
            files=("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3"),
            cores="0",
        ),
        GresCapacity(name="gpu", type="b", count=2, first_index=4, files=("/dev/nvidia4", "/dev/nvidia5"), cores="1"),
    )


def test_an_untyped_count_takes_the_types_of_gres_conf(tmp_path: Path) -> None:
    gres = "Name=gpu Type=a File=/dev/nvidia0\nName=gpu Type=b File=/dev/nvidia1\n"
    found = capacity_of(tmp_path, "Gres=gpu:3", gres=gres).gres
    assert [(one.type, one.first_index, one.count) for one in found] == [("a", 0, 1), ("b", 1, 1), ("", 2, 1)]


def test_one_device_of_several_files_is_one(tmp_path: Path) -> None:
    (one,) = capacity_of(tmp_path, "Gres=gpu:1", gres="Name=gpu MultipleFiles=/dev/nvidia0,/dev/caps/mig[1-2]\n").gres
    assert one.count == 1
    assert one.files == ("/dev/nvidia0,/dev/caps/mig1,/dev/caps/mig2",)


def test_shards_stand_on_gpus_evenly_or_as_gres_conf_says(tmp_path: Path) -> None:
    even = capacity_of(tmp_path, "Gres=gpu:4,shard:16").gres[-1]
    assert (even.count, even.per_device) == (16, 4)
    gres = (
        "Name=gpu File=/dev/nvidia[0-1]\nName=shard Count=8 File=/dev/nvidia0\nName=shard Count=2 File=/dev/nvidia1\n"
    )
    found = capacity_of(tmp_path, "Gres=gpu:2,shard:10", gres=gres).gres[1:]
    assert [(one.count, one.first_index, one.per_device) for one in found] == [(8, 0, 8), (2, 1, 2)]


def test_autodetect_is_per_node_and_can_be_switched_off(tmp_path: Path) -> None:
    config = loaded(tmp_path, "GresTypes=gpu\n", gres="AutoDetect=nvml\nNodeName=n2 AutoDetect=off Name=gpu Count=1\n")
    assert config.gres.autodetect_of("n1") == "nvml"
    assert config.gres.autodetect_of("n2") == ""


def test_a_partition_has_its_limits_rights_and_members(tmp_path: Path) -> None:
    nodes = """
NodeName=n[1-4] Features=f
NodeName=m[1-2] Features=g
NodeSet=s Nodes=n4 Feature=g
PartitionName=a Nodes=s,n2 MaxTime=1-0 DefaultTime=90 MaxNodes=3 MinNodes=2 AllowAccounts=Phys,CS DenyQos=Low
PartitionName=b Nodes=ALL Default=YES AllowGroups=ALL AllocNodes=n[1-2] OverSubscribe=FORCE PriorityTier=5 State=drain
PartitionName=c Nodes="" Hidden=YES RootOnly=YES OverTimeLimit=UNLIMITED Shared=EXCLUSIVE Alternate=b DisableRootJobs=NO
"""
    a, b, c = loaded(tmp_path, "DisableRootJobs=YES\n", nodes=nodes).partitions
    assert a.nodes == ("n2", "n4", "m1", "m2")
    assert (a.nodes_text, a.default, a.disable_root_jobs) == ("s,n2", False, True)
    assert (a.max_time_minutes, a.default_time_minutes, a.max_nodes, a.min_nodes) == (1440, 90, 3, 2)
    assert (a.allow_accounts, a.deny_qos) == (("phys", "cs"), ("low",))
    assert len(b.nodes) == 6
    assert (b.default, b.allow_groups, b.allow_alloc_nodes) == (True, (), ("n1", "n2"))
    assert (b.oversubscribe, b.priority_tier, b.state) == ("FORCE:4", 5, PartitionState.DRAIN)
    assert (b.max_time_minutes, b.default_time_minutes, b.max_nodes) == (INFINITE, None, INFINITE)
    assert (c.nodes, c.hidden, c.root_only, c.over_time_minutes) == ((), True, True, INFINITE)
    assert (c.oversubscribe, c.alternate, c.disable_root_jobs) == ("EXCLUSIVE", "b", False)


def test_cluster_settings_are_typed(tmp_path: Path) -> None:
    text = """
RequeueExit=1-3,18
SelectTypeParameters=CR_CPU_Memory,CR_Pack_Nodes
SchedulerParameters=bf_window=2880,Defer,max_script_size=1000,max_submit_line_size=99
DependencyParameters=kill_invalid_depend,max_depend_depth=3
PrologFlags=Contain,Serial
"""
    found = loaded(tmp_path, text).cluster
    assert found.prolog_flags == ("Alloc", "Contain", "Serial")
    assert found.requeue_exit == (1, 2, 3, 18)
    assert (found.consumable, found.memory_consumable) == ("cpu", True)
    assert found.scheduler_parameters == (
        *(("bf_window", "2880"), ("defer", ""), ("max_script_size", "1000")),
        ("max_submit_line_size", "99"),
    )
    assert found.max_submit_line_bytes == 99
    assert (found.kill_invalid_dependency, found.max_dependency_depth, found.max_script_bytes) == (True, 3, 1000)


@pytest.mark.parametrize(
    ("text", "consumable", "memory", "linear"),
    [
        ("", "core", True, False),
        ("SelectTypeParameters=CR_Core", "core", False, False),
        ("SelectTypeParameters=CR_Socket_Memory", "socket", True, False),
        ("SelectTypeParameters=CR_CPU", "cpu", False, False),
        ("SelectType=select/linear", "core", False, True),
        ("SelectType=select/linear SelectTypeParameters=CR_Memory", "core", True, True),
    ],
)
def test_what_jobs_share_follows_from_select_type(
    tmp_path: Path, text: str, consumable: str, memory: bool, linear: bool
) -> None:
    found = loaded(tmp_path, text + "\n").cluster
    assert (found.consumable, found.memory_consumable, found.select_linear) == (consumable, memory, linear)


@pytest.mark.parametrize(
    ("cluster", "own", "expected"),
    [
        ("CR_Core_Memory", "CR_Socket", ("socket", False)),
        ("CR_Socket", "cr_core_memory", ("core", True)),
        ("CR_Core", "", ("", True)),
        ("CR_CPU", "CR_Socket", ("", True)),
    ],
)
def test_a_partition_may_share_its_nodes_otherwise(
    tmp_path: Path, cluster: str, own: str, expected: tuple[str, bool]
) -> None:
    line = f"PartitionName=own Nodes=ALL SelectTypeParameters={own}" if own else "PartitionName=own Nodes=ALL"
    found = loaded(tmp_path, f"SelectTypeParameters={cluster}\n{line}\n")
    (partition,) = [one for one in found.partitions if one.name == "own"]
    assert (partition.consumable, partition.memory_consumable) == expected


def test_a_laptop() -> None:
    config = load(str(FILES / "laptop" / "slurm.conf"))
    (node,) = config.nodes
    assert (node.capacity.cpus, node.capacity.threads_per_core, node.address) == (8, 2, "localhost")
    assert config.settings.hosts[0].address == "127.0.0.1"
    assert config.warnings == ()
    assert not config.cgroup_given


def test_a_box_with_eight_gpus() -> None:
    config = load(str(FILES / "gpubox" / "slurm.conf"))
    (node,) = config.nodes
    assert node.capacity.cpus == 224
    assert [(one.name, one.type, one.count, one.first_index, one.cores) for one in node.capacity.gres] == [
        ("gpu", "h100", 4, 0, "0-55"),
        ("gpu", "h100", 4, 4, "56-111"),
        ("shard", "", 32, 0, ""),
    ]
    assert node.capacity.gres[1].files[0] == "/dev/nvidia4"
    assert config.cgroup.flag("ConstrainRAMSpace")
    assert config.cgroup.number("AllowedRAMSpace") == 98.5
    assert config.cgroup_given
    assert config.warnings == ()
    assert [path.rsplit("/")[-1] for path in config.files_read] == ["slurm.conf", "gres.conf", "cgroup.conf"]


def test_a_cluster_of_a_thousand_nodes_in_several_files() -> None:
    config = load(str(FILES / "cluster" / "slurm.conf"))
    nodes = {node.name: node for node in config.nodes}
    assert len(nodes) == 1000
    assert nodes["r10g10-ib"].address == "10.1.0.100"
    assert nodes["r3g05-ib"].initial_state == "DRAIN"
    assert nodes["cpu0001"].capacity.gres == ()
    batch, gpu, mixed = config.partitions
    assert len(batch.nodes) == 900
    assert batch.default
    assert len(gpu.nodes) == 100
    assert len(mixed.nodes) == 105
    assert (gpu.max_time_minutes, mixed.max_time_minutes) == (2880, INFINITE)
    assert config.settings.text("SlurmctldPort") == "6817-6820"


def test_loading_ten_thousand_nodes_takes_few_calls_for_each(tmp_path: Path) -> None:
    """About ten for each node. A pass over all nodes for each of them would be millions."""
    nodes = "NodeName=n[00001-10000] CPUs=128 RealMemory=1000000\nPartitionName=p Nodes=ALL Default=YES\n"
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        config = loaded(tmp_path, nodes=nodes)
    finally:
        sys.setprofile(before)
    assert len(config.nodes) == len(config.partitions[0].nodes) == 10_000
    assert calls < 200_000
