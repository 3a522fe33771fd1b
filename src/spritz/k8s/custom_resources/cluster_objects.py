"""A SpritzCluster, and the desired objects of its control plane.

    NAME-config       ConfigMap     slurm.conf and slurmdbd.conf
    NAME-keys         Secret        the cluster's key, and the key of its tokens; made once, never changed
    NAME-controller   StatefulSet   slurmctld and its standbys, and a Service of the same name
    NAME-controllers  Service       headless: the names of slurmctld's pods
    NAME-accounting   StatefulSet   slurmdbd with SQLite on its volume, or with PostgreSQL, and a Service
    NAME-rest         Deployment    slurmrestd, and a Service
    NAME-dashboard    Deployment    the dashboard, where the cluster has it, and a Service
    NAME-metrics      Service       slurmctld's /metrics for scrapers, where the cluster has it

slurm.conf has its own revision among SlurmctldParameters, so that slurmctld can say which file it has read. A changed
file is applied by `scontrol reconfigure`. Only where slurmctld must start again for it (`Configuration.shape`, and what
it refuses) is there another hash in the pods' template, so that their workload replaces the pods; jobs run on.

Defaults are the definitions' (packaging/kubernetes/chart/crds), which the API server fills in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import yaml

from spritz.k8s.custom_resources import rights
from spritz.k8s.pods import PREFIX

Json = dict[str, Any]

GROUP: Final = "spritz.dev"
VERSION: Final = "v1alpha1"

#: Label with the cluster's name, on all objects that are created for a cluster.
CLUSTER: Final = f"{PREFIX}cluster"

#: Objects and pods are named NAME-PART; other resources must not have these names.
PARTS: Final = ("controller", "controllers", "accounting", "rest", "dashboard", "metrics")

CONTROLLER_PORT, ACCOUNTING_PORT, REST_PORT, DASHBOARD_PORT = 6817, 6819, 6820, 6860

#: In the pods' template: the revision of the configuration with which they were started last. And on pods: what they
#: are to have by now. (A change of the pod makes its kubelet rewrite its files at once.)
STARTED: Final = f"{PREFIX}started"
REVISION: Final = f"{PREFIX}config"

#: In extraConfig: joined with the operator's own words.
_JOINED: Final = re.compile(r"\s*(SlurmctldParameters|GresTypes)\s*=\s*(\S*)\s*", re.IGNORECASE)

#: Directories of slurm.conf and the keys, and of a daemon's data, in every pod.
ETC: Final = "/etc/slurm"
STATE: Final = "/var/lib/spritz"

#: Readiness of a container whose daemon relays commands: slurmctld answers them.
COMMANDS_ANSWERED: Final[Json] = {
    "exec": {"command": ["scontrol", "ping"]},
    "periodSeconds": 15,
    "timeoutSeconds": 10,
}

#: Where the dashboard's secret for the identity provider is.
OIDC: Final = "/run/spritz-oidc"

#: Where the token is in pods that join.
JOIN: Final = "/run/spritz-join"


class Metadata(msgspec.Struct, rename="camel"):
    """Metadata of Spritz's resources and of their pods."""

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
    """PostgreSQL for accounting and, with a standby controller, for the journal. The password goes from its Secret to
    the daemons that connect, and to no others.
    """

    host: str
    user: str
    password_secret: SecretKey
    name: str = "slurm_acct_db"
    journal: str = "slurm_journal"
    port: int = 5432


class OpenId(msgspec.Struct):
    """An identity provider. `claim` holds the user's name."""

    issuer: str
    client: str
    secret: SecretKey | None = None
    claim: str = "preferred_username"


class Proxy(msgspec.Struct, rename="camel"):
    """A proxy that authenticates viewers, and names them in `header`. `from_`: its address or network."""

    from_: str = msgspec.field(name="from")
    header: str = "X-Remote-User"


class Dashboard(msgspec.Struct, rename="camel"):
    """How viewers log in, and the names by which browsers call it."""

    hosts: list[str]
    login: str = "pam"
    oidc: OpenId | None = None
    proxy: Proxy | None = None
    image: str = ""


class HealthCheck(msgspec.Struct, rename="camel"):
    """HealthCheckProgram and HealthCheckInterval of all nodes; no program, no check."""

    program: str = "/usr/local/bin/spritz-health-check"
    interval_seconds: int = 60


