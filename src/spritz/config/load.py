"""Reads the files: slurm.conf with its includes, and the files next to it.

With `files` the only module of this package that is not pure: it also looks SlurmUser up in the user database. All
faults of all files are reported together, in one `ConfigError`.

Source: slurm.conf(5) INCLUDE MODIFIERS, gres.conf(5), cgroup.conf(5).
"""

from __future__ import annotations

import os
from pwd import getpwnam, getpwuid
from typing import TYPE_CHECKING

from msgspec import structs

from spritz.config import build, check, gres, typed
from spritz.config.diagnostics import ConfigError, Diagnostics
from spritz.config.files import Files
from spritz.config.grammar import Line, Location, Malformed, tokens
from spritz.config.loaded import CgroupSettings, DbdSettings, LoadedConfig
from spritz.config.relatives import containers, helpers, oci, topology
from spritz.config.schema import cgroup_keys, slurmdbd_keys
from spritz.model.node.networks import misplaced
from spritz.notation import hostlist
from spritz.notation.errors import shown
from spritz.notation.names import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from spritz.config.diagnostics import Diagnostic
    from spritz.config.settings import Settings
    from spritz.model.cluster.topology import Block, Switch, Topology
    from spritz.model.node.record import NodeConfig


def load(path: str, *, check_users: bool = True) -> LoadedConfig:
    """The configuration in `path` and the files next to it. Raises ConfigError with every fault of all files.

    With `check_users`, SlurmUser and SlurmdUser must exist on this machine.
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
    cgroup = CgroupSettings(single_keys("cgroup.conf", cgroup_lines, diagnostics).values)
    partitions = check.check(parsed, gres_lines, diagnostics, Location(path, 0))
    networks = _networks(files, path, parsed, diagnostics)
    changeable = _helpers(files, path, parsed, diagnostics)
    contained = _containers(files, path, parsed, diagnostics)
    runtime = _oci(files, path, diagnostics)
    if check_users:
        _check_users(parsed.settings, diagnostics)
    items = tuple(diagnostics.items)
    if diagnostics.errors:
        return None, items
    config = LoadedConfig(
        path=path,
        settings=parsed.settings,
        cluster=structs.replace(
            build.cluster_settings(parsed.settings, networks, parsed.nodesets),
            features=changeable.policy(parsed.settings),
        ),
        nodes=_ranked(build.node_configs(parsed, gres_lines), networks, parsed.settings),
        partitions=build.partitions(partitions, parsed.settings),
        parsed=parsed,
        gres=gres_lines,
        cgroup=cgroup,
        warnings=items,
        files_read=tuple(files.read),
        digest=files.digest(),
        cgroup_given=bool(cgroup_lines),
        helpers=changeable,
        containers=contained,
        oci=runtime,
    )
    return config, items


def load_slurmdbd(path: str) -> DbdSettings:
    """slurmdbd.conf. Raises ConfigError with every fault in it."""
    diagnostics = Diagnostics()
    files = Files(os.path.dirname(os.path.abspath(path)), diagnostics)
    fields = single_keys("slurmdbd.conf", files.lines(path), diagnostics)
    if diagnostics.errors:
        raise ConfigError(diagnostics.items)
    return DbdSettings(path=path, values=fields.values, warnings=tuple(diagnostics.items))


def single_keys(name: str, lines: Iterable[Line], diagnostics: Diagnostics) -> typed.Fields:
    """Parse a file without records: slurmdbd.conf or cgroup.conf."""
    table = slurmdbd_keys() if name == "slurmdbd.conf" else cgroup_keys()
    fields = typed.Fields(name, table, diagnostics)
    for line in lines:
        for token in tokens(line):
            if isinstance(token, Malformed):
                typed.malformed(token, diagnostics)
            else:
                fields.add(token)
    return fields


def _beside(files: Files, path: str, name: str) -> Iterator[Line]:
    """Lines of an optional file in the same directory."""
    other = os.path.join(os.path.dirname(path), name)
    return files.lines(other) if os.path.lexists(other) else iter(())


def _networks(files: Files, path: str, parsed: typed.Parsed, diagnostics: Diagnostics) -> tuple[Topology, ...]:
    """topology.yaml if it exists; else topology.conf if TopologyPlugin asks for it. The cluster's default
    comes first.
    """
    names = dict.fromkeys(name for line in parsed.nodes for name in line.names)
    more = parsed.settings.integer("MaxNodeCount") > len(names)
    place = parsed.settings.places.get("TopologyPlugin") or Location(path, 0)
    beside = os.path.join(os.path.dirname(path), "topology.yaml")
    text = files.text(beside)
    if text is not None:
        from spritz.config.relatives import topology_yaml  # few have such a file, and none else needs what reads it

        networks_read = topology_yaml.read(text, beside, diagnostics)
        networks = []
        for position, network in enumerate(networks_read):
            nodes = topology.Nodes(names, more, all_of_them=not position)
            networks.append(topology.build(network.kind, network.file, nodes, diagnostics, network.place, network.name))
    else:
        kind = parsed.settings.text("TopologyPlugin").partition("/")[2]
        file = topology.TopologyFile()
        if kind in ("tree", "block"):
            file = topology.read(_beside(files, path, topology.FILE), diagnostics)
        networks = [topology.build(kind, file, topology.Nodes(names, more), diagnostics, place)]
    _check_topologies(parsed, [network.name for network in networks], diagnostics)
    for line in parsed.nodes:
        fault = misplaced(networks, str(line["Topology"] or ""))
        if fault:
            label = hostlist.compress(line.names)
            diagnostics.error(line.place, f"NodeName={shown(label)}: {fault}", key="Topology")
    if "Dragonfly" in parsed.settings.words("TopologyParam"):
        networks = [structs.replace(network, spread=network.kind == "tree") for network in networks]
    return tuple(networks)


def _helpers(files: Files, path: str, parsed: typed.Parsed, diagnostics: Diagnostics) -> helpers.HelpersFile:
    """helpers.conf, if NodeFeaturesPlugins asks for it."""
    helpers.check_delay(parsed.settings, diagnostics)
    if not helpers.is_wanted(parsed.settings):
        return helpers.HelpersFile()
    place = parsed.settings.places.get("NodeFeaturesPlugins") or Location(path, 0)
    helpers_file = helpers.read(_beside(files, path, helpers.FILE), diagnostics)
    if not helpers_file.helpers and not diagnostics.errors:
        message = f"NodeFeaturesPlugins={helpers.PLUGIN}: {helpers.FILE} next to this file names no feature"
        diagnostics.error(place, message, key="NodeFeaturesPlugins", hint="write Feature=NAME Helper=PROGRAM")
    reboots = any(not helper.rebootless for helper in helpers_file.helpers.values())
    if reboots and not parsed.settings.text("RebootProgram"):
        message = f"{helpers.FILE} has features that need a reboot, and there is no RebootProgram: no job gets them"
        diagnostics.warning(place, message, key="RebootProgram")
    return helpers_file


def _containers(files: Files, path: str, parsed: typed.Parsed, diagnostics: Diagnostics) -> containers.ContainersFile:
    """job_container.conf, if JobContainerType asks for it."""
    if not containers.is_wanted(parsed.settings):
        return containers.ContainersFile()
    place = parsed.settings.places.get("JobContainerType") or Location(path, 0)
    containers_file = containers.read(_beside(files, path, containers.FILE), diagnostics)
    if not any(values.get("BasePath") for _, values in containers_file.lines) and not diagnostics.errors:
        message = f"JobContainerType={containers.PLUGIN}: {containers.FILE} next to this file names no BasePath"
        diagnostics.error(place, message, key="JobContainerType", hint="write BasePath=DIRECTORY")
    return containers_file


def _oci(files: Files, path: str, diagnostics: Diagnostics) -> oci.OciFile | None:
    """oci.conf, if it exists."""
    beside = os.path.join(os.path.dirname(path), oci.FILE)
    return oci.read(files.lines(beside), beside, diagnostics) if os.path.lexists(beside) else None


def _ranked(
    nodes: tuple[NodeConfig, ...], networks: tuple[Topology, ...], settings: Settings
) -> tuple[NodeConfig, ...]:
    """Nodes in the order of their leaf switches or blocks, if SwitchAsNodeRank or BlockAsNodeRank asks for it.

    Uses the first network; nodes that are not in it come last. This is the order of listings, tasks and --contiguous.
    """
    units: tuple[Switch | Block, ...] = ()
    if settings.has_option("TopologyParam", "SwitchAsNodeRank"):
        units = tuple(switch for switch in networks[0].switches if not switch.switches)
    if settings.has_option("TopologyParam", "BlockAsNodeRank"):
        units = units or networks[0].blocks
    rank = {name: place for place, unit in enumerate(units) for name in hostlist.expand(unit.nodes or "")}
    return tuple(sorted(nodes, key=lambda node: rank.get(node.name, len(units))))


def _check_topologies(parsed: typed.Parsed, names: list[str], diagnostics: Diagnostics) -> None:
    """Check that Topology= of each partition names an existing network."""
    for line in parsed.partitions:
        name = line["Topology"]
        if name and name not in names:
            close = nearest(str(name), names)
            message = f"Partition {shown(line.name)}: Topology={shown(str(name))} is not defined"
            hint = f"did you mean {close}?" if close else "topology.yaml defines them"
            diagnostics.error(line.place, message, key="Topology", hint=hint)


#: (uid_t)-1, which is no user.
_NO_UID = 0xFFFFFFFF


def _check_users(settings: Settings, diagnostics: Diagnostics) -> None:
    for key in ("SlurmUser", "SlurmdUser"):
        name = settings.text(key)
        if name == str(os.geteuid()):
            continue  # a container's arbitrary user, which no database has
        if key == "SlurmUser" and name.isascii() and name.isdigit() and int(name) < _NO_UID:
            continue  # that of the controller's container; this machine needs its number alone
        try:
            getpwuid(int(name)) if name.isascii() and name.isdigit() else getpwnam(name)
        except (KeyError, OverflowError, ValueError):
            message = f"{key}={shown(name)}: no such user"
            diagnostics.error(settings.places.get(key), message, key=key)
