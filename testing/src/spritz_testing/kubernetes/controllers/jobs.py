"""Job: pods that run to completion, also indexed ones, with retries and a deadline."""

from __future__ import annotations

import datetime
from typing import NamedTuple

from spritz_testing.kubernetes.conditions import set_condition
from spritz_testing.kubernetes.controllers.client import (
    Client,
    deleting,
    is_active,
    is_ready,
    phase_of,
    pod_of,
    set_counts,
)
from spritz_testing.kubernetes.errors import Object


class _Verdict(NamedTuple):
    """Why a job has ended: the type of its condition, reason and message."""

    condition: str
    reason: str
    message: str


_COMPLETE = _Verdict("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
_FAILED = _Verdict("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
_LATE = _Verdict("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")


class _Progress:
    """What the pods of a job have achieved. `done`: completed indexes of an indexed job."""

    def __init__(self, spec: Object, pods: list[Object]) -> None:
        self.spec = spec
        self.indexed = spec.get("completionMode") == "Indexed"
        completed = [pod for pod in pods if phase_of(pod) == "Succeeded"]
        self.done = {_index(pod) for pod in completed} if self.indexed else set()
        self.succeeded = len(self.done) if self.indexed else len(completed)
        self.failed = sum(phase_of(pod) == "Failed" for pod in pods)
        self.active = [pod for pod in pods if is_active(pod)]

    def verdict(self) -> _Verdict | None:
        """The job's end, by its pods; None while it goes on."""
        completions = self.spec.get("completions")
        if completions is None and self.succeeded and not self.active:
            return _COMPLETE
        if completions is not None and self.succeeded >= completions:
            return _COMPLETE
        return _FAILED if self.failed > self.spec["backoffLimit"] else None

    def missing(self) -> int:
        """Number of pods to create now."""
        missing: int = self.spec["parallelism"] - len(self.active)
        completions = self.spec.get("completions")
        if completions is not None:
            missing = min(missing, completions - self.succeeded - len(self.active))
        elif self.succeeded:
            missing = 0
        return max(0, missing)

    def free_indexes(self) -> list[int]:
        """Indexes without a pod that is active or has completed."""
        if not self.indexed:
            return []
        taken = self.done | {_index(pod) for pod in self.active}
        return [index for index in range(self.spec.get("completions") or 0) if index not in taken]


async def job(client: Client, namespace: str, name: str) -> None:
    """Create pods until enough have succeeded; end the job when they have, or when it has failed."""
    job = client.find("jobs", namespace, name)
    if job is None or deleting(job) or _has_ended(job):
        return
    spec = job["spec"]
    progress = _Progress(spec, client.children(job, "pods"))
    verdict = progress.verdict() or _late(client, job)
    active = progress.active
    if spec.get("suspend") or verdict in (_FAILED, _LATE):
        for pod in active:
            await client.delete("pods", pod)
        active = []
    elif verdict is None:
        free = progress.free_indexes()
        for _ in range(progress.missing()):
            pod = pod_of(job, "Job", spec["template"], generateName=f"{name}-")
            if progress.indexed:
                _set_index(pod, name, free.pop(0))
            if not await client.create_pod("jobs", job, pod):
                break
        active = [pod for pod in client.children(job, "pods") if is_active(pod)]
    now = client.cluster.timestamp()
    await client.modify("jobs", namespace, name, lambda obj: _report(obj, progress, active, verdict, now))


def _has_ended(job: Object) -> bool:
    return any(
        condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
        for condition in (job.get("status") or {}).get("conditions") or ()
    )


def _late(client: Client, job: Object) -> _Verdict | None:
    """The verdict on a job that ran longer than activeDeadlineSeconds; before, it is looked at again then."""
    deadline = job["spec"].get("activeDeadlineSeconds")
    started = (job.get("status") or {}).get("startTime")
    if deadline is None or not started:
        return None
    started_at = datetime.datetime.fromisoformat(started.replace("Z", "+00:00")).timestamp()
    left = started_at + deadline - client.cluster.now()
    if left <= 0:
        return _LATE
    client.mark_later(left, "jobs", job["metadata"]["namespace"], job["metadata"]["name"])
    return None


def _report(obj: Object, progress: _Progress, active: list[Object], verdict: _Verdict | None, now: str) -> None:
    status = obj.setdefault("status", {})
    if progress.spec.get("suspend"):
        status.pop("startTime", None)
        set_condition(obj, "Suspended", "True", now, reason="JobSuspended", message="Job suspended")
    else:
        status.setdefault("startTime", now)
        if any(condition["type"] == "Suspended" for condition in status.get("conditions") or ()):
            set_condition(obj, "Suspended", "False", now, reason="JobResumed", message="Job resumed")
    set_counts(status, {"active": len(active), "succeeded": progress.succeeded, "failed": progress.failed})
    status["ready"] = sum(is_ready(pod) for pod in active)
    if verdict is not None:
        set_condition(obj, verdict.condition, "True", now, reason=verdict.reason, message=verdict.message)
        if verdict is _COMPLETE:
            status["completionTime"] = now


def _index(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get("batch.kubernetes.io/job-completion-index", -1))


def _set_index(pod: Object, name: str, index: int) -> None:
    pod["metadata"]["generateName"] = f"{name}-{index}-"
    for part in ("annotations", "labels"):
        pod["metadata"].setdefault(part, {})["batch.kubernetes.io/job-completion-index"] = str(index)
    for container in pod["spec"]["containers"]:
        container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "value": str(index)})
