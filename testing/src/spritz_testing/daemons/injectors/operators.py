"""Administrators at bad moments: the configuration is read again, nodes are drained, added and deleted, a standby is
told to lead. What they ask and are told is in the history like requests of a plan (`operators`).
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

from spritz_testing.daemons.clients.operators import OPERATIONS
from spritz_testing.daemons.faults import Kind, add, unit_of, units_on

if TYPE_CHECKING:
    from spritz_testing.daemons.clients.command import Data
    from spritz_testing.daemons.plan import Action
    from spritz_testing.daemons.site import Site
    from spritz_testing.daemons.system.world import Host


def ask(site: Site, kind: str, data: Data) -> None:
    """Let an administrator make a request."""
    assert site.users is not None, "a run has users"
    site.users.start("root", kind, OPERATIONS[kind], data, site.login)


def _reconfigured(site: Site, action: Action, seconds: float) -> str | None:
    ask(site, "reread", {"settings": {"BatchStartTimeout": str(5 + action.data["draw"] % 16)}})
    return "slurm.conf"


def _mistaken(site: Site, action: Action, seconds: float) -> str | None:
    ask(site, "reread", {"mistake": "NodeName=n1 CPUs=many", "seconds": seconds})
    return "slurm.conf"


def _taken_over(site: Site, action: Action, seconds: float) -> str | None:
    if len(site.controllers) < 2:
        return None
    index = action.data["draw"] % len(site.controllers)
    ask(site, "take_over", {"index": index})
    return str(site.controllers[index].name)


def _drained(site: Site, action: Action, seconds: float) -> str | None:
    node: str = site.nodes[action.data["draw"] % len(site.nodes)].name
    ask(site, "set_node", {"nodes": [node], "state": "DRAIN"})
    site.world.after(seconds, lambda: ask(site, "set_node", {"nodes": [node], "state": "RESUME"}))
    return node


def _added(site: Site, action: Action, seconds: float) -> str | None:
    name = f"d{1 + action.data['draw'] % 3}"
    ask(site, "node_add", {"node": name})
    site.world.after(seconds, lambda: ask(site, "node_delete", {"node": name}))
    return name


#: seconds for which a daemon is away while another release is installed, and between two daemons
_INSTALL_SECONDS, _NEXT_HOST_SECONDS = (0.5, 5.0), (0.1, 30.0)


def _install(site: Site, host: Host, random: Random, *, is_next: bool) -> None:
    """Stop what runs on a host, install a release, and start it again."""
    for unit in units_on(site, host):
        if unit.is_wanted:
            unit.stop()
            site.world.after(random.uniform(*_INSTALL_SECONDS), unit.start)
    host.has_next_release = is_next


def _upgraded(site: Site, action: Action, seconds: float) -> str | None:
    """The next release comes to all hosts, in the order that the documents ask for: slurmdbd, standbys, the first
    controller, nodes.
    """
    accounting = [site.accounting.unit.host] if site.accounting is not None else []
    hosts = [*accounting, *reversed(site.controllers), *site.nodes]
    older = [host for host in hosts if not host.has_next_release]
    if not older:
        return None
    random, at = Random(action.data["draw"]), 0.0
    for host in older:
        site.world.after(at, partial(_install, site, host, random, is_next=True))
        at += random.uniform(*_NEXT_HOST_SECONDS)
    return f"{len(older)} hosts"


def _set_back(site: Site, action: Action, seconds: float) -> str | None:
    """Somebody installs the older release again: its daemon refuses what it finds, until the next one is back."""
    unit = unit_of(site, action.target)
    if unit is None or not unit.host.has_next_release:
        return None
    random = Random(action.data["draw"])
    _install(site, unit.host, random, is_next=False)
    site.world.after(seconds, partial(_install, site, unit.host, random, is_next=True))
    return unit.host.name


_CLUSTER = ("cluster",)

add(Kind(name="reconfigure", targets=_CLUSTER), _reconfigured)
add(Kind(name="reconfigure with a bad file", targets=_CLUSTER, seconds=(1, 60)), _mistaken)
add(Kind(name="takeover", targets=_CLUSTER, part="standby"), _taken_over)
add(Kind(name="drain", targets=_CLUSTER, seconds=(60, 900)), _drained)
add(Kind(name="node added and deleted", targets=_CLUSTER, seconds=(60, 900)), _added)
add(Kind(name="upgrade", targets=_CLUSTER, weight=0.5), _upgraded)
add(Kind(name="set back", targets=("slurmctld", "slurmd", "slurmdbd"), seconds=(6, 60)), _set_back)