class Topology(msgspec.Struct, rename="camel"):
    """Machines with the same value of a label are a leaf switch (`tree`) or block of the cluster's network."""

    label: str
    kind: str = "tree"
    block_size: int = 1


class ClusterSpec(msgspec.Struct, rename="camel"):
    image: str
    image_pull_policy: str = "IfNotPresent"
    cluster_name: str = ""
    max_nodes: int = 1024
    controllers: int = 1
    metrics: bool = False
    dashboard: Dashboard | None = None
    health_check: HealthCheck = msgspec.field(default_factory=HealthCheck)
    topology: Topology | None = None
    storage: Storage = msgspec.field(default_factory=Storage)
    database: Database | None = None
    partitions: list[Partition] = msgspec.field(default_factory=lambda: [Partition(name="main", default=True)])
    extra_config: str = ""


class Status(msgspec.Struct, rename="camel"):
    observed_generation: int = 0
    conditions: list[Condition] = []


class Cluster(msgspec.Struct):
    metadata: Metadata
    spec: ClusterSpec
    status: Status = msgspec.field(default_factory=Status)


class Configuration(msgspec.Struct, frozen=True):
    """The files of a cluster's daemons. `revision` differs with each of them."""

    files: dict[str, str]
    revision: str
    #: differs with what only a start of slurmctld takes: its hosts, its journal, whether it serves metrics
    shape: str


def configuration(
    cluster: Cluster, nodes: Sequence[str] = (), devices: Sequence[str] = (), units: Sequence[str] = ()
) -> Configuration:
    """`nodes`, `devices`: lines of slurm.conf and gres.conf for nodes that come and go. `units`: of the network."""
    files = {"slurmdbd.conf": slurmdbd_conf(cluster.spec.database)}
    if devices:
        files["gres.conf"] = "\n".join([*devices, ""])
    if cluster.spec.topology is not None and units:
        files["topology.yaml"] = topology_yaml(cluster.spec.topology, units)
    revision = _digest(slurm_conf(cluster, nodes), *files.values())
    files["slurm.conf"] = slurm_conf(cluster, nodes, revision)
    spec = cluster.spec
    return Configuration(files, revision, _digest(*controllers(cluster), _journal(spec), str(spec.metrics)))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _journal(spec: ClusterSpec) -> str:
    """The URL of the controllers' journal, or ""."""
    return _url(spec.database, spec.database.journal) if spec.controllers > 1 and spec.database is not None else ""


def slurm_conf(cluster: Cluster, nodes: Sequence[str] = (), revision: str = "") -> str:
    """The configuration of every daemon and command of the cluster. `nodes`: lines of those that come and go."""
    name, space, spec = cluster.metadata.name, cluster.metadata.namespace, cluster.spec
    parameters = ["enable_configless"]
    if _journal(spec):
        parameters.append(f"journal={_journal(spec)}")
    gres_types = ["gpu", "shard"]
    extra = []
    for line in spec.extra_config.splitlines():
        own = _JOINED.fullmatch(line)
        if own is not None:
            words = parameters if own[1].lower() == "slurmctldparameters" else gres_types
            words += [word for word in own[2].split(",") if word and word not in words]
        # The number of lines stays, for messages that name a line.
        extra.append(line if own is None else f"# with the others above: {line.strip()}")
    if revision:
        parameters.append(f"revision={revision}")
    lines = [
        f"ClusterName={spec.cluster_name or name}",
        *(f"SlurmctldHost={host}({host}.{name}-controllers.{space})" for host in controllers(cluster)),
        f"SlurmctldPort={CONTROLLER_PORT}",
        f"SlurmUser={rights.SLURM_USER}",
        f"SlurmctldParameters={','.join(parameters)}",
        "AuthType=auth/slurm",
        "AuthAltTypes=auth/jwt",
        f"AuthAltParameters=jwt_key={ETC}/jwt.key",
        f"AccountingStorageHost={name}-accounting.{space}",
        f"AccountingStoragePort={ACCOUNTING_PORT}",
        "AccountingStorageType=accounting_storage/slurmdbd",
        f"StateSaveLocation={STATE}/state",
        f"SlurmdSpoolDir={STATE}/spool",
        f"SlurmctldPidFile={STATE}/slurmctld.pid",
        f"SlurmdPidFile={STATE}/slurmd.pid",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        f"GresTypes={','.join(gres_types)}",
        "ReturnToService=2",
        f"MaxNodeCount={spec.max_nodes}",
    ]
    if spec.metrics:
        lines.append("MetricsType=metrics/openmetrics")
    check = spec.health_check
    if check.program:
        lines += [f"HealthCheckProgram={check.program}", f"HealthCheckInterval={check.interval_seconds}"]
    lines += nodes
    sets = sorted({node_set for partition in spec.partitions for node_set in partition.node_sets or ()})
    lines += [f"NodeSet={node_set} Feature={node_set}" for node_set in sets]
    for partition in spec.partitions:
        nodes = ",".join(partition.node_sets) if partition.node_sets else "ALL"
        default = " Default=YES" if partition.default else ""
        lines.append(f"PartitionName={partition.name} Nodes={nodes} MaxTime={partition.max_time}{default}")
    return "\n".join([*lines, *extra]) + "\n"


