"""Values as the manual says: units, forms, defaults, DEFAULT records, old spellings. Source: slurm.conf(5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.config.kinds import Value
from spritz.config.schema import record_keys, slurm_keys, status
from spritz.config.schema.options import OPTIONS
from spritz.config.settings import ControllerHost, substitute
from spritz.model.ids import INFINITE
from tests.unit.config.configs import BASE, loaded


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("killwait=5", "KillWait", 5),
        ("KILLWAIT=0x10", "KillWait", 16),
        ("KillWait=010", "KillWait", 8),
        ("MaxJobCount=10k", "MaxJobCount", 10_240),
        ("OverTimeLimit=UNLIMITED", "OverTimeLimit", INFINITE),
        ("SuspendTime=-1", "SuspendTime", INFINITE),
        ("SlurmctldPort=6817-6820", "SlurmctldPort", "6817-6820"),
        ("PriorityMaxAge=7-0", "PriorityMaxAge", 604_800),
        ("PriorityMaxAge=30", "PriorityMaxAge", 1800),
        ("PriorityCalcPeriod=1:30", "PriorityCalcPeriod", 90),
        ("JobRequeue=0", "JobRequeue", False),
        ("JobRequeue=Yes", "JobRequeue", True),
        ("DisableRootJobs=up", "DisableRootJobs", True),
        ("EnforcePartLimits=yes", "EnforcePartLimits", "ALL"),
        ("SelectTypeParameters=cr_core_memory,CR_LLN", "SelectTypeParameters", ("CR_Core_Memory", "CR_LLN")),
        ("TaskPlugin=cgroup,task/affinity", "TaskPlugin", ("task/cgroup", "task/affinity")),
        ("SelectType=cons_tres", "SelectType", "select/cons_tres"),
        ("SlurmctldDebug=4", "SlurmctldDebug", "verbose"),
        ("SlurmdDebug=Debug3", "SlurmdDebug", "debug3"),
        ("GresTypes=gpu,,shard,", "GresTypes", ("gpu", "shard")),
        ('MailDomain="a b"', "MailDomain", "a b"),
        ("PreemptMode=off", "PreemptMode", ()),
        ("PreemptMode=gang", "PreemptMode", ("GANG",)),
        ("PreemptType=partition_prio\nPreemptMode=suspend,gang", "PreemptMode", ("GANG", "SUSPEND")),
        ("PrologFlags=x11,alloc", "PrologFlags", ("Alloc", "X11")),
        ("HealthCheckNodeState=any", "HealthCheckNodeState", ()),
        (
            "PriorityWeightTRES=CPU=1000,Mem=2000,GRES/gpu=3000",
            "PriorityWeightTRES",
            ("CPU=1000", "Mem=2000", "GRES/gpu=3000"),
        ),
        ("Epilog=/etc/slurm/epilog.d/*", "Epilog", "/etc/slurm/epilog.d/*"),
    ],
)
def test_a_value_is_typed(tmp_path: Path, line: str, key: str, value: Value) -> None:
    assert loaded(tmp_path, line + "\n").settings[key] == value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("SlurmctldPort", "6817"),
        ("SlurmdPort", 6818),
        ("SlurmUser", "root"),
        ("StateSaveLocation", "/var/spool"),
        ("SlurmdSpoolDir", "/var/spool/slurmd"),
        ("MaxJobCount", 10_000),
        ("MaxArraySize", 1001),
        ("MaxStepCount", 40_000),
        ("MaxTasksPerNode", 512),
        ("MinJobAge", 300),
        ("KillWait", 30),
        ("SlurmdTimeout", 300),
        ("SlurmctldTimeout", 120),
        ("MessageTimeout", 10),
        ("ReturnToService", 0),
        ("JobRequeue", True),
        ("FirstJobId", 1),
        ("MaxJobId", 0x03FF0000),
        ("PriorityMaxAge", 604_800),
        ("TmpFS", "/tmp"),
        ("EnforcePartLimits", "NO"),
    ],
)
def test_a_key_not_given_has_the_manual_s_default(tmp_path: Path, key: str, value: Value) -> None:
    settings = loaded(tmp_path, base=BASE.replace("SlurmUser=root\n", "")).settings
    assert settings[key] == value
    assert not settings.given(key)


def test_controller_hosts_come_in_order_with_their_addresses(tmp_path: Path) -> None:
    base = "ClusterName=c\nSlurmctldHost=a(10.0.0.1)\nSlurmctldHost=b\n"
    assert loaded(tmp_path, base=base).settings.hosts == (ControllerHost("a", "10.0.0.1"), ControllerHost("b", "b"))


def test_the_four_keys_before_slurmctldhost_still_name_the_controllers(tmp_path: Path) -> None:
    base = "ClusterName=c\nControlMachine=a\nControlAddr=10.0.0.1\nBackupController=b\n"
    assert loaded(tmp_path, base=base).settings.hosts == (ControllerHost("a", "10.0.0.1"), ControllerHost("b", "b"))


def test_options_in_lists_are_found_in_any_case_and_the_last_counts(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "SchedulerParameters=bf_window=10,Defer,BF_Window=20\n").settings
    assert settings.option("SchedulerParameters", "bf_window") == "20"
    assert settings.option("SchedulerParameters", "defer") == ""
    assert settings.option("SchedulerParameters", "bf_interval") is None
    assert settings.has_option("SchedulerParameters", "defer")


@pytest.mark.parametrize(
    ("url", "rest"),
    [
        ("postgresql://slurm@db1,db2/j", ("enable_configless",)),
        (
            "postgresql://slurm:pw@db1:5432,[fd00::1]:5433,10.0.0.3/j?target_session_attrs=read-write",
            ("idle_on_node_suspend",),
        ),
        ("postgresql://db1,db2?dbname=j", ("enable_configless",)),
        ("postgresql://db1", ("enable_configless", "max_powered_nodes=3")),
    ],
)
def test_the_hosts_of_a_url_are_one_option(tmp_path: Path, url: str, rest: tuple[str, ...]) -> None:
    parameters = ",".join((f"journal={url}", *rest))
    assert loaded(tmp_path, f"SlurmctldParameters={parameters}\n").settings["SlurmctldParameters"] == (
        f"journal={url}",
        *rest,
    )


def test_a_loop_of_the_scheduler_may_be_off_and_a_priority_as_large_as_slurm_takes(tmp_path: Path) -> None:
    text = "SchedulerParameters=bf_interval=-1,sched_interval=-1,bf_min_prio_reserve=9223372036854775808\n"
    assert loaded(tmp_path, text).settings.option("SchedulerParameters", "bf_interval") == "-1"


def test_default_records_add_up_and_reach_only_the_lines_below(tmp_path: Path) -> None:
    nodes = """
