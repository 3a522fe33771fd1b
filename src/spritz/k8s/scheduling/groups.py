"""Objects other than pods that say how many pods start together: PodGroups, Workloads, LeaderWorkerSets, JobSets.

Kubernetes' own PodGroups (`spec.schedulingGroup` of a pod, 1.36 or later), the groups of its Workloads
(`spec.workloadRef`, 1.35), and the PodGroups of scheduler-plugins (a label). A gang starts when as many pods as its
minimum are there, all of these or none; pods beyond that are queued by themselves. Pods of a group with the policy
`basic` are queued by themselves too. A group of a LeaderWorkerSet is a gang; with the startup policy `LeaderReady` its
workers are made when its leader is ready, so the leader is queued by itself, and the workers are a gang. All pods of a
JobSet are a gang; their labels count its Jobs, not its pods.

Source: Kubernetes, "PodGroup API", "Scheduling Group", "Workload Reference"; kubernetes-sigs/scheduler-plugins,
pkg/coscheduling; kubernetes-sigs/lws, api/leaderworkerset/v1; kubernetes-sigs/jobset, api/jobset/v1alpha2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from lightkube.generic_resource import create_namespaced_resource

from spritz.k8s.api import Api
from spritz.k8s.pods import Maker, Metadata, Pod, is_leader
from spritz.k8s.watching import Reflector

#: Versions whose PodGroups have the same fields; a server has some of them, or none. (1.36: v1alpha2; 1.37: the others)
_VERSIONS: Final = ("v1alpha2", "v1alpha3", "v1beta1")

#: The size of no gang: the pod is queued by itself.
ALONE: Final = -1

T = TypeVar("T")


class Gang(msgspec.Struct, frozen=True, rename="camel"):
    min_count: int = 1


class SchedulingPolicy(msgspec.Struct, frozen=True):
    #: None: the policy is basic
    gang: Gang | None = None


class GroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    #: of scheduler-plugins
    min_member: int = 1


class Group(msgspec.Struct, frozen=True):
    """A PodGroup, of Kubernetes itself or of the scheduler-plugins project."""

    metadata: Metadata
    spec: GroupSpec = GroupSpec()


class JobSpec(msgspec.Struct, frozen=True):
    parallelism: int = 1
    completions: int | None = None


class JobTemplate(msgspec.Struct, frozen=True):
    spec: JobSpec = JobSpec()


class ReplicatedJob(msgspec.Struct, frozen=True):
    replicas: int = 1
    template: JobTemplate = JobTemplate()


class JobSetSpec(msgspec.Struct, frozen=True, rename="camel"):
    replicated_jobs: list[ReplicatedJob] = []


class JobSet(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: JobSetSpec = JobSetSpec()

    @property
    def size(self) -> int:
        """Number of pods that the JobSet runs at the same time."""
        count = 0
        for replicated in self.spec.replicated_jobs:
            job = replicated.template.spec
            count += replicated.replicas * min(job.parallelism, job.completions or job.parallelism)
        return count


class WorkloadGroup(msgspec.Struct, frozen=True):
    name: str
    policy: SchedulingPolicy = SchedulingPolicy()


class WorkloadSpec(msgspec.Struct, frozen=True, rename="camel"):
    pod_groups: list[WorkloadGroup] = []


class Workload(msgspec.Struct, frozen=True):
    """A Workload of 1.35. (Those of later versions are templates of PodGroups, which their controllers make.)"""

    metadata: Metadata
    spec: WorkloadSpec = WorkloadSpec()


class Template(msgspec.Struct, frozen=True):
    size: int = 1


class LeaderWorkerSetSpec(msgspec.Struct, frozen=True, rename="camel"):
    startup_policy: str = "LeaderCreated"
    leader_worker_template: Template = Template()


class LeaderWorkerSet(msgspec.Struct, frozen=True):
    metadata: Metadata
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()

    def size_of(self, pod: Pod) -> int:
        """As `Groups.size_of`."""
        size = self.spec.leader_worker_template.size
        if self.spec.startup_policy != "LeaderReady":
            return size
        return ALONE if is_leader(pod) else size - 1


class Groups:
    """Follows all of these objects. `changed` is called with the key of an object that has changed."""

    def __init__(self, api: Api, changed: Callable[[str], None]) -> None:
        def follow(group: str, version: str, kind: str, of: type[T]) -> Reflector[T]:
            resource = create_namespaced_resource(group, version, kind, f"{kind.lower()}s")
            return Reflector(
                api,
                resource,
                decode=msgspec.json.Decoder(of).decode,
                on_change=lambda change: changed(f"{kind}/{change.key}"),
            )

        self._native = [follow("scheduling.k8s.io", version, "PodGroup", Group) for version in _VERSIONS]
        self._workloads = follow("scheduling.k8s.io", "v1alpha1", "Workload", Workload)
        self._plugins = follow("scheduling.x-k8s.io", "v1alpha1", "PodGroup", Group)
        self._leader_worker_sets = follow("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", LeaderWorkerSet)
        self._job_sets = follow("jobset.x-k8s.io", "v1alpha2", "JobSet", JobSet)
        self.reflectors: list[Reflector[Any]] = [
            *self._native,
            self._workloads,
            self._plugins,
            self._leader_worker_sets,
            self._job_sets,
        ]

    def size_of(self, pod: Pod, maker: Maker) -> int | None:
        """How many pods of the pod's gang start together, as its maker says. ALONE: the pod is queued by itself; 0: its
        labels say, since the maker's kind cannot be read; None: the maker does not exist yet.
        """
        key = f"{pod.metadata.namespace}/{maker.name}"
        if maker.kind == "LeaderWorkerSet":
            leaders = self._leader_worker_sets.get(key)
            return leaders.size_of(pod) if leaders is not None else _without(self._leader_worker_sets)
        if maker.kind == "JobSet":
            job_set = self._job_sets.get(key)
            return job_set.size if job_set is not None else _without(self._job_sets)
        policy = None
        if maker.kind == "Workload" and pod.spec.workload_ref is not None:
            workload = self._workloads.get(key)
            groups = workload.spec.pod_groups if workload is not None else []
            policy = next((group.policy for group in groups if group.name == pod.spec.workload_ref.pod_group), None)
        elif pod.spec.scheduling_group is None:
            group = self._plugins.get(key)
            return group.spec.min_member if group is not None else None
        else:
            groups_found = (known for reflector in self._native if (known := reflector.get(key)) is not None)
            policy = next((known.spec.scheduling_policy for known in groups_found), None)
        if policy is None:
            return None
        return policy.gang.min_count if policy.gang is not None else ALONE


def _without(reflector: Reflector[Any]) -> int | None:
    """The size of a gang whose maker is not known."""
    return 0 if not reflector.synced.is_set() and reflector.counters.failures else None
