"""Fields of our resources that keep their values: a change would lose accounting, a journal or a volume.

The definitions (crds.yaml) refuse such changes by CEL, and the webhook once more for what CEL was not asked. If one is
stored nevertheless, the operator reports it and leaves the daemons as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from spritz.k8s.custom_resources.cluster_objects import Cluster, Json
from spritz.k8s.custom_resources.login_sets import Token
from spritz.k8s.pods import Unfit, amount

_NAME: Final = re.compile(r"^ClusterName=(\S+)$", re.MULTILINE)
_KEEPS_NAME: Final = "a cluster keeps its name; accounting is filed under it"
_KEEPS_VOLUMES: Final = "the volumes of the daemons stay as they were made; make another cluster"
_KEEPS_DATABASE: Final = "accounting stays where it is; make another cluster"
_KEEPS_JOURNAL: Final = "the journal stays where it is; make another cluster"


def changes_of_cluster(new: Cluster, old: Cluster) -> Iterator[tuple[str, str]]:
    """Field and message of each change that is refused."""
    if _name(new) != _name(old):
        yield "spec.clusterName", _KEEPS_NAME
    if not _same(new.spec.storage.size, old.spec.storage.size):
        yield "spec.storage.size", _KEEPS_VOLUMES
    if new.spec.storage.storage_class_name != old.spec.storage.storage_class_name:
        yield "spec.storage.storageClassName", _KEEPS_VOLUMES
    here, there = new.spec.database, old.spec.database
    if here is None or there is None:
        if here is not there:
            yield "spec.database", _KEEPS_DATABASE
        return
    if here.name != there.name:
        yield "spec.database.name", _KEEPS_DATABASE
    if here.journal != there.journal and new.spec.controllers > 1:
        yield "spec.database.journal", _KEEPS_JOURNAL


def changes_of_token(new: Token, old: Token) -> Iterator[tuple[str, str]]:
    """As `changes_of_cluster`."""
    if new.spec.cluster_ref != old.spec.cluster_ref:
        yield "spec.clusterRef", "a Token stays with its cluster; make another and delete this one"
    if (new.spec.secret_name or new.metadata.name) != (old.spec.secret_name or old.metadata.name):
        yield "spec.secretName", "a Token keeps its Secret; make another and delete this one"


def changed_since_made(cluster: Cluster, config_map: Json | None, stateful_set: Json | None) -> str:
    """What the stored resource says otherwise than the objects that were made for it; "" for nothing."""
    name = _NAME.search((config_map or {}).get("data", {}).get("slurm.conf", ""))
    if name is not None and name[1] != _name(cluster):
        return f"spec.clusterName: {_KEEPS_NAME} (it is {name[1]})"
    templates = (stateful_set or {}).get("spec", {}).get("volumeClaimTemplates") or ()
    storage = cluster.spec.storage
    for template in templates:
        claim = template["spec"]
        size = claim["resources"]["requests"]["storage"]
        if not _same(size, storage.size):
            return f"spec.storage.size: {_KEEPS_VOLUMES} (they have {size})"
        # Another program may have filled in a class where the resource names none.
        if storage.storage_class_name and claim.get("storageClassName") != storage.storage_class_name:
            return f"spec.storage.storageClassName: {_KEEPS_VOLUMES}"
    return ""


def _name(cluster: Cluster) -> str:
    return cluster.spec.cluster_name or cluster.metadata.name


def _same(first: str, second: str) -> bool:
    """Whether both are the same quantity: 1Gi and 1024Mi are."""
    try:
        return amount(first) == amount(second)
    except Unfit:
        return first == second
