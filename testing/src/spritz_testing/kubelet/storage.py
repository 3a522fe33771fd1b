"""Volumes for claims that no driver of the cluster serves: a directory of this machine each, as `local` volumes.

Claims without a StorageClass, and those of the class `CLASS`. Volumes go with their claims.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Final

import msgspec

from spritz.k8s.api import Api, ApiFailure
from spritz_testing.kubernetes.errors import Object

CLASS: Final = "spritz-testing"


class Storage:
    """`label`: what the nodes have that reach the volumes."""

    def __init__(self, api: Api, directory: Path, label: str) -> None:
        self._api = api
        self._directory = directory
        self._label = label
        #: volumes by the uid of their claim
        self._made: dict[str, str] = {}

    async def provide(self, claim: Object) -> None:
        """Make the volume of a claim that waits for one."""
        metadata, spec = claim["metadata"], claim["spec"]
        uid = metadata["uid"]
        waits = (claim.get("status") or {}).get("phase", "Pending") == "Pending" and not spec.get("volumeName")
        if uid in self._made or not waits or spec.get("storageClassName", "") not in ("", CLASS):
            return
        name = self._made[uid] = f"pvc-{uid}"
        (self._directory / name).mkdir(parents=True, exist_ok=True)
        (self._directory / name).chmod(0o755)
        reaches = [{"key": self._label, "operator": "Exists"}]
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {self._label: "true"}},
            "spec": {
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "accessModes": spec["accessModes"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": spec.get("storageClassName", ""),
                "claimRef": {"namespace": metadata["namespace"], "name": metadata["name"], "uid": uid},
                "local": {"path": str(self._directory / name)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": reaches}]}},
            },
        }
        await self._api.send("POST", "api/v1/persistentvolumes", body=msgspec.json.encode(volume))

    async def forget(self, uid: str) -> None:
        """The claim has gone."""
        name = self._made.pop(uid, None)
        if name is not None:
            with contextlib.suppress(ApiFailure):
                await self._api.send("DELETE", f"api/v1/persistentvolumes/{name}")
            shutil.rmtree(self._directory / name, ignore_errors=True)

    async def close(self) -> None:
        for uid in list(self._made):
            await self.forget(uid)
