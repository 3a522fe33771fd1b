"""The manual pages' own examples are read without an error.

Source: slurm.conf(5), gres.conf(5), cgroup.conf(5) of 22.05.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config.configs import loaded

SLURM_CONF = """\
#
# Sample /etc/slurm.conf for dev[0-25].llnl.gov
#
SlurmctldHost=dev0(12.34.56.78)  # Primary server
SlurmctldHost=dev1(12.34.56.79)  # Backup server
#
AuthType=auth/munge
Epilog=/usr/local/slurm/epilog
Prolog=/usr/local/slurm/prolog
FirstJobId=65536
InactiveLimit=120
JobCompType=jobcomp/filetxt
JobCompLoc=/var/log/slurm/jobcomp
KillWait=30
MaxJobCount=10000
MinJobAge=3600
PluginDir=/usr/local/lib:/usr/local/slurm/lib
ReturnToService=0
SchedulerType=sched/backfill
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmctldPort=7002
SlurmdPort=7003
SlurmdSpoolDir=/var/spool/slurmd.spool
StateSaveLocation=/var/spool/slurm.state
SwitchType=switch/none
TmpFS=/tmp
WaitTime=30
#
# Node Configurations
#
NodeName=DEFAULT CPUs=2 RealMemory=2000 TmpDisk=64000
NodeName=DEFAULT State=UNKNOWN
NodeName=dev[0-25] NodeAddr=edev[0-25] Weight=16
# Update records for specific DOWN nodes
DownNodes=dev20 State=DOWN Reason="power,ETA=Dec25"
#
# Partition Configurations
#
PartitionName=DEFAULT MaxTime=30 MaxNodes=10 State=UP
PartitionName=debug Nodes=dev[0-8,18-25] Default=YES
PartitionName=batch Nodes=dev[9-17]  MinNodes=4
PartitionName=long Nodes=dev[9-17] MaxTime=120 AllowGroups=admin
"""

GRES = {
    "mps": """\
AutoDetect=nvml
Name=gpu Type=gtx560 File=/dev/nvidia0 COREs=0,1
Name=gpu Type=tesla  File=/dev/nvidia1 COREs=2,3
Name=mps Count=100 File=/dev/nvidia0 COREs=0,1
Name=mps Count=100  File=/dev/nvidia1 COREs=2,3
""",
    "one out of service": """\
Name=gpu Type=tesla File=/dev/nvidia[0-1] COREs=0,1
# Name=gpu Type=tesla  File=/dev/nvidia[2-3] COREs=2,3
# NOTE: nvidia2 device is out of service
Name=gpu Type=tesla  File=/dev/nvidia3 COREs=2,3
""",
    "one file for all nodes": """\
NodeName=tux[0-2]  Name=gpu File=/dev/nvidia[0-3]
NodeName=tux3  Name=gpu File=/dev/nvidia[0,2-3]
NodeName=tux[4-15]  Name=gpu File=/dev/nvidia[0-3]
""",
    "nvml but for one": "AutoDetect=nvml\nNodeName=tux3 AutoDetect=off Name=gpu File=/dev/nvidia[0-3]\n",
    "nvml, rsmi and none": """\
NodeName=tux[0-7] AutoDetect=nvml
NodeName=tux[8-11] AutoDetect=rsmi
NodeName=tux[12-15] Name=gpu File=/dev/nvidia[0-3]
""",
    "bandwidth": "NodeName=tux[0-7] Name=bandwidth Type=lustre Count=4G Flags=CountOnly\n",
}

CGROUP = """\
###
# Slurm cgroup support configuration file.
###
CgroupAutomount=yes
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=yes
ConstrainDevices=yes
ConstrainKmemSpace=no        #avoid known Kernel issues
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
"""

CGROUP_SLURM = """\
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup,task/affinity
JobAcctGatherType=jobacct_gather/cgroup #optional for gathering metrics
PrologFlags=Contain                     #X11 flag is also suggested
"""


def test_the_example_of_slurm_conf(tmp_path: Path) -> None:
    config = loaded(tmp_path, base="ClusterName=linux\n", nodes=SLURM_CONF)
    nodes = {node.name: node for node in config.nodes}
    assert len(nodes) == 26
    assert (nodes["dev3"].address, nodes["dev3"].weight, nodes["dev3"].port) == ("edev3", 16, 7003)
    assert (nodes["dev20"].initial_state, nodes["dev20"].reason) == ("DOWN", "power,ETA=Dec25")
    debug, batch, long = config.partitions
    assert (len(debug.nodes), debug.default, debug.max_time_minutes, debug.max_nodes) == (17, True, 30, 10)
    assert (len(batch.nodes), batch.min_nodes) == (9, 4)
    assert (long.max_time_minutes, long.allow_groups) == (120, ("admin",))


@pytest.mark.parametrize("name", GRES)
def test_the_examples_of_gres_conf(tmp_path: Path, name: str) -> None:
    nodes = "NodeName=tux[0-15] CPUs=4 Gres=gpu:4\nPartitionName=p Nodes=ALL\n"
    config = loaded(tmp_path, "GresTypes=gpu,mps,bandwidth\n", nodes=nodes, gres=GRES[name])
    assert config.gres.lines or config.gres.autodetect


def test_the_example_of_cgroup_conf(tmp_path: Path) -> None:
    config = loaded(tmp_path, CGROUP_SLURM, cgroup=CGROUP)
    assert config.cgroup.flag("ConstrainDevices")
    assert not config.cgroup.flag("ConstrainKmemSpace")


def test_the_example_of_an_include_with_the_cluster_s_name(tmp_path: Path) -> None:
    (tmp_path / "linux_config").write_text("KillWait=7\n")
    base = f"ClusterName=linux\nSlurmctldHost=h\ninclude {tmp_path}/%c_config\n"
    assert loaded(tmp_path, base=base).cluster.kill_wait_seconds == 7


@pytest.mark.parametrize(
    "nodes",
    [
        "NodeName=alpha,beta,gamma\nPartitionName=p Nodes=alpha\n",
        "NodeName=linux[0-64,128]\nPartitionName=p Nodes=linux[3-4]\n",
        "NodeName=linux[0000-1023]\nPartitionName=p Nodes=linux[0005,0007]\n",
        "NodeName=rack[0-63]_blade[0-41]\nPartitionName=p Nodes=rack0_blade[0-3]\n",
        "NodeName=lx[0-7] NodeAddr=elx[0-7]\nPartitionName=p Nodes=ALL\n",
    ],
)
def test_the_hostlists_of_the_manual(tmp_path: Path, nodes: str) -> None:
    assert loaded(tmp_path, nodes=nodes).partitions[0].nodes
