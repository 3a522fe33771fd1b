"""A SpritzCluster, and the desired objects of its control plane.

    NAME-config       ConfigMap     slurm.conf and slurmdbd.conf
    NAME-keys         Secret        the cluster's key, and the key of its tokens; made once, never changed
    NAME-controller   StatefulSet   slurmctld, and a Service of the same name
    NAME-accounting   StatefulSet   slurmdbd with SQLite on its volume, and a Service
    NAME-rest         Deployment    slurmrestd, and a Service

Other configuration is another hash in the pods' template, so that their workload replaces the pods. Jobs run on while
slurmctld is away. Defaults are the definitions' (packaging/kubernetes/chart/crds), which the API server fills in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from spritz.k8s.pods import PREFIX

Json = dict[str, Any]

GROUP: Final = "spritz.dev"
VERSION: Final = "v1alpha1"

#: On everything that is made for a cluster: its name.
CLUSTER: Final = f"{PREFIX}cluster"

CONTROLLER_PORT, ACCOUNTING_PORT, REST_PORT = 6817, 6819, 6820

#: Directories of slurm.conf and the keys, and of a daemon's data, in every pod.
ETC: Final = "/etc/slurm"
STATE: Final = "/var/lib/spritz"

#: Where the token is in pods that join.
JOIN: Final = "/run/spritz-join"


class Metadata(msgspec.Struct, rename="camel"):
    """Of our resources and of their pods."""

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] = []

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Condition(msgspec.Struct, rename="camel"):
    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str = ""
    observed_generation: int = 0


class Storage(msgspec.Struct, rename="camel"):
    size: str = "10Gi"
    storage_class_name: str | None = None


class Partition(msgspec.Struct, rename="camel"):
    name: str
    node_sets: list[str] | None = None
    default: bool = False
    max_time: str = "UNLIMITED"


class SecretKey(msgspec.Struct):
    name: str
    key: str


class Database(msgspec.Struct, rename="camel"):
    """Accounting in PostgreSQL. The password goes from its Secret to slurmdbd alone."""

    host: str
    user: str
    password_secret: SecretKey
    name: str = "slurm_acct_db"
    port: int = 5432


class ClusterSpec(msgspec.Struct, rename="camel"):
    image: str
    image_pull_policy: str = "IfNotPresent"
    cluster_name: str = ""
    max_nodes: int = 1024
    storage: Storage = msgspec.field(default_factory=Storage)
    database: Database | None = None
    partitions: list[Partition] = msgspec.field(default_factory=lambda: [Partition(name="main", default=True)])
    extra_config: str = ""


class Status(msgspec.Struct, rename="camel"):
    observed_generation: int = 0
    conditions: list[Condition] = []


class Cluster(msgspec.Struct):
    """A SpritzCluster."""

    metadata: Metadata
    spec: ClusterSpec
    status: Status = msgspec.field(default_factory=Status)


def slurm_conf(cluster: Cluster, nodes: Sequence[str] = ()) -> str:
    """The configuration of every daemon and command of the cluster. `nodes`: lines of those that come and go."""
    name, spec = cluster.metadata.name, cluster.spec
    lines = [
        f"ClusterName={spec.cluster_name or name}",
        f"SlurmctldHost={name}-controller-0({name}-controller)",
        f"SlurmctldPort={CONTROLLER_PORT}",
        "SlurmUser=root",
        "SlurmctldParameters=enable_configless",
        "AuthType=auth/slurm",
        "AuthAltTypes=auth/jwt",
        f"AuthAltParameters=jwt_key={ETC}/jwt.key",
        f"AccountingStorageHost={name}-accounting",
        f"AccountingStoragePort={ACCOUNTING_PORT}",
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"StateSaveLocation={STATE}/state",
        f"SlurmdSpoolDir={STATE}/spool",
        f"SlurmctldPidFile={STATE}/slurmctld.pid",
        f"SlurmdPidFile={STATE}/slurmd.pid",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "GresTypes=gpu",
        "ReturnToService=2",
        f"MaxNodeCount={spec.max_nodes}",
    ]
    lines += nodes
    sets = sorted({node_set for partition in spec.partitions for node_set in partition.node_sets or ()})
    lines += [f"NodeSet={node_set} Feature={node_set}" for node_set in sets]
    for partition in spec.partitions:
        nodes = ",".join(partition.node_sets) if partition.node_sets else "ALL"
        default = " Default=YES" if partition.default else ""
        lines.append(f"PartitionName={partition.name} Nodes={nodes} MaxTime={partition.max_time}{default}")
    return "\n".join([*lines, *spec.extra_config.splitlines()]) + "\n"


def slurmdbd_conf(database: Database | None = None) -> str:
    """SQLite on the volume of slurmdbd's pod, or PostgreSQL, whose password is in the pod's environment."""
    lines = [
        f"DbdPort={ACCOUNTING_PORT}",
        "SlurmUser=root",
        "AuthType=auth/slurm",
        "AuthAltTypes=auth/jwt",
        f"AuthAltParameters=jwt_key={ETC}/jwt.key",
        f"PidFile={STATE}/slurmdbd.pid",
    ]
    if database is None:
        lines += ["StorageType=accounting_storage/sqlite", f"StorageLoc={STATE}/accounting.db"]
    else:
        url = f"postgresql://{database.user}@{database.host}:{database.port}/{database.name}"
        lines.append(f"StorageUrl={url}")
    return "\n".join(lines) + "\n"


def control_plane(cluster: Cluster, nodes: Sequence[str] = (), devices: Sequence[str] = ()) -> list[Json]:
    """All objects except the keys, in the order of creation.

    `nodes`, `devices`: lines of slurm.conf and gres.conf for nodes that come and go.
    """
    name = cluster.metadata.name
    files = {"slurm.conf": slurm_conf(cluster, nodes), "slurmdbd.conf": slurmdbd_conf(cluster.spec.database)}
    if devices:
        files["gres.conf"] = "\n".join([*devices, ""])
    config = _object(cluster, "v1", "ConfigMap", "config", data=files)
    controller = ["slurmctld", "-D", "-N", f"{name}-controller-0"]
    accounting = ["slurmdbd", "-D"]
    rest = ["slurmrestd", "-a", "rest_auth/jwt", f"0.0.0.0:{REST_PORT}"]
    return [
        config,
        _service(cluster, "controller", CONTROLLER_PORT),
        _service(cluster, "accounting", ACCOUNTING_PORT),
        _service(cluster, "rest", REST_PORT),
        _stateful_set(cluster, "accounting", accounting, ACCOUNTING_PORT, files),
        _stateful_set(cluster, "controller", controller, CONTROLLER_PORT, files),
        _object(cluster, "apps/v1", "Deployment", "rest", spec={
            "replicas": 1,
            "selector": {"matchLabels": labels(name, "rest")},
            "template": _template(cluster, "rest", rest, REST_PORT, files, stored=False),
        }),
    ]  # fmt: skip


def controller_address(cluster: Cluster) -> str:
    """Where machines join."""
    return f"{cluster.metadata.name}-controller.{cluster.metadata.namespace}:{CONTROLLER_PORT}"


def keys(cluster: Cluster, cluster_key: str, token_key: str) -> Json:
    """The Secret, of two keys in base64."""
    data = {"slurm.key": cluster_key, "jwt.key": token_key}
    return _object(cluster, "v1", "Secret", "keys", type="Opaque", data=data)


def labels(cluster: str, component: str) -> dict[str, str]:
    return {CLUSTER: cluster, "app.kubernetes.io/name": "spritz", "app.kubernetes.io/component": component}


def owner(kind: str, metadata: Metadata) -> list[Json]:
    """The reference by which what we made goes with the resource that it was made for."""
    reference = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "name": metadata.name, "uid": metadata.uid}
    return [{**reference, "controller": True, "blockOwnerDeletion": True}]


def _object(cluster: Cluster, api_version: str, kind: str, component: str, **fields: Any) -> Json:
    metadata = {
        "name": f"{cluster.metadata.name}-{component}",
        "namespace": cluster.metadata.namespace,
        "labels": labels(cluster.metadata.name, component),
        "ownerReferences": owner("SpritzCluster", cluster.metadata),
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _service(cluster: Cluster, component: str, port: int) -> Json:
    spec = {
        "selector": labels(cluster.metadata.name, component),
        "ports": [{"name": component, "port": port, "targetPort": port, "protocol": "TCP"}],
    }
    return _object(cluster, "v1", "Service", component, spec=spec)


def _stateful_set(cluster: Cluster, component: str, command: list[str], port: int, files: dict[str, str]) -> Json:
    storage = cluster.spec.storage
    claim: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage.size}}}
    if storage.storage_class_name is not None:
        claim["storageClassName"] = storage.storage_class_name
    spec = {
        "replicas": 1,
        "serviceName": f"{cluster.metadata.name}-{component}",
        "selector": {"matchLabels": labels(cluster.metadata.name, component)},
        "template": _template(cluster, component, command, port, files, stored=True),
        "volumeClaimTemplates": [{"metadata": {"name": "state"}, "spec": claim}],
    }
    return _object(cluster, "apps/v1", "StatefulSet", component, spec=spec)


def _template(
    cluster: Cluster, component: str, command: list[str], port: int, files: dict[str, str], *, stored: bool
) -> Json:
    name, spec = cluster.metadata.name, cluster.spec
    container: Json = {
        "name": component,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": command,
        "ports": [{"name": component, "containerPort": port, "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 5},
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [
            {"name": "etc", "mountPath": ETC, "readOnly": True},
            {"name": "state", "mountPath": STATE},
        ],
    }
    sources = [{"configMap": {"name": f"{name}-config"}}, {"secret": {"name": f"{name}-keys"}}]
    volumes: list[Json] = [{"name": "etc", "projected": {"defaultMode": 0o400, "sources": sources}}]
    if not stored:
        volumes.append({"name": "state", "emptyDir": {}})
    if component == "rest":
        # It reads the cluster's key, which is root's; every caller needs a token.
        container["env"] = [{"name": "SLURMRESTD_SECURITY", "value": "disable_user_check"}]
    if component == "accounting" and spec.database is not None:
        secret = msgspec.to_builtins(spec.database.password_secret)
        container["env"] = [{"name": "PGPASSWORD", "valueFrom": {"secretKeyRef": secret}}]
    digest = hashlib.sha256("\0".join(files.values()).encode()).hexdigest()[:16]
    return {
        "metadata": {"labels": labels(name, component), "annotations": {f"{PREFIX}config": digest}},
        "spec": {
            "containers": [container],
            "volumes": volumes,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 30,
        },
    }
