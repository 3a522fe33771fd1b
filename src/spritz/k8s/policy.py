"""An administrator's policy for pods: account, partition, QOS and user by namespace, service account, priority class.

The user of a pod's job is the service account's, else the namespace's; a pod for which neither names one is refused,
since it would be the job of the operator's own user, an administrator. Annotations may ask for what `allow` has, and
for what the policy gives anyway; whether the user may have the account, partition and QOS Slurm decides as for any job.

    namespaces:
      research: {user: lab, account: lab, partition: gpu, qos: normal, allow: {qos: [normal, long], priority: 1000}}
      "*": {user: guest, account: guests}
    serviceAccounts:
      research/serving: {account: products, qos: inference}
    priorityClasses:
      inference-critical: {qos: high}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import yaml

from spritz.k8s.pods import PREFIX, Pod, Unfit, annotation

#: Labels that jobs and pods choose nodes by on most clusters.
WELL_KNOWN: Final = (
    "nvidia.com/gpu.product",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)


#: Fields of a job that rules give, and those that annotations of pods may ask for by name.
_FIELDS: Final = ("account", "partition", "qos", "reservation")
_NAMES: Final = (*_FIELDS, "licenses")


class PolicyError(Exception):
    """The file is invalid; the message names the mistake."""


class Allowed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What annotations of pods may ask for: these names, `*` for any that Slurm gives the user; by default none."""

    account: list[str] = []
    partition: list[str] = []
    qos: list[str] = []
    reservation: list[str] = []
    #: names; how many is Slurm's to bound
    licenses: list[str] = []
    #: the greatest; 0: it is Slurm's alone
    priority: Annotated[int, msgspec.Meta(ge=0, lt=2**32 - 16)] = 0

    def lacks(self, field: str, text: str) -> list[str]:
        """The names in an annotation's value that are not allowed."""
        names: list[str] = getattr(self, field)
        wishes = [re.split("[:=]", name)[0] if field == "licenses" else name for name in re.split("[,;|]", text)]
        return [] if "*" in names else [name for name in wishes if name.strip() not in names]


class Mapped(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of a job; "" leaves them to Slurm."""

    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    reservation: str = ""
    #: None: a service account has its namespace's
    allow: Allowed | None = None


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
    def users(self) -> set[str]:
        """All users for whom jobs are queued."""
        return {mapped.user for mapped in (*self.namespaces.values(), *self.service_accounts.values())} - {""}

    def fields(self, pod: Pod) -> dict[str, Any]:
        """Fields of the job that the pod does not set itself."""
        fields: dict[str, Any] = {}
        for mapped in (self._of_namespace(pod), self._of_account(pod), self._of_class(pod)):
            if mapped is not None:
                fields |= {name: text for name in _FIELDS if (text := getattr(mapped, name))}
        return fields

    def user(self, pod: Pod) -> str:
        """The user of the job. Raises Unfit if no rule names one."""
        for mapped in (self._of_account(pod), self._of_namespace(pod)):
            if mapped is not None and mapped.user:
                return mapped.user
        namespace = pod.metadata.namespace
        raise Unfit(
            f"no rule of the policy names a user for namespace {namespace}: "
            f"an administrator sets namespaces.{namespace}.user in the operator's policy",
            "metadata.namespace",
        )

    def user_of(self, pods: Sequence[Pod]) -> str:
        """The user of the job of these pods. Raises Unfit."""
        users = sorted({self.user(pod) for pod in pods})
        if len(users) > 1:
            words = "pods of one gang are one job, but their service accounts have several users in the policy"
            raise Unfit(f"{words}: {', '.join(users)}", "spec.serviceAccountName")
        return users[0]

    def check(self, pod: Pod) -> None:
        """Raises Unfit for the first wish of the pod's annotations that is not allowed."""
        for unfit in self.refusals(pod):
            raise unfit

    def refusals(self, pod: Pod) -> list[Unfit]:
        """Wishes of the pod's annotations that are not allowed."""
        allowed, given = self._allowed(pod), self.fields(pod)
        refused = []
        for field in _NAMES:
            text = pod.metadata.note(PREFIX + field)
            if text and text != given.get(field) and (lacks := allowed.lacks(field, text)):
                words = f"{PREFIX}{field}: the policy does not allow pods of namespace {pod.metadata.namespace}"
                names = ", ".join(getattr(allowed, field)) or "none"
                refused.append(
                    Unfit(f"{words} to ask for {', '.join(lacks)[:100]} (allowed: {names})", annotation(PREFIX + field))
                )
        text = pod.metadata.note(f"{PREFIX}priority")
        if text.isascii() and text.isdigit() and int(text) > allowed.priority:  # others are no priority at all
            most = f"at most {allowed.priority}" if allowed.priority else "none"
            words = f"{PREFIX}priority={text[:20]}: the policy allows pods of namespace {pod.metadata.namespace} {most}"
            refused.append(Unfit(words, annotation(f"{PREFIX}priority")))
        return refused

    def _allowed(self, pod: Pod) -> Allowed:
        for mapped in (self._of_account(pod), self._of_namespace(pod)):
            if mapped is not None and mapped.allow is not None:
                return mapped.allow
        return Allowed()

    def _of_namespace(self, pod: Pod) -> Mapped | None:
        return self.namespaces.get(pod.metadata.namespace, self.namespaces.get("*"))

    def _of_class(self, pod: Pod) -> Mapped | None:
        return self.priority_classes.get(pod.spec.priority_class_name)

    def _of_account(self, pod: Pod) -> Mapped | None:
        return self.service_accounts.get(f"{pod.metadata.namespace}/{pod.spec.service_account_name or 'default'}")


def features_of(labels: Mapping[str, str] | None, names: Iterable[str]) -> list[str]:
    """The values of these labels, each once."""
    return list(dict.fromkeys(value for name in names if (value := (labels or {}).get(name))))


def read(text: str) -> Policy:
    """The policy of a YAML file. Raises PolicyError."""
    try:
        policy = msgspec.convert(yaml.safe_load(text) or {}, Policy)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise PolicyError(str(error)) from error
    for name, mapped in policy.priority_classes.items():  # any pod of any namespace may name one
        if mapped.user or mapped.allow is not None:
            field = "user" if mapped.user else "allow"
            raise PolicyError(f"priorityClasses.{name}.{field}: a priority class cannot set it; a namespace can")
    return policy