def slurmdbd_conf(database: Database | None = None) -> str:
    """SQLite on the volume of slurmdbd's pod, or PostgreSQL, whose password is in the pod's environment."""
    lines = [
        f"DbdPort={ACCOUNTING_PORT}",
        f"SlurmUser={rights.SLURM_USER}",
        "AuthType=auth/slurm",
        "AuthAltTypes=auth/jwt",
        f"AuthAltParameters=jwt_key={ETC}/jwt.key",
        f"PidFile={STATE}/slurmdbd.pid",
    ]
    if database is None:
        lines += ["StorageType=accounting_storage/sqlite", f"StorageLoc={STATE}/accounting.db"]
    else:
        lines.append(f"StorageUrl={_url(database, database.name)}")
    return "\n".join(lines) + "\n"


def controllers(cluster: Cluster) -> list[str]:
    """Names of slurmctld's pods: the first leads at first, and any of the others takes over."""
    return [f"{cluster.metadata.name}-controller-{number}" for number in range(cluster.spec.controllers)]


def _url(database: Database, name: str) -> str:
    """The database's URL without a password: daemons have it in their environment."""
    return f"postgresql://{database.user}@{database.host}:{database.port}/{name}"


#: The name of the network that a SpritzCluster's `topology` describes.
NETWORK: Final = "machines"


def topology_yaml(topology: Topology, units: Sequence[str]) -> str:
    """The network of these leaf switches or blocks; nodes get their places when they join."""
    if topology.kind == "block":
        shape = {"block_sizes": [topology.block_size], "blocks": [{"block": unit} for unit in units]}
    else:
        root = {"switch": f"{NETWORK}-root", "children": ",".join(units)}
        shape = {"switches": [root, *({"switch": unit} for unit in units)]}
    network = {"topology": NETWORK, "cluster_default": True, topology.kind: shape}
    return yaml.safe_dump([network], sort_keys=False)


def control_plane(cluster: Cluster, config: Configuration, started: str) -> list[Json]:
    """All objects except the keys, in the order of creation.

    `started`: the revision of the configuration with which the daemons start, or started.
    """
    name = cluster.metadata.name
    start = {f"{PREFIX}shape": config.shape, STARTED: started}
    database = {f"{PREFIX}shape": _digest(config.files["slurmdbd.conf"])}
    files = _object(cluster, "v1", "ConfigMap", "config", data=config.files)
    # The pod's name is its SlurmctldHost.
    controller = ["slurmctld", "-D", "-N", "$(POD_NAME)"]
    accounting = ["slurmdbd", "-D"]
    slurmrestd = ["slurmrestd", "-a", "rest_auth/jwt", f"0.0.0.0:{REST_PORT}"]
    # The name must resolve before the controller is ready: the others look for it to learn whether it leads.
    hosts = {"clusterIP": "None", "publishNotReadyAddresses": True}
    objects = [
        files,
        _service(cluster, "controllers", "controller", CONTROLLER_PORT, **hosts),
        _service(cluster, "controller", "controller", CONTROLLER_PORT),
        *([_service(cluster, "metrics", "controller", CONTROLLER_PORT)] if cluster.spec.metrics else []),
        _service(cluster, "accounting", "accounting", ACCOUNTING_PORT),
        _service(cluster, "rest", "rest", REST_PORT),
        _stateful_set(cluster, "accounting", accounting, ACCOUNTING_PORT, database),
        _stateful_set(cluster, "controller", controller, CONTROLLER_PORT, start, cluster.spec.controllers),
        _deployment(cluster, "rest", slurmrestd, REST_PORT, start),
    ]
    if cluster.spec.controllers > 1:
        selector = {"matchLabels": labels(name, "controller")}
        budget = {"maxUnavailable": 1, "selector": selector}
        objects.append(_object(cluster, "policy/v1", "PodDisruptionBudget", "controller", spec=budget))
    if cluster.spec.dashboard is not None:
        objects += [
            _service(cluster, "dashboard", "dashboard", DASHBOARD_PORT),
            _deployment(cluster, "dashboard", _dashboard(cluster, cluster.spec.dashboard), DASHBOARD_PORT, start),
        ]
    return objects


