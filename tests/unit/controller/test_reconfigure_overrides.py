"""What ReconfigFlags and slurmctld -R keep of partitions and power saving."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from spritz.controller.reconfigure_overrides import apply_reconfig_flags, with_partitions
from spritz.core.state import State
from spritz.model.cluster.power import PowerPolicy
from spritz.model.cluster.settings import ClusterSettings
from spritz.model.commands.cluster import Configure
from spritz.model.node.partition import Partition
from spritz.model.node.record import NodeConfig
from spritz.model.states import PartitionState
from spritz_testing.builders import capacity

DEBUG = Partition(name="debug", nodes=("n1", "n2"), nodes_text="ALL", default=True, max_time_minutes=60)
NEW = Partition(name="new", nodes=("n1",), nodes_text="n1", default=True)
#: as scontrol has left it: closed, longer, and no longer everybody's
IN_FORCE = {
    "debug": replace(DEBUG, state=PartitionState.DRAIN, max_time_minutes=120, nodes=("n1", "n3")),
    "made": Partition(name="made", nodes=("n1", "n3"), nodes_text="n[1,3]"),
}


def read(*partitions: Partition) -> Configure:
    """The files' configuration of n1 and n2."""
    nodes = tuple(NodeConfig(name=name, capacity=capacity()) for name in ("n1", "n2"))
    return Configure(settings=ClusterSettings(), nodes=nodes, partitions=partitions)


def state(**power: Any) -> State:
    found = State(ClusterSettings(power=PowerPolicy(**power)))
    found.partitions.update(IN_FORCE)
    return found


@pytest.mark.parametrize("flags", [(), ("KeepNodeStateFuture",)])
def test_without_flags_it_is_as_the_files_say(flags: tuple[str, ...]) -> None:
    assert apply_reconfig_flags(read(DEBUG, NEW), state(), flags) == read(DEBUG, NEW)


def test_the_state_alone_is_kept() -> None:
    found = apply_reconfig_flags(read(DEBUG, NEW), state(), ("keeppartstate",))
    assert found == read(replace(DEBUG, state=PartitionState.DRAIN), NEW)


def test_all_that_scontrol_made_is_kept_on_the_nodes_that_there_are() -> None:
    """With KeepPartInfo, which supersedes the other; there is one default partition, the one that it is."""
    found = apply_reconfig_flags(read(DEBUG, NEW), state(), ("KeepPartState", "KeepPartInfo"))
    assert found == with_partitions(read(DEBUG, NEW), IN_FORCE)
    debug, new, made = found.partitions
    assert debug == replace(IN_FORCE["debug"], nodes=("n1", "n2"))
    assert new == replace(NEW, default=False)
    assert made == replace(IN_FORCE["made"], nodes=("n1",))


def test_what_power_saving_leaves_up_is_kept_as_far_as_it_is_there() -> None:
    had = state(kept=((("n1", "n3"), 1), (("n3",), 0)), kept_partitions=("debug", "made"), kept_states=("DOWN",))
    power = apply_reconfig_flags(read(DEBUG, NEW), had, ("KeepPowerSaveSettings",)).settings.power
    assert (power.kept, power.kept_partitions, power.kept_states) == (((("n1",), 1),), ("debug",), ("DOWN",))
    assert apply_reconfig_flags(read(DEBUG, NEW), had, ()).settings.power == PowerPolicy()
