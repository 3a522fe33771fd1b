"""Every fault is named, with file, line, key and what would be right, and all of them at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.config.diagnostics import ConfigError, report
from spritz.config.load import examine, load
from tests.unit.config.configs import BASE, errors, loaded, warnings, write


def test_all_errors_come_at_once_each_with_its_place(tmp_path: Path) -> None:
    text = "SlurmctldProt=1\nKillWait=abc\nNodeName=n9 CPUz=2\nPartitionName=q Nodes=nowhere\n"
    assert errors(tmp_path, text) == [
        'slurm.conf:4: Unknown key "SlurmctldProt" (did you mean SlurmctldPort?)',
        "slurm.conf:5: KillWait=abc: expected a whole number of seconds from 0 to 65533",
        'slurm.conf:6: Unknown key "CPUz" on a NodeName line (did you mean CPUs?)',
        "slurm.conf:7: Partition q names unknown node nowhere",
    ]


def test_a_misspelt_record_is_one_error(tmp_path: Path) -> None:
    """Its other keys are not faults."""
    text = "PartitoinName=debug Nodes=n1 MaxTime=10 State=UP\nNodName=n9 CPUs=2\n"
    assert errors(tmp_path, text) == [
        'slurm.conf:4: Unknown key "PartitoinName" (did you mean PartitionName?)',
        'slurm.conf:5: Unknown key "NodName" (did you mean NodeName?)',
    ]


def test_weights_of_what_there_is_are_taken_and_others_named(tmp_path: Path) -> None:
    weights = "cpu=1,Mem=0.25G,license/lab=2,gres/gpu:a100=3,fs/lustre=1"
    good = f'GresTypes=gpu\nPriorityWeightTRES={weights}\nPartitionName=w Nodes=n1 TRESBillingWeights="{weights}"\n'
    assert not errors(tmp_path, good)
    assert not [text for text in warnings(tmp_path, good) if "TRES" in text]
    (told,) = [text for text in warnings(tmp_path, "PriorityWeightTRES=cup=3\n") if "TRES" in text]
    assert told.endswith("PriorityWeightTRES: 'cup' is not a configured TRES; it weighs nothing (did you mean cpu?)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SlurmctldPort=70000", "SlurmctldPort=70000: expected a port from 1 to 65535, or a range such as 60001-63000"),
        (
            "SchedulerParameters=bf_predict=often",
            "SchedulerParameters: bf_predict=often: expected priority or slowdown",
        ),
        ("SchedulerParameters=bf_policy=eazy", "SchedulerParameters: bf_policy=eazy: expected conservative or easy"),
        (
            "PriorityWeightAge=4294967296",
            "PriorityWeightAge=4294967296: expected a whole number from 0 to 4294967293",
        ),
        ("SlurmdPort=0", "SlurmdPort=0: expected a whole number from 1 to 65535"),
        ("TrackWCKey=maybe", "TrackWCKey=maybe: expected YES or NO"),
        ("KillWait=1k", "KillWait=1k: expected a whole number of seconds from 0 to 65533"),
        ("ReturnToService=3", "ReturnToService=3: expected a whole number from 0 to 2"),
        ("MaxArraySize=5000000", "MaxArraySize=5000000: expected a whole number from 0 to 4000001"),
        ("SlurmctldDebug=loud", "SlurmctldDebug=loud: expected one of quiet, fatal"),
        ("SelectType=select/cons_tes", "(did you mean select/cons_tres?)"),
        ("SelectTypeParameters=CR_Cor", "(did you mean CR_Core?)"),
        ("PrologFlags=Aloc", "(did you mean Alloc?)"),
        ("PrologFlags=NoHold,Contain", "PrologFlags=NoHold cannot go with Contain or X11"),
        ("StateSaveLocation=state", "StateSaveLocation=state: expected an absolute path"),
        ("DefMemPerCPU=4G", "DefMemPerCPU=4G: expected a whole number of MiB (write 4096 for 4G)"),
        ("DefMemPerCPU=1 DefMemPerNode=2", "DefMemPerCPU and DefMemPerNode exclude each other (keep one)"),
        ("RequeueExit=1-300", "RequeueExit=1-300: expected exit codes from 0 to 255"),
        ("KillWait+=3", "KillWait+=: only = may be used here"),
        ("SlurmctldHost=h(10.0.0.2)", "SlurmctldHost=h is given more than once"),
        ("SlurmctldHost=a(b", "SlurmctldHost=a(b: expected HOSTNAME or HOSTNAME(ADDRESS)"),
        ("FirstJobId=100 MaxJobId=10", "FirstJobId=100 is above MaxJobId=10"),
        ("PriorityMaxAge=1:2:3:4", "PriorityMaxAge=1:2:3:4: expected minutes"),
        ("SchedulerParameters=bf_window=x", "bf_window=x: expected a whole number from 1 to 43200"),
        ("some words", 'Parse error: "some words" (expected key=value)'),
        ("State=UP", 'Unknown key "State" (it belongs on a line NodeName or PartitionName)'),
        ("NodeName=x KillWait=3", 'Unknown key "KillWait" on a NodeName line (it stands on a line of its own)'),
        ("FrontendName=x", "front end nodes are no longer in Slurm"),
        ("NodeName=n1 CPUs=4", "Node n1 is defined twice"),
        ("NodeName=ALL CPUs=4", '"ALL" cannot be the name of a node'),
        ("NodeName=x[1-", "NodeName: "),
        ("NodeName=x[1-3] NodeAddr=a,b", "NodeAddr=a,b names 2, NodeName=x[1-3] names 3"),
        ("NodeName=x[1-3] Port=[1-2]", "Port names 2 ports, NodeName=x[1-3] names 3 nodes"),
        ("NodeName=DEFAULT NodeAddr=x", "NodeAddr is not allowed with NodeName=DEFAULT"),
        ("NodeName=x RealMemory=64G", "(write 65536 for 64G)"),
        ("NodeName=x CPUs=0", "CPUs=0: expected a whole number from 1 to 65533"),
        ("NodeName=x State=BUSY", "State=BUSY: expected one of UNKNOWN"),
        ("NodeName=x Gres=gpu:4", 'Gres "gpu" is not in GresTypes (write GresTypes=gpu into slurm.conf)'),
        (
            "GresTypes=gpu\nPartitionName=w Nodes=n1 TRESBillingWeights=CPU=1,GRES/gpux:a=2",
            "TRES weight 'GRES/gpux:a' is not a configured TRES type (did you mean gres/gpu?)",
        ),
        ("GresTypes=gpu\nNodeName=x Gres=gpu:a:b:4", "Gres=gpu:a:b:4: expected name[:type][:no_consume]:count"),
        ("GresTypes=gpu\nNodeName=x Gres=gpu:4,gpu:a:4", "Gres gpu is given with and without a type"),
        ("GresTypes=shard\nNodeName=x Gres=shard:4", "shares of gpu, which it has none of"),
        ("PartitionName=p Nodes=n1", "Partition p is defined twice"),
        ("PartitionName=q Nodes=n1 MaxTime=soon", "MaxTime=soon: expected minutes"),
        ("PartitionName=q Nodes=n1 OverSubscribe=FORCE:0", "OverSubscribe=FORCE:0: expected NO, EXCLUSIVE"),
        ("PartitionName=q Nodes=n1 MinNodes=3 MaxNodes=2", "MinNodes=3 is above MaxNodes=2"),
        ("PartitionName=q Nodes=n1 Alternate=pp", "Alternate=pp is no partition (did you mean p?)"),
        ("PartitionName=q Nodes=n[1", "Partition q: Nodes: "),
        ("NodeSet=s Nodes=n77", "NodeSet s names unknown node n77"),
        ("NodeSet=s", 'NodeSet "s" has neither Nodes nor Feature'),
        ("NodeSet=n1 Nodes=n2", "NodeSet n1 has the name of a node"),
        ("DownNodes=zz", "DownNodes names unknown node zz"),
        ("ClusterName=" + "x" * 50, "expected at most 40 characters"),
        ("Include nowhere.conf", "Include nowhere.conf: cannot be read: No such file or directory"),
        ("Include slurm.conf", "the file includes itself"),
        ("Include", "Include names no file"),
    ],
)
def test_a_bad_line_is_named_with_what_would_be_right(tmp_path: Path, text: str, message: str) -> None:
    found = errors(tmp_path, text + "\n")
    assert any(message in item and item.startswith("slurm.conf:") for item in found), found


@pytest.mark.parametrize(
    ("gres", "message"),
    [
        ("Name=gpu Count=2 File=/dev/nvidia[0-3]", "gpu: Count=2 does not match 4 files"),
        ("Name=gpu File=nvidia0", "File=nvidia0: expected an absolute path"),
        ("Name=gpu File=/dev/a MultipleFiles=/dev/b", "File and MultipleFiles cannot be given together"),
        ("Name=gpu Cores=x", "Cores=x: expected core numbers"),
        ("Name=gpu Cores=0-40", "Cores=0-40: NodeName=n[1-4] has cores 0 to 3"),
        ("Name=gpu Links=a", "Links=a: expected numbers"),
        ("Name=gpu File=/dev/nvidia[0-1] Links=0,1", "Links can be given for one device only"),
        ("Name=gpu Flags=no_gpu_env,nvidia_gpu_env", "no_gpu_env excludes"),
        ("Name=gpu Flags=nvidia_gpu_emv", "(did you mean nvidia_gpu_env?)"),
        ("Name=tpu Count=1", 'Gres "tpu" is not in GresTypes (did you mean gpu?)'),
        ("Type=h100", "Name is missing"),
        ("NodeName=n1 Type=h100", "Name is missing"),
        ("AutoDetect=nvm", "(did you mean nvml?)"),
        ("Name=gpu Fil=/dev/x", 'Unknown key "Fil" in gres.conf (did you mean File?)'),
    ],
)
def test_a_bad_line_of_gres_conf_is_named(tmp_path: Path, gres: str, message: str) -> None:
    found = errors(tmp_path, "GresTypes=gpu\n", gres=gres + "\n")
    assert any(message in item and item.startswith("gres.conf:1: ") for item in found), found


def test_lines_of_gres_conf_for_unknown_nodes_are_no_error(tmp_path: Path) -> None:
    """As in Slurm: the node was retired, or joins later."""
    gres = "NodeName=n9 Name=gpu Count=2\n"
    assert not errors(tmp_path, "GresTypes=gpu\n", gres=gres)
    assert "gres.conf:1: NodeName names unknown node n9" in warnings(tmp_path, "GresTypes=gpu\n", gres=gres)
    assert not [text for text in warnings(tmp_path, "GresTypes=gpu\nMaxNodeCount=9\n", gres=gres) if "n9" in text]


def test_a_bad_line_of_cgroup_conf_is_named(tmp_path: Path) -> None:
    found = errors(tmp_path, cgroup="ConstrainCore=yes\nAllowedRAMSpace=lots\n")
    assert found == [
        'cgroup.conf:1: Unknown key "ConstrainCore" in cgroup.conf (did you mean ConstrainCores?)',
        "cgroup.conf:2: AllowedRAMSpace=lots: expected a percentage such as 98.5",
    ]


def test_what_is_missing_altogether_is_said(tmp_path: Path) -> None:
    assert errors(tmp_path, base="", nodes="") == [
        "slurm.conf: ClusterName is missing (write ClusterName=NAME)",
        "slurm.conf: SlurmctldHost is missing (write SlurmctldHost=HOSTNAME)",
        "slurm.conf: No nodes are configured (write NodeName=… lines)",
        "slurm.conf: No partitions are configured (write PartitionName=… lines)",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "SwitchType=switch/hpe_slingshot",
            "SwitchType=switch/hpe_slingshot is not implemented yet; Spritz acts as with",
        ),
        (
            "BurstBufferType=burst_buffer/lua",
            "BurstBufferType=burst_buffer/lua is not implemented yet; Spritz acts as without",
        ),
        ("JobCompPassScript=/x", "JobCompPassScript is not implemented yet and has no effect"),
        ("CredType=cred/slurm", "launches on other machines are signed by a key derived from the cluster's"),
        ("SchedulerParameters=default_gbytes", "SchedulerParameters=default_gbytes has no effect: removed from Slurm"),
        (
            "SchedulerParameters=bf_topopt_enable",
            "SchedulerParameters=bf_topopt_enable has no effect: no start is delayed",
        ),
        ("CommunicationParameters=NoCtldInAddrAny", "CommunicationParameters=NoCtldInAddrAny is not implemented yet"),
        ("TaskPluginParam=OOMKillStep", "TaskPluginParam=OOMKillStep is not implemented yet"),
        (
            "SelectTypeParameters=CR_CPU,OTHER_CONS_RES",
            "SelectTypeParameters=OTHER_CONS_RES has no effect: it was for machines",
        ),
        ("HealthCheckNodeState=ANY,NONDRAINED_IDLE", "HealthCheckNodeState=NONDRAINED_IDLE is not implemented yet"),
        ("TCPTimeout=9", "TCPTimeout has no effect: a connection is made within MessageTimeout"),
        ("SrunPortRange=60001-63000", "SrunPortRange is not implemented yet and has no effect"),
        ("PrioritySiteFactorParameters=5", "PrioritySiteFactorParameters is not implemented yet and has no effect"),
        ("PrologFlags=Alloc,RunInJob", "PrologFlags=RunInJob is not implemented yet"),
        ("MpiDefault=pmix_v2", "MpiDefault=pmix_v2 is not implemented yet; Spritz acts as with none"),
        ("PartitionName=q Nodes=n1 AllowGroups=a DenyGroups=b", "AllowGroups is given, so DenyGroups has no effect"),
        (
            "SelectTypeParameters=CR_CPU\nPartitionName=q Nodes=n1 SelectTypeParameters=CR_Socket",
            "Partition q: SelectTypeParameters has no effect: the cluster shares nodes neither by cores",
        ),
        ("SchedulerParameters=bf_windw=3", 'unknown option "bf_windw" has no effect (did you mean bf_window?)'),
        ("KillWait=3\nKillWait=4", "KillWait is given more than once; the last value is used"),
        ("ControlMachine=h", "ControlMachine is an old form of SlurmctldHost"),
        ("FastSchedule=1", "FastSchedule was removed from Slurm and has no effect"),
        (
            "NodeName=x CPUs=7 Sockets=2 CoresPerSocket=2",
            "neither 2 sockets, 4 cores nor 4 threads; CPUs=4 is used",
        ),
        ("NodeName=x CoreSpecCount=9", "CoreSpecCount=9 leaves no core of 1"),
        ("NodeName=x CPUs=2 CpuSpecList=0-1", "CPUSpecList=0-1 leaves no CPU of 2"),
        ("NodeName=x RealMemory=10 MemSpecLimit=10", "MemSpecLimit=10 leaves nothing of RealMemory=10"),
        ("PartitionName=q Nodes=n1 Default=YES", "Default=YES is given for q and p; p is used"),
        ("PartitionName=q Nodes=n1 Priority=3", "Priority of a partition is an old form of PriorityTier"),
        ("PartitionName=q Nodes=n1 AllowQos=a DenyQos=b", "AllowQos is given, so DenyQos has no effect"),
        ("SlurmdPort=6817", "SlurmdPort=6817 is also SlurmctldPort"),
    ],
)
def test_what_works_otherwise_than_the_file_suggests_is_a_warning(tmp_path: Path, text: str, message: str) -> None:
    assert any(message in item for item in warnings(tmp_path, text + "\n"))


def test_a_key_that_does_nothing_yet_is_named_once_and_only_if_it_would_change_something(tmp_path: Path) -> None:
    nodes = "NodeName=n1 BcastAddr=a\nNodeName=n2 BcastAddr=b\nPartitionName=p Nodes=ALL\n"
    text = "SwitchType=switch/none\nVSizeFactor=0\n"
    assert warnings(tmp_path, text, nodes=nodes) == [
        "slurm.conf:6: BcastAddr of NodeName is not implemented yet and has no effect"
    ]


def test_gres_conf_that_disagrees_with_slurm_conf_is_a_warning(tmp_path: Path) -> None:
    nodes = "NodeName=n1 Gres=gpu:4\nPartitionName=p Nodes=ALL\n"
    found = warnings(tmp_path, "GresTypes=gpu\n", nodes=nodes, gres="Name=gpu File=/dev/nvidia[0-1]\n")
    assert found == ["slurm.conf:5: Node n1: gres.conf describes 2 of gpu, Gres= says 4"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x7fELF\x00\x01", "not a text file: it holds a NUL byte"),
        (b"ClusterName=a\n# caf\xe9\n", ":2: not UTF-8 text"),
        (b"", "ClusterName is missing"),
        (b"\\", "ClusterName is missing"),
        (b"=" * 100_000, "Parse error"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_with_its_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "slurm.conf"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(str(path))
    assert message in caught.value.message
    assert "slurm.conf" in caught.value.message
    assert max(len(line) for line in caught.value.message.splitlines()) < 500


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "no.conf", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=reason):
            load(str(path))


def test_includes_that_go_round_are_an_error_not_a_hang(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("Include b.conf\n")
    (tmp_path / "b.conf").write_text("Include a.conf\n")
    assert errors(tmp_path, "Include a.conf\n") == ["b.conf:1: Include a.conf: the file includes itself"]


def test_a_user_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, base=BASE.replace("SlurmUser=root", "SlurmUser=no-such-user"))
    with pytest.raises(ConfigError, match=r"slurm.conf:3: SlurmUser=no-such-user: no such user"):
        load(path)
    assert load(path, check_users=False).settings.text("SlurmUser") == "no-such-user"


def test_a_number_for_slurm_user_needs_no_entry(tmp_path: Path) -> None:
    """On machines that have none for the user of the controller's container."""
    path = write(tmp_path, base=BASE.replace("SlurmUser=root", "SlurmUser=64321"))
    assert load(path).settings.text("SlurmUser") == "64321"
    path = write(tmp_path, base=BASE.replace("SlurmUser=root", "SlurmUser=4294967295"))
    with pytest.raises(ConfigError, match="SlurmUser=4294967295: no such user"):
        load(path)


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    text = BASE + "KillWait=7\nNodeName=n1\nPartitionName=p Nodes=n1\n"
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert load(str(path), check_users=False).settings.integer("KillWait") == 7


