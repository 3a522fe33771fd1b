"""The pod scheduler: pods with `schedulerName: spritz` wait, start and end as jobs of the cluster.

The state is in two places: pods in the API server, jobs in slurmctld. A workload (`pods.workload_of`) is processed
whenever one of its pods or its job changes, and when the operator starts; each time it compares both and takes the next
step, so missed events, and steps done by an earlier operator, do not matter:

    pods there, no job          queue a job (under a key, so a lost answer does no harm)
    job waits                   write the reason on the pods; cancel it if the pods have gone
    job runs, pods not placed   bind each pod, with annotations for its job, task and GPUs
    all pods over or gone       report the job's end, with the pods' exit code
    job ends from its side      evict the pods; report when they are gone, which frees the nodes
    (scancel, limit)
    job is preempted            the same, at the beginning of its grace

Nothing here decides where a pod runs: the cycle of slurmctld does, for pods and jobs alike.

Source: docs/decisions/0200; Kubernetes, "Scheduling Framework" (what binding means), "Pod Lifecycle".
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from lightkube.resources.core_v1 import Node as NodeResource
from lightkube.resources.core_v1 import Pod as PodResource

from spritz.http.rest import RestError
from spritz.http.stream import Bookmark
from spritz.k8s.api import Api, ApiFailure
from spritz.k8s.living import keep
from spritz.k8s.pods import (
    GANG,
    GPUS,
    JOB,
    SLOT,
    Pod,
    Unfit,
    alone,
    gang_size,
    maker_of,
    workload_of,
)
from spritz.k8s.policy import Policy
from spritz.k8s.scheduling import placing, pod_fields
from spritz.k8s.scheduling.claims import names_of, shared_in
from spritz.k8s.scheduling.devices import LAYOUT
from spritz.k8s.scheduling.groups import ALONE, Groups
from spritz.k8s.scheduling.placing import COMMENT, FEATURE, KubeNode
from spritz.k8s.scheduling.pod_claims import PodClaims
from spritz.k8s.scheduling.reports import Reports
from spritz.k8s.slurm import Job, Slurm
from spritz.k8s.watching import Change, ChangeKind, Reflector
from spritz.k8s.workqueue import WorkQueue

#: Workloads processed concurrently.
WORKERS: Final = 64

#: Seconds between two explanations of a waiting workload; if many wait, at least AGAIN_EACH times their number, because
#: an explanation costs slurmctld about as much as a placement.
AGAIN, AGAIN_EACH = 30.0, 0.1

#: Seconds after which a newly queued workload is processed again, unless an event reports its start before.
_QUEUED: Final = 1.0

#: Pods of a gang are not told that others are missing before so many seconds: most gangs are made at once, and telling
#: would cost a write and an event for each pod.
_GATHERED: Final = 1.0

#: Seconds for which changes of nodes are collected before waiting workloads are compared with them.
_NODES_GATHERED: Final = 0.5

#: Seconds after which a workload without its PodGroup or other maker is processed again.
_UNGROUPED: Final = 2.0

#: Seconds after which a pod is tried again whose devices are still allocated to another claim.
_UNALLOCATED: Final = 1.0

#: Seconds for which requests for rows of jobs are collected, and the most rows in one request to slurmrestd.
_ROWS_GATHERED, _ROWS_MAX = 0.01, 500

#: Comments of our jobs: `workload_of` and `alone`.
_OURS: Final = re.compile(rf"{COMMENT}(gang/[^/]+/[^/]+|pod/[^/]+/[^/]+/[^/]+)")

#: Seconds between attempts to follow slurmrestd's events.
_RECONNECT: Final = 1.0

#: Writes a log line: the event's name, and details.
Log = Callable[..., None]


class Jobs:
    """Fetches rows of jobs, several in a request, while `run` runs."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._wanted: dict[int, list[asyncio.Future[Job | None]]] = {}
        self._asked = asyncio.Event()

    async def get(self, job_ids: Iterable[int]) -> list[Job]:
        """Rows of the jobs that slurmctld knows. Raises RestError."""
        loop = asyncio.get_running_loop()
        waits: list[asyncio.Future[Job | None]] = []
        for job_id in job_ids:
            future: asyncio.Future[Job | None] = loop.create_future()
            self._wanted.setdefault(job_id, []).append(future)
            waits.append(future)
        self._asked.set()
        rows = await asyncio.gather(*waits)
        return [job for job in rows if job is not None]

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._asked.wait()
            await asyncio.sleep(_ROWS_GATHERED)
            ids = list(self._wanted)[:_ROWS_MAX]
            group = {job_id: self._wanted.pop(job_id) for job_id in ids}
            if not self._wanted:
                self._asked.clear()
            try:
                rows = {job.id: job for job in await self._slurm.jobs(ids)}
            except RestError as failure:
                for futures in group.values():
                    for future in futures:
                        if not future.done():
                            future.set_exception(failure)
                continue
            for job_id, futures in group.items():
                for future in futures:
                    if not future.done():
                        future.set_result(rows.get(job_id))