NodeName=a CPUs=1
NodeName=DEFAULT CPUs=2 RealMemory=100
NodeName=DEFAULT RealMemory=200 Feature=x
NodeName=b
NodeName=c CPUs=4 Features=y
PartitionName=DEFAULT MaxTime=30 State=DOWN
PartitionName=p Nodes=a
PartitionName=q Nodes=b MaxTime=60
"""
    config = loaded(tmp_path, nodes=nodes)
    assert [(line["CPUs"], line["RealMemory"], line["Features"]) for line in config.parsed.nodes] == [
        (1, None, ()),
        (2, 200, ("x",)),
        (4, 200, ("y",)),
    ]
    assert [(line["MaxTime"], line["State"]) for line in config.parsed.partitions] == [(30, "DOWN"), (60, "DOWN")]


def test_several_keys_and_a_record_may_share_a_line(tmp_path: Path) -> None:
    config = loaded(tmp_path, "KillWait=5 MinJobAge=7 NodeName=x CPUs=2\n")
    assert config.settings.integer("KillWait") == 5
    assert config.settings.integer("MinJobAge") == 7
    assert config.nodes[0].name == "x"


def test_names_addresses_and_ports_go_together(tmp_path: Path) -> None:
    nodes = "NodeName=x[1-3] NodeHostname=h NodeAddr=10.0.0.[1-3] Port=[71-73]\nPartitionName=p Nodes=ALL\n"
    (line,) = loaded(tmp_path, nodes=nodes).parsed.nodes
    assert line.hostnames == ("h", "h", "h")
    assert line.addresses == ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    assert line.ports == (71, 72, 73)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/%n/%h.log", "/var/n1/host.log"),
        ("/plain", "/plain"),
        ("/x%%n", "/x%n"),
        ("/%q%", "/%q%"),
        ("/%c.conf", "/clu.conf"),
    ],
)
def test_names_are_put_into_paths(path: str, expected: str) -> None:
    assert substitute(path, "n1", "host", "clu") == expected


def test_every_status_names_a_key_that_exists() -> None:
    from spritz.config.schema import (
        cgroup_keys,
        container_keys,
        gres_keys,
        helpers_keys,
        oci_keys,
        slurmdbd_keys,
        topology_keys,
    )

    scopes = {
        "NodeName": record_keys()["nodename"],
        "PartitionName": record_keys()["partitionname"],
        "DownNodes": record_keys()["downnodes"],
        "NodeSet": record_keys()["nodeset"],
        "gres.conf": gres_keys(),
        "cgroup.conf": cgroup_keys(),
        "topology.conf": topology_keys(),
        "helpers.conf": helpers_keys(),
        "job_container.conf": container_keys(),
        "oci.conf": oci_keys(),
        "slurmdbd.conf": slurmdbd_keys(),
    }
    for name in (*status.DONE, *status.HONOURED, *status.MOOT):
        scope, dot, key = name.rpartition(".")
        if scope in OPTIONS:
            assert key in OPTIONS[scope], name
        elif scope.lower() in slurm_keys():
            assert key in slurm_keys()[scope.lower()].kind.words, name
        elif dot:
            assert scopes[scope][key.lower()].name == key, name
        else:
            assert slurm_keys()[name.lower()].name == name, name


def test_every_honoured_value_is_one_that_its_key_takes() -> None:
    for name, values in status.HONOURED.items():
        if "." not in name:
            assert values <= set(slurm_keys()[name.lower()].kind.words), name


def test_every_default_is_a_value_that_its_key_takes() -> None:
    for key in slurm_keys().values():
        if key.default not in (None, ()):
            assert key.kind.parse(key.kind.write(key.default)) == key.default, key.name


def test_every_p0_key_of_the_inventory_is_in_the_table() -> None:
    names = """
    ClusterName SlurmctldHost SlurmUser SlurmdUser SlurmctldPort SlurmdPort StateSaveLocation SlurmdSpoolDir
    SlurmctldLogFile SlurmdLogFile SlurmctldPidFile SlurmdPidFile SlurmctldDebug SlurmdDebug AuthType AuthInfo
    AuthAltTypes AuthAltParameters CredType SelectType SelectTypeParameters SchedulerType SchedulerParameters
    PriorityType PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare PriorityWeightJobSize
    PriorityWeightPartition PriorityWeightQOS PriorityWeightTRES PriorityDecayHalfLife PriorityMaxAge
    PriorityCalcPeriod PriorityUsageResetPeriod PriorityFavorSmall PriorityFlags PreemptType PreemptMode
    PreemptParameters PreemptExemptTime GresTypes DefMemPerCPU DefMemPerNode DefMemPerGPU DefCPUPerGPU MaxMemPerCPU
    MaxMemPerNode ProctrackType TaskPlugin TaskPluginParam JobAcctGatherType JobAcctGatherFrequency
    JobAcctGatherParams AccountingStorageType AccountingStorageHost AccountingStoragePort AccountingStoragePass
    AccountingStorageEnforce AccountingStorageTRES AccountingStoreFlags MaxJobCount MaxArraySize MaxStepCount
    MaxTasksPerNode MinJobAge FirstJobId MaxJobId KillWait KillOnBadExit WaitTime InactiveLimit OverTimeLimit
    ReturnToService SlurmdTimeout SlurmctldTimeout MessageTimeout Prolog Epilog PrologFlags PrologSlurmctld
    EpilogSlurmctld TaskProlog TaskEpilog HealthCheckProgram HealthCheckInterval HealthCheckNodeState JobRequeue
    RequeueExit RequeueExitHold MaxBatchRequeue EnforcePartLimits MpiDefault MpiParams MailProg MailDomain
    LaunchParameters InteractiveStepOptions SallocDefaultCommand JobSubmitPlugins PropagateResourceLimits
    PropagateResourceLimitsExcept TmpFS
    """
    assert [name for name in names.split() if name.lower() not in slurm_keys()] == []


@pytest.mark.parametrize(
    ("text", "bind"),
    [
        ("TaskPluginParam=Cores,Verbose", "cores"),
        ("TaskPluginParam=autobind=Threads", "autobind=threads"),
        ("TaskPluginParam=none,autobind=cores", "none"),
        ("TaskPluginParam=autobind=none", ""),
        ("", ""),
    ],
)
def test_how_tasks_are_bound_by_default(tmp_path: Path, text: str, bind: str) -> None:
    """slurm.conf(5) TaskPluginParam, CpuBind."""
    nodes = "NodeName=n1 CpuBind=core\nNodeName=n2 CpuBind=off\nPartitionName=p Nodes=n1 CpuBind=Sockets\n"
    config = loaded(tmp_path, f"TaskPlugin=task/affinity\n{text}\n", nodes=nodes)
    assert config.cluster.cpu_bind == bind
    assert [node.cpu_bind for node in config.nodes] == ["cores", ""]
    assert [partition.cpu_bind for partition in config.partitions] == ["sockets"]
