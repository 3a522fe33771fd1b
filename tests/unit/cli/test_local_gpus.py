"""`spritz up` on a machine with GPUs: what it finds becomes a gres.conf without a warning."""

from __future__ import annotations

from pathlib import Path

from spritz.cli.local.layout import gpu_lines
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
