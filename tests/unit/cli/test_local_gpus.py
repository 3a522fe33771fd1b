"""`spritz up` on a machine with GPUs: what it finds becomes a gres.conf without a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.cli.local.layout import gpu_lines, short_types
from spritz.config.load import examine


def test_found_gpus_are_written_with_their_devices_in_the_devices_order(tmp_path: Path) -> None:
    gres = "gpu:nvidia_a100-sxm4-40gb:2,gpu:nvidia_t4:1"
    lines = gpu_lines(gres)
    (tmp_path / "gres.conf").write_text("\n".join(lines) + "\n")
    (tmp_path / "slurm.conf").write_text(
        f"ClusterName=c\nSlurmctldHost=h\nGresTypes=gpu\nNodeName=n1 CPUs=4 RealMemory=100 Gres={gres}\n"
        "PartitionName=p Nodes=ALL Default=YES\n"
    )
    config, found = examine(str(tmp_path / "slurm.conf"), check_users=False)
    assert config is not None, found
    assert found == ()
    devices = [(one.type, one.first_index, one.files) for one in config.nodes[0].capacity.gres]
    assert devices == [
        ("nvidia_a100-sxm4-40gb", 0, ("/dev/nvidia0", "/dev/nvidia1")),
        ("nvidia_t4", 2, ("/dev/nvidia2",)),
    ]


@pytest.mark.parametrize(
    ("driver", "written"),
    [
        ("gpu:nvidia_h100_80gb_hbm3:8", "gpu:h100:8"),
        ("gpu:nvidia_a100-sxm4-40gb:2,gpu:nvidia_t4:1", "gpu:a100:2,gpu:t4:1"),
        ("gpu:nvidia_geforce_rtx_4090:2", "gpu:rtx_4090:2"),
        ("gpu:tesla_v100-sxm2-32gb:4", "gpu:v100:4"),
        ("gpu:nvidia_gh200_480gb:1", "gpu:gh200:1"),
        ("gpu:nvidia_graphics_device:1", "gpu:nvidia_graphics_device:1"),
        ("gpu:nvidia_h100_80gb_hbm3:1,gpu:nvidia_h100_pcie:1", "gpu:nvidia_h100_80gb_hbm3:1,gpu:nvidia_h100_pcie:1"),
        ("gpu:nvidia_a100-sxm4-40gb_1g.5gb:7", "gpu:nvidia_a100-sxm4-40gb_1g.5gb:7"),
        ("", ""),
    ],
)
def test_types_are_the_names_that_people_write(driver: str, written: str) -> None:
    assert short_types(driver) == written
