"""An administrator's policy for pods: account, partition, QOS and user by namespace, service account, priority class.

A pod's annotations may request values, but never its user. The user of its job is the service account's, else the
namespace's, else the operator's own, and whether that user may have the account, partition and QOS Slurm decides as for
any job.

    namespaces:
      research: {user: lab, account: lab, partition: gpu, qos: normal}
      "*": {account: guests}
    serviceAccounts:
      research/serving: {account: products, qos: inference}
    priorityClasses:
      inference-critical: {qos: high}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import yaml

from spritz.k8s.pods import Pod

#: Labels that jobs and pods choose nodes by on most clusters.
WELL_KNOWN: Final = (
    "nvidia.com/gpu.product",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)


class PolicyError(Exception):
    """The file is invalid; the message names the mistake."""


class Mapped(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of a job; "" leaves them to Slurm."""

    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    reservation: str = ""


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The policy file of an administrator, checked: unknown fields are refused."""

    namespaces: dict[str, Mapped] = {}
    #: by NAMESPACE/NAME; they count before the namespace
    service_accounts: dict[str, Mapped] = {}
    priority_classes: dict[str, Mapped] = {}
    #: labels of nodes whose values become features
    feature_labels: list[str] = msgspec.field(default_factory=lambda: list(WELL_KNOWN))
    #: labels of nodes whose values name leaf switches or blocks -> the topology that has these
    topology_labels: dict[str, str] = {}

    @property
    def names_users(self) -> bool:
        """Whether jobs are queued for other users, which takes a token."""
        return any(mapped.user for mapped in (*self.namespaces.values(), *self.service_accounts.values()))

    def fields(self, pod: Pod) -> dict[str, Any]:
        """Fields of the job that the pod does not set itself."""
        fields: dict[str, Any] = {}
        for mapped in (
            self.namespaces.get(pod.metadata.namespace, self.namespaces.get("*")),
            self._of_account(pod),
            self.priority_classes.get(pod.spec.priority_class_name),
        ):
            if mapped is not None:
                fields |= {name: text for name, text in msgspec.structs.asdict(mapped).items() if text}
        fields.pop("user", None)
        return fields

    def user(self, pod: Pod) -> str:
        """The user of the job; "" means the operator's."""
        mapped = self.namespaces.get(pod.metadata.namespace, self.namespaces.get("*"))
        of_account = self._of_account(pod)
        return (of_account.user if of_account is not None else "") or (mapped.user if mapped is not None else "")

    def _of_account(self, pod: Pod) -> Mapped | None:
        return self.service_accounts.get(f"{pod.metadata.namespace}/{pod.spec.service_account_name or 'default'}")


def features_of(labels: Mapping[str, str] | None, names: Iterable[str]) -> list[str]:
    """The values of these labels, each once."""
    return list(dict.fromkeys(value for name in names if (value := (labels or {}).get(name))))


def read(text: str) -> Policy:
    """The policy of a YAML file. Raises PolicyError."""
    try:
        return msgspec.convert(yaml.safe_load(text) or {}, Policy)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise PolicyError(str(error)) from error