class PodScheduler:
    """Follows pods, nodes and jobs, and processes workloads that change. `run` returns when it is cancelled."""

    def __init__(self, api: Api, slurm: Slurm, policy: Policy, log: Log, *, name: str = "spritz") -> None:
        self._api = api
        self._slurm = slurm
        self._policy = policy
        self._log = log
        self.queue: WorkQueue[str] = WorkQueue()
        self.pods: Reflector[Pod] = Reflector(
            api,
            PodResource,
            fields=f"spec.schedulerName={name}",
            decode=msgspec.json.Decoder(Pod).decode,
            on_change=self._pod_changed,
        )
        #: called with each change of a node
        self.node_changed: Callable[[Change[KubeNode]], None] = lambda change: None
        #: whether a slurmd runs jobs on the node too
        self.runs_jobs: Callable[[str], bool] = lambda node: False
        self.nodes: Reflector[KubeNode] = Reflector(
            api,
            NodeResource,
            decode=msgspec.json.Decoder(KubeNode).decode,
            on_change=self._node_changed,
        )
        self._closed = placing.ClosedNodes(self.nodes.values)
        self.claims = PodClaims(
            api,
            nodes_for=self._open_to,
            claim_changed=self._claim_changed,
            node_changed=self._devices_changed,
            offer_changed=self.look_again,
        )
        #: workload whose job waits -> nodes that each component of the job excludes
        self._excluded: dict[str, list[frozenset[str]]] = {}
        self._nodes_differ = asyncio.Event()
        self.groups = Groups(api, self._group_changed)
        #: KIND/NAMESPACE/NAME of what says the size of gangs -> workloads that asked since it changed last
        self._grouped: dict[str, set[str]] = {}
        #: uids of a gang's pods that are queued as single pods
        self._alone: set[str] = set()
        self._jobs = Jobs(slurm)
        #: workload -> its pods, by their keys
        self._members: dict[str, set[str]] = {}
        #: workload -> ids of its job's components; no entry: not queued
        self._job_ids: dict[str, tuple[int, ...]] = {}
        self._workloads: dict[int, str] = {}
        #: Workloads that Slurm refused to queue: a new node may make them possible.
        self._refused: set[str] = set()
        #: workload -> how many jobs it has had
        self._lives: dict[str, int] = {}
        #: uid of a pod -> its task as written to the server, which the watch may not have reported yet
        self._seats: dict[str, int] = {}
        #: a gang without all of its pods -> since when, on the loop's clock
        self._gathering: dict[str, float] = {}
        #: uids of pods whose binding succeeded, though the watch may not have told yet
        self._bound: set[str] = set()
        self._reports = Reports(api, log)
        self.bound = 0

    # Following

    async def run(self, nodes_cleared: asyncio.Event | None = None) -> None:
        """Schedule until cancelled. Nothing is queued before `nodes_cleared`: its nodes might be gone."""
        async with asyncio.TaskGroup() as group:
            keep(group, self.pods.run(), name="pods")
            keep(group, self.nodes.run(), name="nodes")
            keep(group, self._reports.run(), name="reports")
            keep(group, self._jobs.run(), name="jobs")
            keep(group, self._follow_nodes(), name="closed-nodes")
            for follower in self.groups.reflectors:
                keep(group, follower.run(), name="pod-groups")
            for follower in self.claims.reflectors:
                keep(group, follower.run(), name="claims")
            await self.pods.synced.wait()
            await self.nodes.synced.wait()
            followed = asyncio.Event()
            keep(group, self._follow(followed), name="events")
            await followed.wait()
            if nodes_cleared is not None:
                await nodes_cleared.wait()
            keep(group, self.queue.run(self._look, workers=WORKERS, on_failure=self._failed), name="workloads")

    async def _follow(self, followed: asyncio.Event) -> None:
        """Follow the event stream. A new stream, and one that lost events, processes all workloads; one that only broke
        goes on where it was.
        """
        away, bookmark = False, Bookmark()
        while True:
            try:
                async with self._slurm.events(bookmark) as events:
                    async for event in events:
                        away = False
                        if event.type in ("hello", "reset"):
                            await self._find_nodes()
                            await self._find_jobs()
                            followed.set()
                            continue
                        if event.body.get("kind") == "NodesCreated":
                            self.look_again()
                        for number in self._numbers(event.body):
                            if (workload := self._workloads.get(number)) is not None:
                                self.queue.add(workload)
            except RestError as failure:
                if not away:  # once for each time that it is away
                    self._log("slurm.away", error=failure.message)
                away = True
            await asyncio.sleep(_RECONNECT)

    @staticmethod
    def _numbers(event: dict[str, Any]) -> list[int]:
        if event.get("kind") == "JobsNoted":
            return []
        return [event["job_id"]] if "job_id" in event else list(event.get("job_ids") or ())

    async def _find_nodes(self) -> frozenset[str]:
        """Nodes with slurmd on which Slurm may place pods; those of them that are not in this Kubernetes are closed.
        (NodeSync removes nodes without slurmd.)
        """
        nodes = await self._slurm.nodes()
        names = frozenset(node.name for node in nodes if FEATURE in node.features and "EXTERNAL" not in node.state)
        self._closed.set_nodes_of_slurm(names)
        return names

    async def _find_jobs(self) -> None:
        """Adopt jobs that an earlier operator queued, and process every workload that has pods or a job."""
        rows = [job for job in await self._slurm.jobs() if _OURS.fullmatch(job.admin_comment)]
        for job in sorted(rows, key=lambda job: job.id):
            workload = job.admin_comment.removeprefix(COMMENT)
            kind, namespace, name, *uid = workload.split("/")
            pod = self.pods.get(f"{namespace}/{name}") if kind == "pod" else None
            if pod is not None and uid == [pod.metadata.uid] and workload_of(pod) != workload and not job.is_gone:
                self._leave_gang(pod)
            if job.het_job_id and job.het_job_id != job.id:
                ids = self._job_ids.get(workload, ())
                if job.id not in ids and job.het_job_id in ids:
                    self._adopt(workload, (*ids, job.id))
            elif job.id not in self._job_ids.get(workload, ()):
                self._lives[workload] = self._lives.get(workload, 0) + 1
                if not job.is_gone:
                    self._adopt(workload, (job.id,))
        for pod in self.pods.values():
            if pod.is_placed:  # its labels may have changed since
                self._members.setdefault(self._workload(pod), set()).add(pod.key)
        for workload in {*self._members, *self._job_ids}:
            self.queue.add(workload)

    def _adopt(self, workload: str, job_ids: tuple[int, ...]) -> None:
        self._job_ids[workload] = job_ids
        for job_id in job_ids:
            self._workloads[job_id] = workload

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new if change.new is not None else change.old
        assert pod is not None, change
        workload = self._workload(pod)
        if change.kind is ChangeKind.DELETED:
            self._members.get(workload, set()).discard(pod.key)
            self._alone.discard(pod.metadata.uid)
            self._reports.forget(pod.metadata.uid)
            self._seats.pop(pod.metadata.uid, None)
            self.claims.forget(pod)
            self._bound.discard(pod.metadata.uid)
        else:
            self._members.setdefault(workload, set()).add(pod.key)
        old, new = change.old, change.new
        if old is not None and (before := self._workload(old)) != workload:
            # It was put into another gang, or taken out of one, while it waits.
            self._members.get(before, set()).discard(pod.key)
            self.queue.add(before)
        if old is None or new is None or _outline(old) != _outline(new):
            self.queue.add(workload)

    async def _follow_nodes(self) -> None:
        """Process waiting workloads for which other nodes are possible than before, until cancelled."""
        while True:
            await self._nodes_differ.wait()
            await asyncio.sleep(_NODES_GATHERED)
            self._nodes_differ.clear()
            for workload, excluded in list(self._excluded.items()):
                keys = sorted(self._members.get(workload, ()))
                pods = [pod for key in keys if (pod := self.pods.get(key)) is not None]
                # Of pods with claims other nodes are excluded too: they are compared when they are processed next.
                if not pods or pods[0].spec.resource_claims:
                    continue
                try:
                    differs = self._closed_to(pods) != excluded
                except Unfit:  # a pod that joined its gang later; its next look says so
                    differs = True
                if differs:
                    self.queue.add(workload)
            self.look_again()

    def _closed_to(self, pods: Sequence[Pod]) -> list[frozenset[str]]:
        """Nodes to exclude for each component of these pods' job."""
        return [frozenset(placing.closed_to(members, self._closed)) for _shape, members in placing.by_shape(pods)]

    def look_again(self) -> None:
        """Nodes or devices are there that may make a refused workload possible."""
        for workload in self._refused:
            self.queue.add(workload)

    def _node_changed(self, change: Change[KubeNode]) -> None:
        self._closed.clear()
        node = change.new
        if change.old is None or node is None or change.old.admission() != node.admission():
            self._nodes_differ.set()
        if node is not None:
            self.claims.inventory.set_node(node.name, node.metadata.note(LAYOUT), placing.product_of(node))
        self.node_changed(change)

    def _devices_changed(self, name: str) -> None:
        if (node := self.nodes.get(name)) is not None:
            self.node_changed(Change(ChangeKind.MODIFIED, node.name, node, node))

    def _claim_changed(self, key: str) -> None:
        if (pod := self.pods.get(key)) is not None:
            self.queue.add(self._workload(pod))

    def _open_to(self, pod: Pod) -> list[str]:
        """Nodes that the pod can use."""
        closed = set(self._closed.of(pod))
        return [name for node in self.nodes.values() if (name := node.name) not in closed]

    def _workload(self, pod: Pod) -> str:
        """The workload of the pod. A pod that has its node stays with its job, whatever its labels say later."""
        if pod.metadata.uid in self._alone:
            return alone(pod)
        if pod.is_placed and (workload := self._workloads.get(pod.job_id)) is not None:
            return workload
        return workload_of(pod)

    def _leave_gang(self, pod: Pod) -> None:
        """Take the pod out of its gang, and queue it as a single pod."""
        self._members.get(workload_of(pod), set()).discard(pod.key)
        self._alone.add(pod.metadata.uid)
        self._members.setdefault(alone(pod), set()).add(pod.key)
        self.queue.add(alone(pod))

    def _group_changed(self, key: str) -> None:
        for workload in self._grouped.pop(key, ()):  # those that still wait are added again
            self.queue.add(workload)

    def _with_group(self, pod: Pod) -> Pod | None:
        """The pod with the size of its gang; None while the object that tells it does not exist."""
        maker = maker_of(pod)
        if maker is None or pod.metadata.uid in self._alone:
            return pod
        key = f"{maker.kind}/{pod.metadata.namespace}/{maker.name}"
        self._grouped.setdefault(key, set()).add(workload_of(pod))
        size = self.groups.size_of(pod, maker)
        return None if size is None else msgspec.structs.replace(pod, group_size=size)

    def _with_devices(self, pod: Pod, shared: frozenset[str], *, has_job: bool) -> Pod:
        return self.claims.with_devices(pod, shared, has_job=has_job, has_node=self._has_node(pod))

    def _failed(self, workload: str, error: Exception, failures: int, delay: float) -> None:
        words = error.message if isinstance(error, RestError | ApiFailure) else repr(error)
        self._log("workload.failed", workload=workload, error=words, failures=failures, again_seconds=round(delay, 1))

    # One workload

    async def _look(self, workload: str) -> float | None:
        """Compare the workload's pods with its job, and take the next step. Returns seconds to the next look."""
        keys = self._members.get(workload, set())
        pods = [
            pod for key in sorted(keys) if (pod := self.pods.get(key)) is not None and self._workload(pod) == workload
        ]
        job_ids = self._job_ids.get(workload, ())
        try:
            shared = shared_in(pods) if len(pods) > 1 else frozenset()
            pods = [self._with_devices(pod, shared, has_job=bool(job_ids)) for pod in pods]
        except Unfit as unfit:
            self._refused.add(workload)  # first: what it lacks may come while its pods are told
            await self._reports.say(pods, str(unfit), refused=True)
            return 4 * AGAIN
        grouped = [with_size for pod in pods if (with_size := self._with_group(pod)) is not None]
        if len(grouped) < len(pods) and not job_ids:
            maker = maker_of(pods[0])
            assert maker is not None, workload
            await self._reports.say(pods, f"waits for its {maker.kind} {maker.name}, which does not exist yet")
            return _UNGROUPED
        pods = grouped if len(grouped) == len(pods) else pods
        if not job_ids:
            if not pods:
                self._members.pop(workload, None)
                self._gathering.pop(workload, None)
                self._lives.pop(workload, None)
                self._refused.discard(workload)
                return None
            return await self._submit(workload, pods)
        pods = await self._fit(pods)
        rows = await self._jobs.get(job_ids)
        living = [pod for pod in pods if not pod.is_over]
        if not rows:
            self._job_is_gone(workload, job_ids)
            return None
        if all(job.is_gone for job in rows):
            self._job_is_gone(workload, job_ids)
            if rows[0].is_withdrawn:
                for pod in living:
                    if not pod.is_placed:
                        await self._evict(pod, f"job {job_ids[0]} has ended: {rows[0].state}")
            return None
        if any(job.is_pending for job in rows):
            return await self._waits(workload, job_ids, pods, living)
        if all(job.is_running for job in rows):
            if not living:
                await self._complete(workload, job_ids, pods)
                return None
            if any(job.preempt_action for job in rows):
                # The job's grace time becomes the pods' one: the kubelet's SIGTERM is the warning. A gang is evicted
                # whole.
                for pod in living:
                    await self._evict(pod, f"job {job_ids[0]} is preempted")
                return None
            self._excluded.pop(workload, None)
            if await self._is_misplaced(rows, living) or self._is_taken(living):
                await self._complete(workload, job_ids, pods)  # and queued again
                return None
            return await self._place(rows, pods)
        # Slurm has ended the job (scancel, time limit). Its nodes stay taken until its pods have gone.
        here = [pod for pod in living if pod.is_placed]
        for pod in living if rows[0].is_withdrawn else here:
            await self._evict(pod, f"job {job_ids[0]} has ended: {rows[0].state}")
        if not here:
            await self._complete(workload, job_ids, pods)
        return None

    async def _fit(self, pods: Sequence[Pod]) -> list[Pod]:
        """Without pods that can be no job, which came to a gang after its job had been queued: they are told so.

        A pod that has its node, or has ended, is the job's: an earlier release may have placed what this one refuses.
        """
        fit = []
        for pod in pods:
            try:
                placing.by_shape([pod])
                if not (self._has_node(pod) or pod.is_over):
                    pod_fields.check(pod)
            except Unfit as unfit:
                await self._reports.say([pod], str(unfit), refused=True)
            else:
                fit.append(pod)
        return fit

    async def _submit(self, workload: str, pods: Sequence[Pod]) -> float | None:
        waiting = [pod for pod in pods if not (pod.is_over or pod.is_leaving or pod.is_placed or pod.is_gated)]
        if not waiting:
            return None
        for pod in waiting:
            if self.claims.of(pod) is None:
                await self._reports.say([pod], "waits for its ResourceClaims, which do not exist yet")
                return AGAIN
        if claim := self._is_taken(waiting):
            text = f"waits for ResourceClaim {claim}, which another pod uses; pods of one gang ({GANG}) can share it"
            await self._reports.say(waiting, text)
            return AGAIN
        alone_pods = [pod for pod in waiting if pod.group_size == ALONE]
        if alone_pods:
            for pod in alone_pods:
                self._leave_gang(pod)
            self.queue.add(workload)
            return None
        try:
            if workload.startswith("gang/"):
                size = gang_size(waiting)
                if len(waiting) < size:
                    return await self._gather(workload, waiting, size)
                self._gathering.pop(workload, None)
                waiting = waiting[:size]
            user = self._policy.user_of(waiting)
            components = placing.describe(workload, waiting, self._policy, self._closed)
        except Unfit as unfit:
            await self._reports.say(waiting, str(unfit), refused=True)
            return None
        life = self._lives.get(workload, 0)
        # The key includes the pods' uids: a gang that is deleted and created again under its name must get another job.
        uids = ",".join(pod.metadata.uid for pod in waiting)
        key = hashlib.sha256(f"{workload}#{life}#{uids}".encode()).hexdigest()[:60]
        try:
            job_id = await self._slurm.allocate(components, key, user)
        except RestError as failure:
            if failure.passing:
                raise
            self._refused.add(workload)
            await self._reports.say(waiting, failure.message, refused=True)
            return 4 * AGAIN
        self._refused.discard(workload)
        self._lives[workload] = life + 1
        self._excluded[workload] = [frozenset(component.get("excluded_nodes", ())) for component in components]
        self._adopt(workload, tuple(range(job_id, job_id + len(components))))
        return _QUEUED

    async def _gather(self, workload: str, waiting: Sequence[Pod], size: int) -> float | None:
        """Some pods of a gang are not there yet. As `_look`."""
        now = asyncio.get_running_loop().time()
        left = self._gathering.setdefault(workload, now) + _GATHERED - now
        if left > 0:
            return left
        await self._reports.say(waiting, f"waits for {size - len(waiting)} more pods of its gang of {size}")
        return None

    async def _waits(
        self, workload: str, job_ids: Sequence[int], pods: Sequence[Pod], living: Sequence[Pod]
    ) -> float | None:
        waiting = [pod for pod in living if not pod.is_leaving]
        try:
            size = gang_size(pods) if workload.startswith("gang/") and pods else 1
        except Unfit as unfit:  # changed since the job was queued
            await self._reports.say(waiting, str(unfit), refused=True)
            return AGAIN
        if len(waiting) < size:
            await self._slurm.cancel(job_ids[0])
            return 0.1
        await self._exclude(workload, job_ids, waiting[:size])
        why, when = await self._slurm.explain(job_ids[0])
        await self._reports.say(waiting, why or "waits in the queue", when)
        return max(AGAIN, AGAIN_EACH * len(self._job_ids))

    def _is_taken(self, pods: Sequence[Pod]) -> str:
        """The claim of these pods, none of which has its node, that pods of other workloads use; "" for none."""
        return "" if any(self._has_node(pod) for pod in pods) else self.claims.used_by_others(pods)

    def _has_node(self, pod: Pod) -> bool:
        return pod.is_placed or pod.metadata.uid in self._bound

    async def _exclude(self, workload: str, job_ids: Sequence[int], pods: Sequence[Pod]) -> None:
        """Let the waiting job exclude the nodes that its pods cannot use now."""
        closed = self._closed_to(pods)
        if len(closed) != len(job_ids):
            return
        if workload not in self._excluded:  # queued by an earlier operator
            self._excluded[workload] = [await self._slurm.excluded(job_id) for job_id in job_ids]
        for job_id, names, before in zip(job_ids, closed, self._excluded[workload], strict=True):
            if names == before:
                continue
            try:
                await self._slurm.exclude(job_id, sorted(names))
            except RestError as failure:
                if failure.passing:
                    raise
                # It has no other nodes, or has just started: `_is_misplaced` sees that it gets none of these.
                self._log("job.not_changed", job_id=job_id, error=failure.message)
        self._excluded[workload] = closed

    async def _is_misplaced(self, rows: Sequence[Job], pods: Sequence[Pod]) -> bool:
        """Whether the job, no pod of which has a node yet, got a node that its pods cannot use. Such a node joined, or
        was changed, after the job had been queued; the next job excludes it.
        """
        if any(self._has_node(pod) for pod in pods):
            return False
        closed: set[str] = set()
        away: set[str] = set()
        for _shape, members, job in placing.components(pods, rows):
            nodes = {share.node for share in job.allocation.nodes} if job.allocation is not None else set()
            closed |= nodes.intersection(placing.closed_to(members, self._closed))
            away |= {name for name in nodes if name not in self.nodes}
        if away - closed:
            closed |= away & await self._find_nodes()
        if closed:
            self._log("job.misplaced", job_id=rows[0].id, nodes=sorted(closed))
        return bool(closed)

    async def _place(self, rows: Sequence[Job], pods: Sequence[Pod]) -> float | None:
        """Bind each pod without a node to a task of its component. Returns as `_look`."""
        again = None
        for shape, members, job in placing.components(pods, rows):
            everywhere = placing.places(job, shape)
            seated = [self._seen(pod) for pod in members]
            seats = placing.seat(seated, everywhere)
            for pod in seated:
                if self._has_node(pod) or pod.is_leaving or pod.is_over:
                    continue
                number = seats.get(pod.metadata.uid, pod.slot)
                if number is None and pod.job_id == 0 and self._is_beyond(pods):
                    self._leave_gang(pod)
                    continue
                if number is None or number >= len(everywhere):
                    await self._reports.say([pod], f"job {job.id} has no free task for this pod")
                    continue
                if everywhere[number].node not in self.nodes:
                    # The node was deleted here and will be in Slurm, which ends the job; or it has another name there.
                    await self._reports.say(
                        [pod],
                        f"job {job.id} has node {everywhere[number].node}, which is not in this Kubernetes cluster",
                    )
                    again = AGAIN
                    continue
                if not await self._bind(pod, members, job.id, number, everywhere[number]):
                    again = _UNALLOCATED
        return again

    def _is_beyond(self, pods: Sequence[Pod]) -> bool:
        """Whether the gang has more pods than start together. Pods that are being deleted do not count: they are
        replaced.
        """
        if not workload_of(pods[0]).startswith("gang/"):
            return False
        try:
            return sum(not (pod.is_leaving or pod.is_over) for pod in pods) > gang_size(pods)
        except Unfit:  # its PodGroup has gone, or its pods do not agree any more
            return False

    def _seen(self, pod: Pod) -> Pod:
        """The pod with the task that this operator wrote, even if the watch has not reported it yet."""
        number = self._seats.get(pod.metadata.uid)
        if number is None or pod.slot is not None:
            return pod
        notes = {**(pod.metadata.annotations or {}), SLOT: str(number)}
        return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=notes))

    async def _bind(self, pod: Pod, members: Sequence[Pod], job_id: int, number: int, place: placing.Place) -> bool:
        """Whether the pod has its node, or needs none any more. `members`: the pods of its job's component."""
        meta = pod.metadata
        self._seats[meta.uid] = number
        notes = {JOB: str(job_id), SLOT: str(number)}
        if place.gpus:
            notes[GPUS] = ",".join(map(str, place.gpus))
        try:
            await self.claims.allocate(pod, members, place)
        except Unfit as unfit:
            await self._reports.say([pod], str(unfit), refused=True)
            return False
        try:
            await self._api.bind(meta.name, meta.namespace, place.node, uid=meta.uid, annotations=notes)
        except ApiFailure as failure:
            if not (failure.conflict or failure.not_found):
                raise
            # The pod has been deleted, or has a node already: the watch will report which.
            self._log("pod.not_bound", pod=pod.key, error=failure.message)
            return True
        self.bound += 1
        self._bound.add(meta.uid)
        self._reports.event(pod, "Scheduled", f"assigned to {place.node} as job {job_id}")
        if place.devices and not pod.spec.resource_claims and self.runs_jobs(place.node):
            await self._reports.caution(pod, place.node)
        return True

    async def _complete(self, workload: str, job_ids: Sequence[int], pods: Sequence[Pod]) -> None:
        code = next((pod.exit_code for pod in pods if pod.exit_code), 0)
        for job_id in job_ids:
            await self._slurm.complete(job_id, code)
        self._forget(workload, job_ids)
        if any(not pod.is_over for pod in pods):
            self.queue.add(workload)

    def _job_is_gone(self, workload: str, job_ids: Sequence[int]) -> None:
        """It has ended and was reported, or slurmctld does not know it: running pods are left alone, waiting ones are
        queued again.
        """
        self._forget(workload, job_ids)
        self.queue.add(workload)

    def _forget(self, workload: str, job_ids: Iterable[int]) -> None:
        self._job_ids.pop(workload, None)
        self._excluded.pop(workload, None)
        for job_id in job_ids:
            self._workloads.pop(job_id, None)

    # On the pods

    async def _evict(self, pod: Pod, why: str) -> None:
        """Delete the pod with its own grace period, and report why, as Kubernetes' scheduler does when it preempts."""
        if pod.is_leaving:
            return
        meta = pod.metadata
        await self._reports.disrupt(pod, why)
        await self._api.delete(PodResource, meta.name, meta.namespace, uid=meta.uid)


def _outline(pod: Pod) -> tuple[object, ...]:
    """The properties of a pod whose change lets its workload be processed."""
    claimed = names_of(pod)
    facts = pod.status.phase, pod.is_leaving, pod.is_gated, pod.is_placed
    return (*facts, pod.metadata.uid, workload_of(pod), claimed)
