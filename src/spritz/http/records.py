"""What several clients read of a job: its CPUs and devices on each node, and rows of `GET /spritz/v1/jobs`.

A row is a record of the client's own, `array_like`, whose fields are the columns that it wants; a field that has
another name here than there says so by `msgspec.field(name=…)`.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from msgspec import Struct, structs

R = TypeVar("R")


class Gres(Struct, frozen=True):
    """Devices of a kind on a node; `indexes`: hexadecimal mask of their numbers ("0": a mere count)."""

    name: str = ""
    type: str = ""
    count: int = 1
    indexes: str = "0"

    @property
    def mask(self) -> int:
        """The mask of device numbers as an integer."""
        return int(self.indexes or "0", 16)

    @property
    def numbers(self) -> list[int]:
        """The devices' numbers on the node; for each shard the number of its GPU."""
        mask = self.mask
        bits = [number for number in range(mask.bit_length()) if mask >> number & 1]
        return bits * self.count if self.name == "shard" else bits


class Share(Struct, frozen=True):
    """A job's resources on a node. `cpus`: hexadecimal mask."""

    node: str
    cpus: str = "0"
    memory_mib: int = 0
    gres: tuple[Gres, ...] = ()

    @property
    def cpu_count(self) -> int:
        return int(self.cpus or "0", 16).bit_count()

    @property
    def gpus(self) -> tuple[Gres, ...]:
        """The GPUs, and GPUs of which the job holds shares."""
        return tuple(gres for gres in self.gres if gres.name in ("gpu", "shard", "mps"))

    def devices(self, name: str, kind: str = "") -> list[int]:
        """Numbers of the job's GPUs (`gpu`, `shard`) of the type on the node."""
        some = (gres for gres in self.gres if gres.name == name and kind in ("", gres.type))
        return [number for gres in some for number in gres.numbers]


class Allocation(Struct, frozen=True):
    """The resources that a job holds, by node."""

    nodes: tuple[Share, ...] = ()


class Rows(Struct, Generic[R], frozen=True):
    """Rows of a listing; `now`: slurmctld's time in seconds since the epoch."""

    rows: list[R] = []
    now: float = 0.0


def columns_of(kind: type[Any]) -> str:
    """The columns of a row, as the parameter `fields` names them."""
    return ",".join(field.encode_name for field in structs.fields(kind))