def _dashboard(cluster: Cluster, dashboard: Dashboard) -> list[str]:
    name, space = cluster.metadata.name, cluster.metadata.namespace
    words = ["spritz", "dashboard", "--serve", "--rest", f"http://{name}-rest.{space}:{REST_PORT}"]
    words += ["--listen", f"0.0.0.0:{DASHBOARD_PORT}", "--directory", STATE]
    words += ["--name", cluster.spec.cluster_name or name]
    words += ["--login", dashboard.login, "--behind-tls"]
    for host in dashboard.hosts:
        words += ["--host", host]
    if dashboard.oidc is not None:
        oidc = dashboard.oidc
        words += ["--oidc-issuer", oidc.issuer, "--oidc-client", oidc.client, "--oidc-claim", oidc.claim]
        if oidc.secret is not None:
            words += ["--oidc-secret", f"{OIDC}/{oidc.secret.key}"]
    if dashboard.proxy is not None:
        words += ["--proxy-header", dashboard.proxy.header, "--proxy-from", dashboard.proxy.from_]
    return words


def controller_address(cluster: Cluster) -> str:
    """The address at which machines join."""
    return f"{cluster.metadata.name}-controller.{cluster.metadata.namespace}:{CONTROLLER_PORT}"


def keys(cluster: Cluster, cluster_key: str, token_key: str) -> Json:
    """The Secret, of two keys in base64."""
    data = {"slurm.key": cluster_key, "jwt.key": token_key}
    return _object(cluster, "v1", "Secret", "keys", type="Opaque", data=data)


def labels(cluster: str, component: str) -> dict[str, str]:
    return {CLUSTER: cluster, "app.kubernetes.io/name": "spritz", "app.kubernetes.io/component": component}


def owner(kind: str, metadata: Metadata) -> list[Json]:
    """The owner reference with which an object is deleted together with its resource."""
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


def _service(cluster: Cluster, component: str, of: str, port: int, **more: Any) -> Json:
    """The Service CLUSTER-`component`, for the pods of the component `of`."""
    spec = {
        "selector": labels(cluster.metadata.name, of),
        "ports": [{"name": of, "port": port, "targetPort": port, "protocol": "TCP"}],
        **more,
    }
    service = _object(cluster, "v1", "Service", component, spec=spec)
    if component == "metrics":
        marks = {"scrape": "true", "port": str(port), "path": "/metrics"}
        service["metadata"]["annotations"] = {f"prometheus.io/{name}": value for name, value in marks.items()}
    return service


def _deployment(cluster: Cluster, component: str, command: list[str], port: int, marks: dict[str, str]) -> Json:
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels(cluster.metadata.name, component)},
        "template": _template(cluster, component, command, port, marks, stored=False),
    }
    return _object(cluster, "apps/v1", "Deployment", component, spec=spec)


def _stateful_set(
    cluster: Cluster, component: str, command: list[str], port: int, marks: dict[str, str], replicas: int = 1
) -> Json:
    storage = cluster.spec.storage
    claim: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage.size}}}
    if storage.storage_class_name is not None:
        claim["storageClassName"] = storage.storage_class_name
    name = cluster.metadata.name
    spec = {
        "replicas": replicas,
        "serviceName": f"{name}-controllers" if component == "controller" else f"{name}-{component}",
        "selector": {"matchLabels": labels(name, component)},
        "template": _template(cluster, component, command, port, marks, stored=True),
        "volumeClaimTemplates": [{"metadata": {"name": "state"}, "spec": claim}],
    }
    if replicas > 1:
        # All start at once: any of them may lead.
        spec["podManagementPolicy"] = "Parallel"
    return _object(cluster, "apps/v1", "StatefulSet", component, spec=spec)


