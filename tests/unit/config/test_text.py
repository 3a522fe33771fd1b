"""What is printed and written: show config, slurm.conf from values, the reference."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.configuration import counts, markdown

from spritz.config.load import load
from spritz.config.render import gres_conf, quoted, slurm_conf, whole
from spritz.config.show import show_config
from tests.unit.config.configs import FILES, loaded


def shown(directory: Path, text: str) -> dict[str, str]:
    return dict(show_config(loaded(directory, text), {"SLURM_VERSION": "25.05.0", "SlurmUser": "root(0)"}))


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        # As scontrol of 22.05 prints them.
        ("", "MinJobAge", "300 sec"),
        ("", "MaxArraySize", "1001"),
        ("", "AccountingStorageEnforce", "none"),
        ("AccountingStorageEnforce=1", "AccountingStorageEnforce", "associations"),
        ("AccountingStorageEnforce=2", "AccountingStorageEnforce", "associations,limits"),
        ("AccountingStorageEnforce=safe", "AccountingStorageEnforce", "associations,limits,safe"),
        ("AccountingStorageEnforce=nojobs", "AccountingStorageEnforce", "nojobs,nosteps"),
        ("AccountingStorageEnforce=all", "AccountingStorageEnforce", "associations,limits,qos,safe,wckeys"),
        ("AccountingStorageEnforce=wckeys", "TrackWCKey", "Yes"),
        ("", "AllowSpecResourcesUsage", "No"),
        ("", "AuthInfo", "(null)"),
        ("", "CpuFreqDef", "Unknown"),
        ("", "DefMemPerNode", "UNLIMITED"),
        ("", "EpilogMsgTime", "2000 usec"),
        ("", "JobRequeue", "1"),
        ("", "KillOnBadExit", "0"),
        ("", "OverTimeLimit", "0 min"),
        ("OverTimeLimit=INFINITE", "OverTimeLimit", "UNLIMITED"),
        ("", "PowerPlugin", ""),
        ("", "PreemptMode", "OFF"),
        ("", "PreemptExemptTime", "00:00:00"),
        ("", "PrologEpilogTimeout", "65534"),
        ("", "ResumeRate", "300 nodes/min"),
        ("", "SrunPortRange", "0-0"),
        ("SrunPortRange=60001-63000", "SrunPortRange", "60001-63000"),
        ("", "SuspendTime", "INFINITE"),
        ("", "TaskPluginParam", "(null type)"),
        ("", "TrackWCKey", "No"),
        ("", "UsePam", "No"),
        ("", "VSizeFactor", "0 percent"),
        ("", "SlurmctldPort", "6817"),
        ("SlurmctldPort=6817-6818", "SlurmctldPort", "6817-6818"),
        ("SelectTypeParameters=cr_core_memory", "SelectTypeParameters", "CR_CORE_MEMORY"),
        ("DefMemPerCPU=100", "DefMemPerCPU", "100"),
        ("MaxMemPerNode=100", "MaxMemPerNode", "100"),
        ("DefCpuPerGPU=4 DefMemPerGPU=10", "JobDefaults", "DefCpuPerGPU=4,DefMemPerGPU=10"),
        ("PriorityMaxAge=1-0", "PriorityMaxAge", "1-00:00:00"),
        ("SlurmctldHost=b(10.0.0.2)", "SlurmctldHost[1]", "b(10.0.0.2)"),
        ("", "SlurmctldHost[0]", "h"),
        ("", "SlurmUser", "root(0)"),
        ("", "SLURM_VERSION", "25.05.0"),
        ("", "MaxNodeCount", "4"),
        ("", "ClusterName", "c"),
        ("PrologFlags=Contain", "PrologFlags", "Alloc,Contain"),
        ("", "PrologFlags", "(null)"),
    ],
)
def test_show_config_has_slurm_s_forms(tmp_path: Path, text: str, key: str, expected: str) -> None:
    assert shown(tmp_path, text + "\n")[key] == expected


def test_priority_weights_are_shown_with_multifactor_only(tmp_path: Path) -> None:
    assert "PriorityWeightAge" in shown(tmp_path, "PriorityType=priority/multifactor\n")
    plain = shown(tmp_path, "PriorityType=priority/basic\n")
    assert plain["PriorityType"] == "priority/basic"
    assert not [key for key in plain if key.startswith("PriorityWeight") or key == "PriorityFlags"]


def test_show_config_is_in_the_order_of_22_05_with_later_keys_between(tmp_path: Path) -> None:
    recorded = (FILES / "show-config-22.05.txt").read_text().splitlines()
    keys = list(shown(tmp_path, "PriorityType=priority/basic\n"))
    live = {"BOOT_TIME", "HASH_VAL", "MULTIPLE_SLURMD", "NEXT_JOB_ID", "SLURM_CONF"}
    expected = [line.split()[0] for line in recorded]
    assert [key for key in keys if key in expected] == [key for key in expected if key not in live]


def test_cgroup_settings_are_shown_by_name_where_a_plugin_uses_them(tmp_path: Path) -> None:
    def section(text: str) -> list[tuple[str, str]]:
        pairs = show_config(loaded(tmp_path, text, cgroup="ConstrainCores=yes\n"))
        heading = ("", "Cgroup Support Configuration:")
        return pairs[pairs.index(heading) + 1 :] if heading in pairs else []

    assert section("ProctrackType=proctrack/linuxproc\nJobAcctGatherType=jobacct_gather/linux\n") == []
    for used in ("ProctrackType=proctrack/cgroup", "TaskPlugin=task/affinity,task/cgroup"):
        found = section(f"{used}\n")
        assert found == sorted(found)
        assert dict(found)["ConstrainCores"] == "yes"
        assert dict(found)["AllowedRAMSpace"] == "100.0%"
        assert dict(found)["MinRAMSpace"] == "30 MB"
        assert dict(found)["MemorySwappiness"] == "(null)"


def test_a_slurm_conf_is_written_from_values(tmp_path: Path) -> None:
    text = slurm_conf(
        {"ClusterName": "up", "KillWait": 5, "TrackWCKey": False, "GresTypes": ("gpu", "shard"), "MailDomain": None},
        [{"NodeName": "n[1-2]", "CPUs": 4, "Gres": ("gpu:h100:2",), "Reason": "not # yet"}],
        [{"PartitionName": "all", "Nodes": "ALL", "Default": True, "MaxTime": 90}],
        hosts=["localhost(127.0.0.1)"],
        header="written by spritz",
    )
    assert text == (
        "# written by spritz\n\nSlurmctldHost=localhost(127.0.0.1)\nClusterName=up\nKillWait=5\nTrackWCKey=NO\n"
        "GresTypes=gpu,shard\n\n# Nodes\n"
        'NodeName=n[1-2] CPUs=4 Gres=gpu:h100:2 Reason="not \\# yet"\n\n# Partitions\n'
        "PartitionName=all Nodes=ALL Default=YES MaxTime=01:30:00\n"
    )
    path = tmp_path / "slurm.conf"
    path.write_text(text)
    assert load(str(path)).nodes[0].reason == "not # yet"


def test_a_gres_conf_is_written_from_values() -> None:
    text = gres_conf([{"Name": "gpu", "File": "/dev/nvidia[0-1]", "Cores": "0-3", "Links": ""}])
    assert text == "Name=gpu File=/dev/nvidia[0-1] Cores=0-3\n"


@pytest.mark.parametrize("value", ["a\nb", 'a "b', '"a', "a\0"])
def test_what_no_file_can_hold_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="no configuration file can hold"):
        quoted(value)


def test_a_key_that_is_none_is_refused_when_written() -> None:
    with pytest.raises(ValueError, match="Slurm has no key Colour"):
        slurm_conf({"Colour": "red"})


@pytest.mark.parametrize("name", ["laptop", "gpubox", "cluster"])
def test_the_whole_configuration_written_out_means_the_same(tmp_path: Path, name: str) -> None:
    config = load(str(FILES / name / "slurm.conf"))
    path = tmp_path / "slurm.conf"
    path.write_text(whole(config))
    for other in FILES.joinpath(name).glob("*gres.conf"):
        (tmp_path / other.name).write_text(other.read_text())
    again = load(str(path))
    assert again.settings.values == config.settings.values
    assert again.nodes == config.nodes
    assert again.partitions == config.partitions
    assert again.cluster == config.cluster


def test_the_digest_changes_with_any_file(tmp_path: Path) -> None:
    first = loaded(tmp_path).digest
    assert loaded(tmp_path).digest == first
    assert loaded(tmp_path, cgroup="# nothing\n").digest != first


def test_the_reference_has_every_key_and_says_whether_it_works() -> None:
    text = markdown()
    assert "| `KillWait` | a whole number of seconds from 0 to 65533 | 30 | done |" in text
    assert "| `JobCompPassScript` | an absolute path |  | later | Program that prints" in text
    assert "none: Spritz loads none of Slurm's C plugins" in text
    keys, options = text.split("## Options in lists")
    assert sum(counts().values()) == keys.count("\n| `")
    assert (
        "| `SchedulerParameters` | allow_zero_lic, assoc_limit_stop, batch_sched_delay, bf_hetjob_immediate" in options
    )
