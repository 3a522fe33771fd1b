"""Administrators at bad moments: the configuration is read again, nodes are drained, added and deleted, a standby is
told to lead. What they ask and are told is in the history like requests of a plan (`operators`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.sim.daemons.faults import Kind, add
from spritz.sim.daemons.operators import OPERATIONS

if TYPE_CHECKING:
    from spritz.sim.daemons.command import Data
    from spritz.sim.daemons.plan import Action
    from spritz.sim.daemons.site import Site


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


_CLUSTER = ("cluster",)

add(Kind(name="reconfigure", targets=_CLUSTER), _reconfigured)
add(Kind(name="reconfigure with a bad file", targets=_CLUSTER, seconds=(1, 60)), _mistaken)
add(Kind(name="takeover", targets=_CLUSTER, part="standby"), _taken_over)
add(Kind(name="drain", targets=_CLUSTER, seconds=(60, 900)), _drained)
add(Kind(name="node added and deleted", targets=_CLUSTER, seconds=(60, 900)), _added)
