"""Boards, sockets, cores, threads and CPUs of a node line: values that are not given follow from those that are.

Source: slurm.conf(5) CPUs, Sockets, SocketsPerBoard, Boards; the order of inference as Slurm's, measured against 22.05.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from spritz.model.resources import mask_text
from spritz.notation import ranges

if TYPE_CHECKING:
    from spritz.config.typed import NodeLine


class Geometry(Struct, frozen=True, kw_only=True, gc=False):
    """The complete geometry.

    `sockets` counts all boards. `faults`: what did not fit, and what is used instead.
    """

    cpus: int
    boards: int
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    cpus_reserved: str
    faults: tuple[str, ...] = ()


def geometry(line: NodeLine, *, first_cores: bool = False) -> Geometry:
    """Geometry of the nodes of one line. Never fails: contradictions are settled as Slurm settles them, and reported.

    `first_cores`: the first cores are reserved for the system (spec_cores_first).
    """
    faults: list[str] = []
    cores, threads = _given(line, "CoresPerSocket") or 1, _given(line, "ThreadsPerCore") or 1
    boards = _given(line, "Boards") or 1
    cpus, sockets, per_board = _given(line, "CPUs"), _given(line, "Sockets"), _given(line, "SocketsPerBoard")
    if sockets and per_board:
        faults.append("Sockets and SocketsPerBoard are both given; SocketsPerBoard is used")
    if per_board:
        sockets = boards * per_board
    elif sockets and boards > 1:
        # With Boards, Sockets counts the sockets of one board.
        sockets *= boards
    elif not sockets:
        whole = bool(cpus) and cpus % (cores * threads) == 0
        sockets = cpus // (cores * threads) if whole else boards
    product = sockets * cores * threads
    if cpus and cpus not in (sockets, sockets * cores, product):
        parts = f"{sockets} sockets, {sockets * cores} cores nor {product} threads"
        faults.append(f"CPUs={cpus} is neither {parts}; CPUs={product} is used")
        cpus = product
    cpus = cpus or product
    shape = sockets, cores, max(1, cpus // (sockets * cores))
    reserved = _reserved(line, cpus, shape, faults, first_cores=first_cores)
    return Geometry(
        cpus=cpus,
        boards=boards,
        sockets=sockets,
        cores_per_socket=cores,
        threads_per_core=threads,
        cpus_reserved=mask_text(reserved),
        faults=tuple(faults),
    )


def _given(line: NodeLine, key: str) -> int:
    value = line.values.get(key)
    return value if isinstance(value, int) else 0


def _reserved(line: NodeLine, cpus: int, shape: tuple[int, int, int], faults: list[str], *, first_cores: bool) -> int:
    """Mask of CPUs reserved for the system: CPUSpecList, or CoreSpecCount cores, socket by socket: the last cores of
    each, the last socket first, or the first ones.

    `shape`: sockets, cores per socket, threads per core.
    """
    sockets, cores_per_socket, threads = shape
    cores = sockets * cores_per_socket
    count = _given(line, "CoreSpecCount")
    listed = line.values.get("CPUSpecList")
    if count and listed:
        faults.append("CoreSpecCount and CPUSpecList are both given; CPUSpecList is used")
    if isinstance(listed, str):
        try:
            mask = ranges.parse_ids(listed, cpus)
        except ValueError:
            faults.append(f"CPUSpecList={listed} is no list of CPUs below {cpus}; it is ignored")
            return 0
        if mask.bit_count() == cpus:
            faults.append(f"CPUSpecList={listed} leaves no CPU of {cpus}: no job can run here")
        return mask
    if not count:
        return 0
    if count >= cores:
        faults.append(f"CoreSpecCount={count} leaves no core of {cores}; 1 is used")
        count = 1
    if cores <= 1:
        return 0
    order = [socket * cores_per_socket + core for core in range(cores_per_socket) for socket in range(sockets)]
    if not first_cores:
        order = [cores - 1 - core for core in order]
    return sum(((1 << threads) - 1) << (core * threads) for core in order[:count])
