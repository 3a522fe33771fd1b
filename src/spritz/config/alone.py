"""One configuration file by itself: its kind, and every mistake in it.

slurm.conf is read together with the files next to it (`load.examine`); other files are checked only by their own
content.

Source: slurm.conf(5), slurmdbd.conf(5), gres.conf(5), cgroup.conf(5), topology.conf(5), topology.yaml(5),
helpers.conf(5), job_container.conf(5), oci.conf(5).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.config import gres, load
from spritz.config.diagnostics import Diagnostics
from spritz.config.files import Files
from spritz.config.relatives import containers, helpers, oci, topology
from spritz.model.errors import SpritzError
from spritz.notation.errors import shown
from spritz.notation.names import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.config.diagnostics import Diagnostic

#: files of Slurm that Spritz does not read
UNREAD = (
    "acct_gather.conf",
    "burst_buffer.conf",
    "ext_sensors.conf",
    "knl.conf",
    "mpi.conf",
    "namespace.yaml",
    "plugstack.conf",
    "resources.yaml",
)


def kind_of(path: str, given: str = "") -> str:
    """The kind of file: as `given`, or by its name (`slurmdbd.conf.new` counts too). Raises SpritzError."""
    name = (given or os.path.basename(path)).lower()
    kinds = ", ".join(KINDS)
    for unread in UNREAD:
        if name == unread or (not given and name.startswith(f"{unread}.")):
            raise SpritzError(f"{unread} is not supported by Spritz: nothing reads it", hint=f"known: {kinds}")
    if given:
        if name in KINDS:
            return name
        close = nearest(name, KINDS)
        hint = f"did you mean {close}?" if close else f"known: {kinds}"
        raise SpritzError(f"--kind={shown(given)}: no such kind of file", hint=hint)
    for kind in KINDS:
        stem, _, ending = kind.partition(".")
        if name == kind or name.startswith(f"{kind}.") or (name.startswith(f"{stem}-") and name.endswith(f".{ending}")):
            return kind
    raise SpritzError(
        f"{shown(path)}: its name does not say what kind of file it is", hint=f"write --kind=slurm.conf; known: {kinds}"
    )


def examine(path: str, kind: str) -> tuple[str, tuple[Diagnostic, ...]]:
    """A description of the file ("" if there are errors), and all errors and warnings."""
    if kind == "slurm.conf":
        config, faults = load.examine(path)
        if config is None:
            return "", faults
        cluster, nodes = config.cluster.cluster_name, _count(len(config.nodes), "node")
        return f"cluster {cluster}, {nodes}, {_count(len(config.partitions), 'partition')}", faults
    diagnostics = Diagnostics()
    files = Files(os.path.dirname(os.path.abspath(path)), diagnostics)
    words = KINDS[kind](files, path, diagnostics)
    return "" if diagnostics.errors else words, tuple(diagnostics.items)


def _slurmdbd(files: Files, path: str, diagnostics: Diagnostics) -> str:
    fields = load.single_keys("slurmdbd.conf", files.lines(path), diagnostics)
    return _count(len(fields.values), "key")


def _cgroup(files: Files, path: str, diagnostics: Diagnostics) -> str:
    fields = load.single_keys("cgroup.conf", files.lines(path), diagnostics)
    return _count(len(fields.values), "key")


def _gres(files: Files, path: str, diagnostics: Diagnostics) -> str:
    gres_file = gres.read(files.lines(path), diagnostics)
    return f"{_count(len(gres_file.lines), 'line')} of resources"


def _helpers(files: Files, path: str, diagnostics: Diagnostics) -> str:
    helpers_file = helpers.read(files.lines(path), diagnostics)
    return _count(len(helpers_file.helpers), "feature")


def _containers(files: Files, path: str, diagnostics: Diagnostics) -> str:
    containers_file = containers.read(files.lines(path), diagnostics)
    return _count(len(containers_file.lines), "line")


def _oci(files: Files, path: str, diagnostics: Diagnostics) -> str:
    oci_file = oci.read(files.lines(path), path, diagnostics)
    return f"a container is {'run' if oci_file.run else 'created and started'}"


def _topology(files: Files, path: str, diagnostics: Diagnostics) -> str:
    topology_file = topology.read(files.lines(path), diagnostics)
    return f"{_count(len(topology_file.switches), 'line')} of switches, {len(topology_file.blocks)} of blocks"


def _topology_yaml(files: Files, path: str, diagnostics: Diagnostics) -> str:
    from spritz.config.relatives import topology_yaml  # few have such a file, and none else needs what reads it

    text = files.text(path)
    if text is None:
        if not diagnostics.errors:
            next(files.lines(path), None)  # reports the missing file
        return ""
    networks = topology_yaml.read(text, path, diagnostics)
    return "topologies " + ", ".join(network.name for network in networks)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


#: the kinds that are read, by name; slurm.conf is read with its neighbours
KINDS: dict[str, Callable[[Files, str, Diagnostics], str]] = {
    "slurm.conf": lambda *_: "",
    "slurmdbd.conf": _slurmdbd,
    "gres.conf": _gres,
    "cgroup.conf": _cgroup,
    "topology.conf": _topology,
    "topology.yaml": _topology_yaml,
    "helpers.conf": _helpers,
    "job_container.conf": _containers,
    "oci.conf": _oci,
}
