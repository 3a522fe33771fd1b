"""Keys of power saving. Source: slurm.conf(5) SuspendExcNodes, ResumeProgram, SuspendProgram."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.config.power import changed_exceptions, exceptions_text, kept_nodes
from spritz.model.cluster.power import PowerPolicy
from tests.unit.config.configs import errors, loaded, warnings


def test_policy(tmp_path: Path) -> None:
    text = (
        "ResumeProgram=/r\nSuspendProgram=/s\nSuspendTime=60\nSuspendTimeout=5\nResumeTimeout=90\nResumeRate=0\n"
        "SuspendRate=7\nSuspendExcNodes=n[1-2]:1,n4\nSuspendExcParts=p\nSuspendExcStates=DOWN,DRAIN,PERFCTRS\n"
        "SlurmctldParameters=cloud_reg_addrs,idle_on_node_suspend\nPrivateData=cloud\n"
    )
    nodes = "NodeName=n[1-4] State=CLOUD SuspendTime=9\nPartitionName=p Nodes=ALL SuspendTime=-1 PowerDownOnIdle=YES\n"
    config = loaded(tmp_path, text, nodes=nodes)
    power = config.cluster.power
    assert (power.resumes, power.suspends, power.suspend_seconds, power.suspend_timeout_seconds) == (True, True, 60, 5)
    assert (power.resume_timeout_seconds, power.resume_rate, power.suspend_rate) == (90, 0, 7)
    assert power.kept == ((("n1", "n2"), 1), (("n4",), 0))
    assert (power.kept_partitions, power.kept_states) == (("p",), ("DOWN", "DRAIN"))
    assert (power.idle_on_suspend, power.registered_addresses, power.hides) == (True, True, False)
    assert (config.nodes[0].initial_state, config.nodes[0].suspend_seconds) == ("CLOUD", 9)
    assert (config.partitions[0].suspend_seconds, config.partitions[0].power_down_on_idle) == (0xFFFFFFFF, True)


@pytest.mark.parametrize(("text", "cloud", "others"), [("", 90.0, 100.0), ("node_reg_mem_percent=97.5", 97.5, 97.5)])
def test_how_much_of_its_memory_a_node_must_have(tmp_path: Path, text: str, cloud: float, others: float) -> None:
    found = loaded(tmp_path, f"SlurmctldParameters={text}\n" if text else "").cluster
    assert (found.cloud_memory_percent, found.memory_percent) == (cloud, others)


@pytest.mark.parametrize("text", ["node_reg_mem_percent=0", "node_reg_mem_percent=101", "node_reg_mem_percent=x"])
def test_what_is_no_percentage_is_an_error(tmp_path: Path, text: str) -> None:
    (said,) = errors(tmp_path, f"SlurmctldParameters={text}\n")
    assert f"{text}: expected a percentage" in said


def test_no_node_is_suspended_by_default(tmp_path: Path) -> None:
    power = loaded(tmp_path).cluster.power
    assert (power.resumes, power.suspends, power.suspend_seconds, power.hides) == (False, False, None, True)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ()),
        ("a[1-2],b", ((("a1", "a2", "b"), 0),)),
        # The manual: a count is of all nodes since the last one.
        ("a[1-2],b[1,3]:2", ((("a1", "a2", "b1", "b3"), 2),)),
        ("a[1-2]:1,b[1-2]:2", ((("a1", "a2"), 1), (("b1", "b2"), 2))),
    ],
)
def test_kept_nodes(text: str, kept: object) -> None:
    assert kept_nodes(text) == kept


@pytest.mark.parametrize(
    ("key", "sign", "text", "shown"),
    [
        ("SuspendExcNodes", "", "n[2-3]:1", "n[2-3]:1"),
        ("SuspendExcNodes", "+", "n4,n5", "n[1-2]:1,n[4-5]"),
        ("SuspendExcNodes", "-", "n1", "n2:1"),
        ("SuspendExcNodes", "", "", "(null)"),
        ("SuspendExcParts", "+", "q,p", "p,q"),
        ("SuspendExcParts", "-", "p", "(null)"),
        ("SuspendExcStates", "+", "drain", "DOWN,DRAIN"),
        ("SuspendExcStates", "", "fail", "FAIL"),
    ],
)
def test_what_is_left_up_can_be_changed(key: str, sign: str, text: str, shown: str) -> None:
    policy = PowerPolicy(kept=((("n1", "n2"), 1),), kept_partitions=("p",), kept_states=("DOWN",))
    before = {"SuspendExcNodes": "n[1-2]:1", "SuspendExcParts": "p", "SuspendExcStates": "DOWN"}
    assert exceptions_text(policy) == before
    assert exceptions_text(changed_exceptions(policy, key, sign, text)) == {**before, key: shown}


@pytest.mark.parametrize(("key", "text"), [("SuspendExcNodes", "n1:x"), ("SuspendExcStates", "tired")])
def test_what_is_no_list_of_these_changes_nothing(key: str, text: str) -> None:
    with pytest.raises(ValueError):
        changed_exceptions(PowerPolicy(), key, "", text)


@pytest.mark.parametrize("text", ["n[1-2", "n1:x", "n1:0", "n1:"])
def test_nodes_that_are_none_are_an_error(tmp_path: Path, text: str) -> None:
    (said,) = errors(tmp_path, f"SuspendExcNodes={text}\n")
    assert f"SuspendExcNodes={text}" in said


def test_what_has_no_effect_is_said(tmp_path: Path) -> None:
    (said,) = warnings(tmp_path, "SuspendExcNodes=x9\n")
    assert "names no node x9" in said
    (said,) = warnings(tmp_path, "ResumeProgram=/r\n")
    assert "ResumeProgram without SuspendProgram" in said
