"""Parts of GPUs (MIG) as devices of their own. Source: gres.conf(5) MultipleFiles; NVIDIA's names of profiles."""

from __future__ import annotations

from pathlib import Path

from spritz.config.gres import GresSpec, parse_spec
from spritz.model.resources import GresAllocation
from spritz.node.launch.gpus import device_files
from spritz.notation.gres import parse, parse_gpus
from tests.unit.config.configs import loaded

CAPS = "/dev/nvidia-caps/nvidia-cap"
GRES = "".join(
    f"NodeName=n1 Name=gpu Type={kind} MultipleFiles=/dev/nvidia0,{CAPS}{first},{CAPS}{first + 1}\n"
    for kind, first in (("1g.10gb", 21), ("1g.10gb", 30), ("3g.40gb", 39))
)
NODES = "NodeName=n1 CPUs=4 Gres=gpu:1g.10gb:2,gpu:3g.40gb:1\nPartitionName=p Nodes=ALL Default=YES\n"


def test_each_part_is_a_device_with_several_files(tmp_path: Path) -> None:
    (node,) = loaded(tmp_path, "GresTypes=gpu\n", nodes=NODES, gres=GRES).nodes
    assert [(line.type, line.count, line.first_index) for line in node.capacity.gres] == [
        ("1g.10gb", 1, 0),
        ("1g.10gb", 1, 1),
        ("3g.40gb", 1, 2),
    ]
    assert node.capacity.gres[1].files == (f"/dev/nvidia0,{CAPS}30,{CAPS}31",)


def test_a_file_that_several_parts_need_stays_open_to_each(tmp_path: Path) -> None:
    (node,) = loaded(tmp_path, "GresTypes=gpu\n", nodes=NODES, gres=GRES).nodes
    given = (GresAllocation(name="gpu", type="1g.10gb", count=1, indexes="2"),)
    denied, allowed = device_files(node.capacity.gres, given)
    assert set(allowed) == {"/dev/nvidia0", f"{CAPS}30", f"{CAPS}31"}
    assert set(denied) == {f"{CAPS}21", f"{CAPS}22", f"{CAPS}39", f"{CAPS}40"}


def test_shares_of_a_type_are_on_its_gpus_alone(tmp_path: Path) -> None:
    nodes = "NodeName=n1 CPUs=4 Gres={}\nPartitionName=p Nodes=ALL Default=YES\n"
    for gres, expected in (
        ("gpu:1g.10gb:2,gpu:h100:2,shard:h100:8", [(8, 2, 4)]),
        ("gpu:1g.10gb:2,gpu:h100:2,shard:8", [(8, 0, 2)]),
        ("shard:h100:8,gpu:h100:1,gpu:a100:1,gpu:h100:1", [(4, 0, 4), (4, 2, 4)]),
    ):
        (node,) = loaded(tmp_path, "GresTypes=gpu,shard\n", nodes=nodes.format(gres), gres="").nodes
        shards = [line for line in node.capacity.gres if line.name == "shard"]
        assert [(line.count, line.first_index, line.per_device) for line in shards] == expected


def test_a_profile_is_a_type_with_or_without_a_count() -> None:
    assert parse_spec("gpu:1g.10gb") == GresSpec("gpu", "1g.10gb", 1)
    assert parse_spec("gpu:1g.10gb:2") == GresSpec("gpu", "1g.10gb", 2)
    assert parse_spec("gpu:2") == GresSpec("gpu", "", 2)
    assert [(one.type, one.count) for one in (*parse("gpu:1g.10gb:2"), *parse_gpus("3g.40gb"))] == [
        ("1g.10gb", 2),
        ("3g.40gb", 1),
    ]
