"""scontrol: partitions made, changed and deleted."""

from __future__ import annotations

import pytest

from spritz.cli.scontrol import main
from tests.unit.cli.site import Site


@pytest.mark.parametrize(
    ("word", "before", "after"),
    [
        ("NODE", "NO", ("EXCLUSIVE", False, False)),
        ("USER", "YES:2", ("YES:2", True, False)),
        ("TOPO", "EXCLUSIVE", ("NO", False, True)),
        ("NO", "FORCE:3", ("FORCE:3", False, False)),
    ],
)
def test_exclusive_of_a_partition_is_one_word_for_three(
    site: Site, word: str, before: str, after: tuple[object, ...]
) -> None:
    made = "PartitionName=whole", f"OverSubscribe={before}", "ExclusiveUser=YES"
    assert site.run(main, "create", *made).err == ""
    assert site.run(main, "update", "PartitionName=whole", f"Exclusive={word}").err == ""
    whole = site.world.state.partitions["whole"]
    assert (whole.oversubscribe, whole.exclusive_user, whole.exclusive_topo) == after


_ACCEPTABLE = "scontrol: error: Invalid input: {}\nscontrol: error: Acceptable {}\n"


def test_partitions_are_made_changed_and_deleted(site: Site) -> None:
    assert site.run(main, "create", "PartitionName=long", "Nodes=n[3-4]", "MaxTime=7-0", "Default=NO").err == ""
    long = site.world.state.partitions["long"]
    assert (long.nodes, long.max_time_minutes) == (("n3", "n4"), 7 * 1440)
    assert site.run(main, "update", "PartitionName=long", "State=DOWN", "AllowGroups=a,b", "Shared=YES:2").err == ""
    long = site.world.state.partitions["long"]
    assert (long.state.value, long.allow_groups, long.oversubscribe) == ("DOWN", ("a", "b"), "YES:2")
    for given, mode in (("cancel", "CANCEL"), ("off", "OFF"), ("suspend,gang", "GANG,SUSPEND")):
        assert site.run(main, "update", "PartitionName=long", f"PreemptMode={given}", "GraceTime=5").err == ""
        long = site.world.state.partitions["long"]
        assert (long.preempt_mode, long.grace_seconds) == (mode, 5)
    assert site.run(main, "update", "PartitionName=long", "AllowGroups=ALL", "DenyGroups=c").err == ""
    assert "\n   DenyGroups=c AllowAccounts=ALL " in site.run(main, "show", "partition", "long").out
    assert site.run(main, "update", "PartitionName=long", "TRESBillingWeights=CPU=1.5,Mem=0.25G").err == ""
    assert site.world.state.partitions["long"].billing_weights == (("cpu", 1.5), ("mem", 0.25 / 1024))
    assert "TRESBillingWeights=CPU=1.5,Mem=0.25G" in site.run(main, "show", "partition", "long").out
    for words, error in (
        (("State=nosuch",), "scontrol: error: Invalid input: State=nosuch\n"),
        (("MaxTime=abc",), "scontrol: error: Invalid input MaxTime=abc\n"),
        (
            ("nosuch=1",),
            "scontrol: error: Update of this parameter is not supported: nosuch=1\n\n"
            "scontrol: error: Request aborted\nslurm_update error: No error\n",
        ),
        (("nosuch",), "scontrol: error: Invalid input: nosuch  Request aborted\nslurm_update error: No error\n"),
        (("CpuBind=often",), "scontrol: error: Invalid CpuBind value: often"),
        (("MaxNodes=-1",), 'scontrol: error: Invalid numeric value "-1" for MaxNodes.\n'),
        (("MinNodes=abc",), 'scontrol: error: "abc" is not a valid node count\n'),
        (("OverTimeLimit=-1",), "scontrol: error: Invalid OverTimeLimit value: -1\n"),
        (("PriorityTier=70000",), "scontrol: error: Invalid PriorityTier value: 70000\n"),
        (("Hidden=maybe",), _ACCEPTABLE.format("Hidden=maybe", "Hidden values are YES and NO")),
        (
            ("OverSubscribe=maybe",),
            _ACCEPTABLE.format("OverSubscribe=maybe", "OverSubscribe values are NO, EXCLUSIVE, YES:#, and FORCE:#"),
        ),
        (("Exclusive=maybe",), "scontrol: error: Invalid Exclusive value: maybe"),
        ((), "scontrol: error: No changes specified\n"),
    ):
        ran = site.run(main, "update", "partitionname=long", *words)
        assert ran.status == 1
        assert ran.err.startswith(error)
    assert site.run(main, "update", "partitionname=x", "state=up").err.startswith(
        "slurm_update error: Invalid partition name specified\n"
    )
    assert site.run(main, "delete", "partitionname=long").err == ""
    assert "long" not in site.world.state.partitions
    assert site.run(main, "delete", "partitionname=long").err.startswith(
        "delete_partition partitionname=long: Invalid partition name specified\n"
    )


def test_job_defaults_of_a_partition_are_those_of_its_gpus(site: Site) -> None:
    assert site.run(main, "update", "partitionname=debug", "JobDefaults=DefCpuPerGPU=4,DefMemPerGPU=100").err == ""
    partition = site.world.state.partitions["debug"]
    assert (partition.default_cpus_per_gpu, partition.default_memory_mib_per_gpu) == (4, 100)
    assert "JobDefaults=DefCpuPerGPU=4,DefMemPerGPU=100" in site.run(main, "-o", "show", "partition").out
    assert site.run(main, "update", "partitionname=debug", "JobDefaults=DefCpuPerGPU=2").err == ""
    partition = site.world.state.partitions["debug"]
    assert (partition.default_cpus_per_gpu, partition.default_memory_mib_per_gpu) == (2, 0)
    ran = site.run(main, "update", "partitionname=debug", "JobDefaults=Nosuch=2")
    assert ran.status == 1
    assert ran.err.startswith("slurm_update error: Invalid JobDefaults specification\n")


def test_every_key_of_a_partition_names_a_field_and_reads_its_value() -> None:
    from spritz.cli.administration.control.update.partition import FIELDS, REFUSED
    from spritz.config.schema.partitions import PARTITION_KEYS
    from spritz.model.node.partition import Partition

    known = {key.name for key in PARTITION_KEYS} - {"PartitionName"}
    assert set(FIELDS.values()) <= set(Partition.__struct_fields__)
    assert set(FIELDS) | set(REFUSED) >= known
    assert not set(FIELDS) & set(REFUSED)