def _readiness(cluster: Cluster, component: str, port: int) -> Json:
    """The probe of a component: a request is answered."""
    if component == "controller":
        # By TLS, as every peer on another machine; a controller that stands by answers too.
        how: Json = {"httpGet": {"path": "/readyz", "port": port, "scheme": "HTTPS"}}
    elif component == "accounting":
        how = {"exec": {"command": ["sacctmgr", "ping"]}}
    else:
        how = {"httpGet": _page(cluster, component, "/readyz", port)}
    return {**how, "periodSeconds": 5, "timeoutSeconds": 5}


def _page(cluster: Cluster, component: str, path: str, port: int) -> Json:
    """A page of slurmrestd or the dashboard that says whether it is well."""
    dashboard = cluster.spec.dashboard
    if component != "dashboard" or dashboard is None:
        return {"path": path, "port": port}
    return {"path": "/healthz", "port": port, "httpHeaders": [{"name": "Host", "value": dashboard.hosts[0]}]}


def _relay(of: Json) -> Json:
    """A container with sackd, by which the commands of another container of its pod reach slurmctld and slurmdbd."""
    kept = {name: of[name] for name in ("imagePullPolicy", "securityContext", "volumeMounts", "image")}
    command = ["sackd", "-D", "-f", f"{ETC}/slurm.conf", "--pid-file", f"{STATE}/sackd.pid"]
    return {"name": "sackd", "command": command, **kept}


def _template(
    cluster: Cluster, component: str, command: list[str], port: int, marks: dict[str, str], *, stored: bool
) -> Json:
    name, spec = cluster.metadata.name, cluster.spec
    container: Json = {
        "name": component,
        "image": (spec.dashboard.image if component == "dashboard" and spec.dashboard else "") or spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": command,
        "ports": [{"name": component, "containerPort": port, "protocol": "TCP"}],
        "readinessProbe": _readiness(cluster, component, port),
        "securityContext": rights.container(),
        "volumeMounts": [
            {"name": "etc", "mountPath": ETC, "readOnly": True},
            {"name": "state", "mountPath": STATE},
        ],
    }
    if component in ("rest", "dashboard"):
        # These daemons have no state, so a hanging one is restarted. (slurmctld and slurmdbd may need long to recover.)
        alive = {"httpGet": _page(cluster, component, "/livez", port)}
        container["livenessProbe"] = {**alive, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6}
    sources = [{"configMap": {"name": f"{name}-config"}}, {"secret": {"name": f"{name}-keys"}}]
    volumes: list[Json] = [{"name": "etc", "projected": {"defaultMode": 0o400, "sources": sources}}]
    if not stored:
        volumes.append({"name": "state", "emptyDir": {}})
    env: list[Json] = []
    if component == "rest":
        # It has the cluster's key, as SlurmUser; every caller needs a token.
        env.append({"name": "SLURMRESTD_SECURITY", "value": "disable_user_check"})
    if component == "controller":
        env.append({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    has_journal = component == "controller" and spec.controllers > 1
    if spec.database is not None and (component == "accounting" or has_journal):
        secret = msgspec.to_builtins(spec.database.password_secret)
        env.append({"name": "PGPASSWORD", "valueFrom": {"secretKeyRef": secret}})
    oidc = spec.dashboard.oidc if component == "dashboard" and spec.dashboard is not None else None
    if oidc is not None and oidc.secret is not None:
        volumes.append({"name": "oidc", "secret": {"secretName": oidc.secret.name, "defaultMode": 0o400}})
        container["volumeMounts"].append({"name": "oidc", "mountPath": OIDC, "readOnly": True})
    if env:
        container["env"] = env
    asks_pam = component == "dashboard" and spec.dashboard is not None and spec.dashboard.login == "pam"
    containers = [container]
    if component == "dashboard":
        containers.append(_relay(container))
    pod: Json = {
        "containers": containers,
        "volumes": volumes,
        "securityContext": rights.root() if asks_pam else rights.slurm_user(),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
    }
    if component == "controller" and spec.controllers > 1:
        apart = {
            "weight": 100,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": labels(name, component)},
            },
        }
        pod["affinity"] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}}
    return {
        "metadata": {"labels": labels(name, component), "annotations": marks},
        "spec": pod,
    }
