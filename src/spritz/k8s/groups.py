"""PodGroups and JobSets: how many pods start together, as an object other than the pods says.

Kubernetes' own (`spec.schedulingGroup` of a pod) and that of scheduler-plugins (a label). A gang starts when as many
pods as its minimum are there, all of these or none; pods beyond that are queued by themselves. Pods of a group with the
policy `basic` are queued by themselves too. All pods of a JobSet are a gang; their labels count its Jobs, not its pods.

Source: Kubernetes, "PodGroup API", "Scheduling Group"; kubernetes-sigs/scheduler-plugins, pkg/coscheduling;
kubernetes-sigs/jobset, api/jobset/v1alpha2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from lightkube.generic_resource import create_namespaced_resource

from spritz.k8s.api import Api
from spritz.k8s.pods import Metadata, Pod, group_of, job_set_of
from spritz.k8s.watching import Change, Reflector

#: Versions whose PodGroups have the same fields; a server has some of them, or none. (1.36: v1alpha2; 1.37: v1alpha3)
_VERSIONS: Final = ("v1alpha2", "v1alpha3")


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
        """Pods that it has at once."""
        found = 0
        for each in self.spec.replicated_jobs:
            job = each.template.spec
            found += each.replicas * min(job.parallelism, job.completions or job.parallelism)
        return found


class Groups:
    """Follows all PodGroups and JobSets. `changed` is told of the key of a group that is new or gone."""

    def __init__(self, api: Api, changed: Callable[[str], None]) -> None:
        def told(change: Change[Group] | Change[JobSet]) -> None:
            changed(change.key)

        def follow(group: str, version: str) -> Reflector[Group]:
            resource = create_namespaced_resource(group, version, "PodGroup", "podgroups")
            return Reflector(api, resource, decode=msgspec.json.Decoder(Group).decode, on_change=told)

        self._native = [follow("scheduling.k8s.io", version) for version in _VERSIONS]
        self._plugins = follow("scheduling.x-k8s.io", "v1alpha1")
        self._job_sets: Reflector[JobSet] = Reflector(
            api,
            create_namespaced_resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
            decode=msgspec.json.Decoder(JobSet).decode,
            on_change=told,
        )
        self.reflectors: list[Reflector[Group] | Reflector[JobSet]] = [*self._native, self._plugins, self._job_sets]

    def size_of(self, pod: Pod) -> int | None:
        """How many pods of the pod's group start together; 0: each by itself. None: the group is not there yet."""
        if not group_of(pod):
            return self._size_of_job_set(pod)
        key = f"{pod.metadata.namespace}/{group_of(pod)}"
        if pod.spec.scheduling_group is None:
            group = self._plugins.get(key)
            return group.spec.min_member if group is not None else None
        group = next((found for each in self._native if (found := each.get(key)) is not None), None)
        if group is None:
            return None
        gang = group.spec.scheduling_policy.gang
        return gang.min_count if gang is not None else 0

    def _size_of_job_set(self, pod: Pod) -> int | None:
        """0 where JobSets cannot be read; its labels are all that is known then."""
        found = self._job_sets.get(f"{pod.metadata.namespace}/{job_set_of(pod)}")
        if found is not None:
            return found.size
        unreadable = not self._job_sets.synced.is_set() and self._job_sets.counters.failures
        return 0 if unreadable else None
