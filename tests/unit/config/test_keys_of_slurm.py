"""Every key that Slurm took in one of its releases is known: it works, or a warning says what it does not do.

A key that is in no table stops the controller, and files of sites are older and newer than one release.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.config import schema
from spritz.config.alone import KINDS, examine
from spritz.config.load import load_slurmdbd
from spritz.config.schema.removed import GONE, OLD_HOSTS, RENAMED
from tests.unit.config.configs import errors, loaded, warnings

GOLDEN = Path(__file__).parents[2] / "golden" / "config_keys.txt"

#: key -> why it is unknown all the same
UNKNOWN = {
    "AllowUsers": "of FrontendName",
    "DenyUsers": "of FrontendName",
    "FrontendAddr": "of FrontendName",
    "FrontendName": "refused: no front end nodes",
    "Location": "of PowerAction",
    "Program": "of PowerAction",
    "Priority": "of PartitionName: two keys of today",
}


def listed() -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    for line in GOLDEN.read_text(encoding="ascii").splitlines()[1:]:
        words = line.split()
        if words[0].endswith(":"):
            file = words.pop(0)[:-1]
        files.setdefault(file, []).extend(words)
    return files


def known(file: str) -> set[str]:
    tables = {
        "cgroup.conf": schema.cgroup_keys,
        "gres.conf": schema.gres_keys,
        "helpers.conf": schema.helpers_keys,
        "job_container.conf": schema.container_keys,
        "oci.conf": schema.oci_keys,
        "slurmdbd.conf": schema.slurmdbd_keys,
        "topology.conf": schema.topology_keys,
    }
    scope = "" if file == "slurm.conf" else file
    old = {*RENAMED.get(scope, {}), *GONE.get(scope, {})}
    if scope:
        return set(tables[file]()) | old
    records = {name for table in schema.record_keys().values() for name in table}
    return set(schema.slurm_keys()) | records | old | set(OLD_HOSTS)


@pytest.mark.parametrize("file", listed())
def test_every_key_of_slurms_is_known(file: str) -> None:
    names = listed()[file]
    assert [name for name in names if name.lower() not in known(file) and name not in UNKNOWN] == []
    assert file in KINDS


def test_cryptotype_counts_as_credtype(tmp_path: Path) -> None:
    (said, *more) = warnings(tmp_path, "CryptoType=crypto/munge\n")
    assert said.endswith("CryptoType is an old name of CredType; crypto/munge counts as cred/munge")
    assert "CredType has no effect" in more[0]
    assert loaded(tmp_path, "CryptoType=crypto/munge\n").settings.text("CredType") == "cred/munge"
    assert errors(tmp_path, "CryptoType=crypto/openssl\n") == [
        "slurm.conf:4: CredType=cred/openssl: expected one of cred/slurm, cred/munge, cred/none"
    ]
    assert errors(tmp_path, "CredType=crypto/munge\n")


def test_old_keys_of_other_files_warn(tmp_path: Path) -> None:
    cgroup = "AllowedDevicesFile=/x\nMemoryLimitEnforcement=yes\nMemoryLimitThreshold=1\nTaskAffinity=yes\n"
    said = warnings(tmp_path, cgroup=cgroup + "CgroupReleaseAgentDir=/x\nConstrainCores=yes\n")
    assert [text.split(" was ")[0] for text in said] == [
        "cgroup.conf:1: AllowedDevicesFile",
        "cgroup.conf:2: MemoryLimitEnforcement",
        "cgroup.conf:3: MemoryLimitThreshold",
        "cgroup.conf:4: TaskAffinity",
        "cgroup.conf:5: CgroupReleaseAgentDir",
    ]
    path = tmp_path / "slurmdbd.conf"
    path.write_text("StepPurge=2\nPurgeJobMonths=12\nDisableRollups=yes\nAllowedDevicesFile=/x\n")
    _, items = examine(str(path), "slurmdbd.conf")
    assert [(item.severity, item.message) for item in items] == [
        ("warning", "StepPurge is an old name of PurgeStepAfter"),
        ("warning", "PurgeJobMonths is an old name of PurgeJobAfter"),
        ("warning", "DisableRollups of slurmdbd.conf is not implemented yet and has no effect"),
        ("error", 'Unknown key "AllowedDevicesFile" in slurmdbd.conf'),
    ]
    path.write_text("StepPurge=2\n")
    assert load_slurmdbd(str(path)).values == {"PurgeStepAfter": "2month"}


@pytest.mark.parametrize(
    ("given", "key", "option", "counts"),
    [
        ("SchedulerParameters=max_switch_wait=24:00:00", "SchedulerParameters", "max_switch_wait", "24"),
        ("SchedulerParameters=max_switch_wait=day", "SchedulerParameters", "max_switch_wait", "0"),
        ("SchedulerParameters=bf_window=2880min", "SchedulerParameters", "bf_window", "2880"),
        ("SchedulerParameters=defer,bf_min_prio_reserve=5.5", "SchedulerParameters", "bf_min_prio_reserve", "5"),
        ("SchedulerParameters=bf_interval=-1s", "SchedulerParameters", "bf_interval", "-1"),
        ("SlurmctldParameters=rl_enable,rl_bucket_size=40/s", "SlurmctldParameters", "rl_bucket_size", "40"),
        ("PreemptParameters=reorder_count=3x", "PreemptParameters", "reorder_count", "3"),
        ("DependencyParameters=max_depend_depth=4.0", "DependencyParameters", "max_depend_depth", "4"),
    ],
)
def test_text_behind_a_number_is_passed_over(tmp_path: Path, given: str, key: str, option: str, counts: str) -> None:
    """Slurm reads these with atoi; a file that it takes starts our controller."""
    (said,) = [text for text in warnings(tmp_path, given + "\n") if option in text]
    assert f" counts as {option}={counts} (Slurm reads a whole number" in said
    assert loaded(tmp_path, given + "\n").settings.option(key, option) == counts


@pytest.mark.parametrize("text", ["30", "+30", "030", "-0"])
def test_a_number_alone_needs_no_warning(tmp_path: Path, text: str) -> None:
    given = f"SchedulerParameters=max_switch_wait={text}\n"
    assert warnings(tmp_path, given) == []
    assert loaded(tmp_path, given).settings.option("SchedulerParameters", "max_switch_wait") in ("30", "0")


def test_an_option_that_needs_a_number_has_no_effect_without_one(tmp_path: Path) -> None:
    given = "SchedulerParameters=bf_window,defer\n"
    (said,) = warnings(tmp_path, given)
    assert said.endswith("SchedulerParameters: bf_window without a number has no effect (write bf_window=NUMBER)")
    assert loaded(tmp_path, given).settings.words("SchedulerParameters") == ("defer",)


@pytest.mark.parametrize("given", ["PreemptParameters=min_exempt_priority=5x", "SchedulerParameters=bf_window=0h"])
def test_what_slurm_calls_invalid_stays_an_error(tmp_path: Path, given: str) -> None:
    assert len(errors(tmp_path, given + "\n")) == 1


def test_cores_may_stand_in_brackets(tmp_path: Path) -> None:
    """Slurm passes over letters that are no numbers; its own tests write Cores=[0-3]."""
    nodes = "NodeName=n1 CPUs=4 Gres=gpu:2\nPartitionName=p Nodes=ALL\n"
    gres = "Name=gpu File=/dev/a0 Cores=[0-1]\nName=gpu File=/dev/a1 Cores=2-3\n"
    assert [line.cores for line in loaded(tmp_path, "GresTypes=gpu\n", nodes=nodes, gres=gres).gres.lines] == [
        "0-1",
        "2-3",
    ]


def test_nodes_may_have_helpers_of_their_own(tmp_path: Path) -> None:
    """The example of helpers.conf(5)."""
    text = "NodeFeaturesPlugins=node_features/helpers\n"
    lines = (
        "NodeName=n[1-2] Feature=a1,a2 Helper=/path/one",
        "NodeName=n3 Feature=a1 Helper=/path/two Flags=rebootless",
        "Feature=c1 Helper=/path/all Flags=rebootless",
    )
    file = loaded(tmp_path, text, helpers="\n".join(lines)).helpers
    assert {
        node: {name: h.program for name, h in file.of_node(node).helpers.items()} for node in ("n1", "n3", "n4")
    } == {
        "n1": {"a1": "/path/one", "a2": "/path/one", "c1": "/path/all"},
        "n3": {"a1": "/path/two", "c1": "/path/all"},
        "n4": {"c1": "/path/all"},
    }
    policy = file.policy(loaded(tmp_path, text, helpers="\n".join(lines)).settings)
    assert (policy.names, policy.rebootless) == (("a1", "a2", "c1"), ("c1",))
    twice = "\n".join((*lines, "Feature=a1 Helper=/path/other"))
    assert errors(tmp_path, text, helpers=twice) == ["helpers.conf:4: Feature=a1 has two helpers"]
    assert errors(tmp_path, text, helpers="NodeName=n[1 Feature=a Helper=/x\n")[0].startswith(
        "helpers.conf:1: NodeName=n[1: "
    )