def test_a_report_counts_and_colours(tmp_path: Path) -> None:
    _, found = examine(write(tmp_path, "Nonsense=1\nJobCompPassScript=/x\n"), check_users=False)
    plain, coloured = report(found), report(found, color=True)
    assert plain.splitlines()[-1] == "1 error, 1 warning"
    assert plain.startswith("error: ")
    assert "\x1b[31merror:\x1b[0m " in coloured
    assert "\x1b[33mwarning:\x1b[0m " in coloured
    assert report([]) == ""


def test_a_thousand_errors_are_counted_and_two_hundred_printed(tmp_path: Path) -> None:
    _, found = examine(write(tmp_path, "Nonsense=1\n" * 1000), check_users=False)
    lines = report(found).splitlines()
    assert len(lines) == 202
    assert lines[-2:] == ["error: … and 800 more", "1000 errors, 0 warnings"]


def test_a_good_file_has_nothing_to_report(tmp_path: Path) -> None:
    assert loaded(tmp_path).warnings == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PreemptMode=CANCEL", "PreemptType=preempt/none and PreemptMode=CANCEL are incompatible"),
        ("PreemptType=preempt/partition_prio", "PreemptMode=OFF are incompatible"),
        ("PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND", "PreemptMode=SUSPEND requires PreemptMode=GANG"),
        ("PreemptType=preempt/partition_prio\nPreemptMode=CANCEL,REQUEUE", "only one of these"),
    ],
)
def test_preempt_modes_that_cannot_work_are_errors(tmp_path: Path, text: str, message: str) -> None:
    assert any(message in item for item in errors(tmp_path, text + "\n"))
