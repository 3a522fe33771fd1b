"""LoginSets and Tokens: login hosts as pods, and Secrets with a token with which machines join.

A LoginSet is a Deployment of pods with two containers, sackd (which joins the cluster as a login host) and sshd, a
Service, the hosts' key, and a Secret with a token for pods that come. Users and their homes come with the image or
with volumes; who may log in stands in a ConfigMap with a file of public keys for each user.

A Token is a Secret with `token` and `address`, which is renewed before the token's end: for machines outside
Kubernetes, or pods of others.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from spritz.k8s.custom_resources import rights
from spritz.k8s.custom_resources.cluster_objects import (
    JOIN,
    STATE,
    Cluster,
    Condition,
    Json,
    Metadata,
    Status,
    controller_address,
    labels,
    owner,
)
from spritz.k8s.pods import PREFIX

#: On pods: the LoginSet.
LOGIN_SET: Final = f"{PREFIX}login-set"

SSH_PORT: Final = 22
HOST_KEYS: Final = "/etc/ssh/host-keys"
USER_KEYS: Final = "/etc/ssh/user-keys"

#: Seconds for which pods of a LoginSet may join by a token.
LIFESPAN: Final = 3600


class LoginSetSpec(msgspec.Struct, rename="camel"):
    cluster_ref: str
    replicas: int = 1
    image: str = ""
    authorized_keys: str = ""
    service_type: str = "ClusterIP"
    volumes: list[Json] | None = None
    volume_mounts: list[Json] | None = None
    resources: Json | None = None


class LoginSetStatus(Status, rename="camel"):
    replicas: int | None = None
    ready_replicas: int | None = None
    selector: str = ""


class LoginSet(msgspec.Struct):
    """The resource as the API server stores it."""

    metadata: Metadata
    spec: LoginSetSpec
    status: LoginSetStatus = msgspec.field(default_factory=LoginSetStatus)


class TokenSpec(msgspec.Struct, rename="camel"):
    cluster_ref: str
    role: str = "node"
    lifetime_seconds: int = 86400
    uses: int = 0
    host: str = ""
    secret_name: str = ""


class TokenStatus(Status, rename="camel"):
    expires_at: str = ""


class Token(msgspec.Struct):
    """The resource as the API server stores it."""

    metadata: Metadata
    spec: TokenSpec
    status: TokenStatus = msgspec.field(default_factory=TokenStatus)


def login_objects(cluster: Cluster, login_set: LoginSet) -> list[Json]:
    """Service and Deployment, in the order of their creation."""
    metadata, spec = login_set.metadata, login_set.spec
    marks = {**labels(cluster.metadata.name, "login"), LOGIN_SET: metadata.name}
    about: Json = {
        "name": metadata.name,
        "namespace": metadata.namespace,
        "labels": marks,
        "ownerReferences": owner("LoginSet", metadata),
    }
    ports = [{"name": "ssh", "port": SSH_PORT, "targetPort": SSH_PORT, "protocol": "TCP"}]
    template = {"metadata": {"labels": marks}, "spec": _pod(cluster, login_set)}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": about,
            "spec": {"type": spec.service_type, "selector": {LOGIN_SET: metadata.name}, "ports": ports},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": about,
            "spec": {
                "replicas": spec.replicas,
                "selector": {"matchLabels": {LOGIN_SET: metadata.name}},
                "template": template,
            },
        },
    ]


def _pod(cluster: Cluster, login_set: LoginSet) -> Json:
    spec, name = login_set.spec, login_set.metadata.name
    server = controller_address(cluster)
    conf = f"{STATE}/etc/slurm.conf"
    sshd = ["/usr/sbin/sshd", "-D", "-e", "-p", str(SSH_PORT), "-h", f"{HOST_KEYS}/ssh_host_ed25519_key"]
    options = [
        f"SetEnv=SLURM_CONF={conf}",
        f"AuthorizedKeysFile={USER_KEYS}/%u .ssh/authorized_keys",
        "PasswordAuthentication=no",
        "PermitRootLogin=no",
        "PidFile=none",
        # The mode of ConfigMap volumes says writable, which sshd would refuse; they are read-only.
        "StrictModes=no",
    ]
    common = {"image": spec.image or cluster.spec.image, "imagePullPolicy": cluster.spec.image_pull_policy}
    state = {"name": "state", "mountPath": STATE}
    volumes: list[Json] = [
        {"name": "state", "emptyDir": {}},
        {"name": "join", "secret": {"secretName": join_secret(name), "defaultMode": 0o400, "optional": True}},
        {"name": "host-keys", "secret": {"secretName": host_keys_secret(name), "defaultMode": 0o400}},
    ]
    mounts: list[Json] = [{**state, "readOnly": True}, {"name": "host-keys", "mountPath": HOST_KEYS, "readOnly": True}]
    if spec.authorized_keys:
        volumes.append({"name": "user-keys", "configMap": {"name": spec.authorized_keys}})
        mounts.append({"name": "user-keys", "mountPath": USER_KEYS, "readOnly": True})
    return {
        "containers": [
            {
                **common,
                "name": "sackd",
                "command": [
                    *("spritz", "join", server, "--token-file", f"{JOIN}/token"),
                    *("--host", "$(NODE_NAME)", "--dir", STATE, "--foreground"),
                ],
                "env": [
                    {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "SLURM_CONF", "value": conf},
                ],
                # sackd relays, and slurmctld answers.
                "readinessProbe": {
                    "exec": {"command": ["scontrol", "ping"]},
                    "periodSeconds": 15,
                    "timeoutSeconds": 10,
                },
                "securityContext": rights.container(),
                "volumeMounts": [state, {"name": "join", "mountPath": JOIN, "readOnly": True}],
            },
            {
                **common,
                "name": "sshd",
                "command": [*sshd, *(word for option in options for word in ("-o", option))],
                "ports": [{"name": "ssh", "containerPort": SSH_PORT, "protocol": "TCP"}],
                "readinessProbe": {"tcpSocket": {"port": SSH_PORT}, "periodSeconds": 5},
                "resources": spec.resources or {},
                "securityContext": rights.container(*rights.SSHD_CAPABILITIES),
                "volumeMounts": [*mounts, *(spec.volume_mounts or ())],
            },
        ],
        "volumes": [*volumes, *(spec.volumes or ())],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": rights.root(),
    }


def join_secret(login_set: str) -> str:
    """Name of the Secret by which pods of a LoginSet join."""
    return f"{login_set}-join"


def host_keys_secret(login_set: str) -> str:
    """Name of the Secret with the hosts' key."""
    return f"{login_set}-host-keys"


def host_key() -> bytes:
    """A new private key for sshd, in OpenSSH's form."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def asked_for(role: str, lifetime: int, uses: int, host: str) -> str:
    """A hash of the token's rights: if it differs, a new token is needed."""
    return hashlib.sha256(repr((role, lifetime, uses, host)).encode()).hexdigest()[:10]


def ready(status: bool, reason: str, message: str, metadata: Metadata) -> list[Condition]:
    """The status conditions with Ready set to this value."""
    return [
        Condition(
            type="Ready",
            status="True" if status else "False",
            reason=reason,
            message=message,
            observed_generation=metadata.generation,
        )
    ]


def secret_of(kind: str, metadata: Metadata, name: str, data: dict[str, str], annotations: dict[str, Any]) -> Json:
    """A Secret that goes with its resource; `data` in base64."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "annotations": annotations,
            "ownerReferences": owner(kind, metadata),
        },
        "type": "Opaque",
        "data": data,
    }
