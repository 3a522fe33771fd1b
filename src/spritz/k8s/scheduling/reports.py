"""Reports on pods: conditions, which say why a pod waits, and events.

Events wait in a queue of their own, so that a server that is slow to take them holds up no binding. The queue is
bounded: what does not fit, or is refused, is left out.

Source: Kubernetes, "Pod conditions"; Event v1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from lightkube.resources.core_v1 import Pod as PodResource

from spritz.k8s.api import STRATEGIC, Api, ApiFailure
from spritz.k8s.events import event_request
from spritz.k8s.living import keep
from spritz.k8s.pods import PREFIX, Pod

#: Condition of a pod on a node that runs jobs too: False if its devices are not certainly its own.
DEVICES: Final = f"{PREFIX}DevicesAgreed"

#: Most events in the queue, and how many are sent concurrently.
_EVENTS_MAX, _SENDERS = 20_000, 8


class Reports:
    """Conditions and events of the scheduler's pods. `run` sends the events until it is cancelled."""

    def __init__(self, api: Api, log: Callable[..., None]) -> None:
        self._api = api
        self._log = log
        #: uid of a pod -> its last report: the reason, and the whole message
        self._said: dict[str, tuple[str, str]] = {}
        self._events: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(_EVENTS_MAX)

    async def run(self) -> None:
        """Send queued events until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(_SENDERS):
                keep(group, self._send(), name=f"events-{number}")

    def forget(self, uid: str) -> None:
        """Drop what was reported about a deleted pod."""
        self._said.pop(uid, None)

    async def say(self, pods: Iterable[Pod], text: str, when: str = "", *, refused: bool = False) -> None:
        """Report why pods wait and when they start: a condition each, and an event if the reason is new."""
        message = f"{text} {when}".rstrip()
        for pod in pods:
            before, said = self._said.get(pod.metadata.uid, ("", ""))
            if said == message:
                continue
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            try:
                await self._condition(pod, condition)
            except ApiFailure as failure:
                if failure.passing:
                    raise
            if before != text:
                kind, reason = ("Warning", "FailedScheduling") if refused else ("Normal", "Waiting")
                self.event(pod, reason, message, kind)
            self._said[pod.metadata.uid] = text, message

    async def caution(self, pod: Pod, node: str) -> None:
        """A condition: Slurm counts its devices, but the node's device plugin chooses them."""
        text = f"the device plugin of {node} chooses the devices; a job there may have the same ones"
        condition = {"type": DEVICES, "status": "False", "reason": "DevicePlugin", "message": text}
        try:
            await self._condition(pod, condition)
        except ApiFailure as failure:
            if failure.passing:
                raise

    async def disrupt(self, pod: Pod, why: str) -> None:
        """Report that the pod is about to be evicted."""
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": why}
        try:
            await self._condition(pod, condition)
        except ApiFailure as failure:
            if failure.passing:
                raise
        self.event(pod, "Evicted", why, "Warning")

    async def _condition(self, pod: Pod, condition: dict[str, str]) -> None:
        change = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        await self._api.patch(
            PodResource, pod.metadata.name, pod.metadata.namespace, change, content_type=STRATEGIC, subresource="status"
        )

    def event(self, pod: Pod, reason: str, message: str, kind: str = "Normal") -> None:
        """Queue an event of the pod; an equal one is sent only once."""
        meta = pod.metadata
        about = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
        of, warning = (meta.uid, reason, message), kind == "Warning"
        request = event_request(about, meta.namespace, reason, message, of=of, component="spritz", warning=warning)
        try:
            self._events.put_nowait(request)
        except asyncio.QueueFull:
            self._log("event.dropped", pod=pod.key, reason=reason)

    async def _send(self) -> None:
        while True:
            path, body = await self._events.get()
            try:
                await self._api.send("POST", path, body=body)
            except ApiFailure as failure:
                # The event exists already, from an earlier operator.
                if not failure.already_exists:
                    self._log("event.failed", path=path, error=failure.message)
