"""Data about a step for the library and its tasks: nodes, and the placement of tasks.

Source: the PMIx standard 4.1, "Data Access and Sharing": reserved keys.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p
from typing import TYPE_CHECKING

from spritz.stepd import pmi_wire
from spritz.stepd.pmix.binding import check
from spritz.stepd.pmix.values import BOOL, PROC_RANK, UINT16, Infos

if TYPE_CHECKING:
    from spritz.stepd.spec import Pmix

#: With more tasks than this the library gets only their places, and derives from them all but the tasks' programs.
#: 64,000 tasks one by one would cost every node 11 s and 0.9 GiB (2 s and 0.15 GiB by places).
_TASKS_TOLD = 16384


def job_infos(library: ctypes.CDLL, about: Pmix, directory: str) -> Infos:
    """All facts about the job that its tasks may ask for. `directory` is for their files, too. Raises PmixError."""
    hosts = _hosts(about)
    host_name = about.nodes[about.node]
    local = hosts[host_name]
    size = sum(map(len, hosts.values()))
    infos = Infos()
    infos.text("pmix.jobid", about.namespace)
    infos.number("pmix.job.size", size)
    infos.number("pmix.max.size", size)
    infos.number("pmix.univ.size", max(size, about.universe))
    infos.number("pmix.num.slots", max(size, about.universe))
    infos.number("pmix.job.napps", len(set(about.apps)) or 1)
    infos.number("pmix.num.nodes", len(hosts))
    infos.number("pmix.nodeid", list(hosts).index(host_name))
    infos.number("pmix.local.size", len(local))
    infos.number("pmix.node.size", len(local))
    infos.text("pmix.lpeers", ",".join(map(str, local)))
    infos.number("pmix.lldr", min(local), PROC_RANK)
    infos.text("pmix.nmap", _compressed(library, "PMIx_generate_regex", ",".join(hosts)))
    ranks = ";".join([",".join(map(str, ranks)) for ranks in hosts.values()])
    infos.text("pmix.pmap", _compressed(library, "PMIx_generate_ppn", ranks))
    infos.text("pmix.anlmap", pmi_wire.process_mapping(tuple(hosts.values())))
    infos.number("pmix.spawned", 0, BOOL)
    for key in ("pmix.tmpdir", "pmix.nsdir"):
        infos.text(key, directory)
    infos.number("pmix.tdir.rmclean", 1, BOOL)
    if size <= _TASKS_TOLD or about.apps:
        _add_tasks(infos, about, hosts)
    return infos


def _hosts(about: Pmix) -> dict[str, tuple[int, ...]]:
    """Ranks on each node: components that share one share its memory, each with a server of its own."""
    hosts: dict[str, tuple[int, ...]] = {}
    for name, ranks in zip(about.nodes, about.ranks, strict=True):
        hosts[name] = hosts.get(name, ()) + ranks
    return hosts


def _add_tasks(infos: Infos, about: Pmix, hosts: dict[str, tuple[int, ...]]) -> None:
    """Something about every task."""
    apps = about.apps or (0,) * len(about.nodes)
    app_of = {rank: app for app, ranks in zip(apps, about.ranks, strict=True) for rank in ranks}
    first_of_app: dict[int, int] = {}
    for rank in sorted(app_of):
        first_of_app.setdefault(app_of[rank], rank)
    for node, (name, ranks) in enumerate(hosts.items()):
        for place, rank in enumerate(ranks):
            infos.array("pmix.pdata", _task(name, node, place, rank, app_of[rank], first_of_app[app_of[rank]]))


def _task(name: str, node: int, place: int, rank: int, app: int, first_of_app: int) -> Infos:
    infos = Infos()
    infos.number("pmix.rank", rank, PROC_RANK)
    infos.number("pmix.appnum", app)
    infos.number("pmix.grank", rank, PROC_RANK)
    infos.number("pmix.apprank", rank - first_of_app, PROC_RANK)
    infos.number("pmix.aldr", first_of_app, PROC_RANK)
    infos.number("pmix.lrank", place, UINT16)
    infos.number("pmix.nrank", place, UINT16)
    infos.number("pmix.nodeid", node)
    infos.text("pmix.hname", name)
    return infos


def _compressed(library: ctypes.CDLL, function: str, text: str) -> bytes:
    """A list in the library's notation, which it understands as a string; others it may choose are its own."""
    buffer = c_char_p()
    check(library, function, text.encode(), ctypes.byref(buffer))
    compressed = buffer.value or b""
    return compressed if compressed.startswith(b"pmix[") else text.encode()
