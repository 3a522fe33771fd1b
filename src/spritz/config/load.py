"""Reading the files: slurm.conf with what it includes, gres.conf and cgroup.conf beside it.

With `files` the only module of this room that is not pure: it also asks the user database for SlurmUser. Everything
wrong in all files is reported at once, in one `ConfigError`.

Source: slurm.conf(5) INCLUDE MODIFIERS, gres.conf(5), cgroup.conf(5).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.config import build, check, gres, topology, typed
from spritz.config.diagnostics import ConfigError, Diagnostics
from spritz.config.files import Files
from spritz.config.grammar import Line, Malformed, Place, tokens
from spritz.config.loaded import CgroupSettings, DbdSettings, LoadedConfig
from spritz.config.schema import cgroup_keys, slurmdbd_keys
from spritz.model.topology import Topology
from spritz.notation.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz.config.diagnostics import Diagnostic
    from spritz.config.settings import Settings


def load(path: str, *, check_users: bool = True) -> LoadedConfig:
    """The configuration in `path` and beside it. Raises ConfigError with every fault, after looking at all files.

    With `check_users`, SlurmUser and SlurmdUser must exist here.
    """
    config, diagnostics = examine(path, check_users=check_users)
    if config is None:
        raise ConfigError(diagnostics)
    return config


def examine(path: str, *, check_users: bool = True) -> tuple[LoadedConfig | None, tuple[Diagnostic, ...]]:
    """As `load`, for `spritz config check`: the configuration, or None if there are errors, and all errors and
    warnings."""
    diagnostics = Diagnostics()
    directory = os.path.dirname(os.path.abspath(path))
    files = Files(directory, diagnostics)
    parsed = typed.read(files.lines(path), diagnostics)
    if not files.read:
        return None, tuple(diagnostics.items)
    gres_lines = gres.read(_beside(files, path, "gres.conf"), diagnostics)
    cgroup_lines = list(_beside(files, path, "cgroup.conf"))
    cgroup = _cgroup(cgroup_lines, diagnostics)
    partitions = check.check(parsed, gres_lines, diagnostics, Place(path, 0))
    network = _network(files, path, parsed, diagnostics)
    if check_users:
        _check_users(parsed.settings, diagnostics)
    found = tuple(diagnostics.items)
    if diagnostics.errors:
        return None, found
    config = LoadedConfig(
        path=path,
        settings=parsed.settings,
        cluster=build.cluster_settings(parsed.settings, (network,), parsed.nodesets),
        nodes=build.node_configs(parsed, gres_lines),
        partitions=build.partitions(partitions, parsed.settings),
        parsed=parsed,
        gres=gres_lines,
        cgroup=cgroup,
        warnings=found,
        files_read=tuple(files.read),
        digest=files.digest(),
        cgroup_given=bool(cgroup_lines),
    )
    return config, found


def load_slurmdbd(path: str) -> DbdSettings:
    """slurmdbd.conf. Raises ConfigError with every fault in it."""
    diagnostics = Diagnostics()
    fields = typed.Fields("slurmdbd.conf", slurmdbd_keys(), diagnostics)
    for line in Files(os.path.dirname(os.path.abspath(path)), diagnostics).lines(path):
        for token in tokens(line):
            if isinstance(token, Malformed):
                typed.malformed(token, diagnostics)
            else:
                fields.add(token)
    if diagnostics.errors:
        raise ConfigError(diagnostics.items)
    return DbdSettings(path=path, values=fields.values, warnings=tuple(diagnostics.items))


def _beside(files: Files, path: str, name: str) -> Iterator[Line]:
    """Lines of a file that may lie in the same directory."""
    other = os.path.join(os.path.dirname(path), name)
    return files.lines(other) if os.path.lexists(other) else iter(())


def _network(files: Files, path: str, parsed: typed.Parsed, diagnostics: Diagnostics) -> Topology:
    """topology.conf, if TopologyPlugin wants it."""
    kind = parsed.settings.text("TopologyPlugin").partition("/")[2]
    if kind not in ("tree", "block"):
        return Topology()
    found = topology.read(_beside(files, path, topology.FILE), diagnostics)
    nodes = dict.fromkeys(name for line in parsed.nodes for name in line.names)
    place = parsed.settings.places.get("TopologyPlugin") or Place(path, 0)
    return topology.build(kind, found, nodes, diagnostics, place)


def _cgroup(found: list[Line], diagnostics: Diagnostics) -> CgroupSettings:
    fields = typed.Fields("cgroup.conf", cgroup_keys(), diagnostics)
    for line in found:
        for token in tokens(line):
            if isinstance(token, Malformed):
                typed.malformed(token, diagnostics)
            else:
                fields.add(token)
    return CgroupSettings(fields.values)


def _check_users(settings: Settings, diagnostics: Diagnostics) -> None:
    from pwd import getpwnam, getpwuid

    for key in ("SlurmUser", "SlurmdUser"):
        name = settings.text(key)
        if name == str(os.geteuid()):
            continue  # a container's arbitrary user, whom no database knows
        try:
            getpwuid(int(name)) if name.isascii() and name.isdigit() else getpwnam(name)
        except (KeyError, OverflowError, ValueError):
            message = f"{key}={shown(name)}: no such user"
            diagnostics.error(settings.places.get(key), message, key=key)
