"""Leader election by a Lease: only one of the running operators works.

An operator that has the Lease renews it. Another takes it when it has not changed for `seconds` by its own clock, or
when it was let go; so clocks of machines need not agree. Both write with the version that they have read, so one of
two that try at once is refused.

The leader may be paused, or cut off, without knowing. So it works on time that it has: two thirds of `seconds` from
when its last renewal was *sent*. `check` is called before every write to Kubernetes and to Slurm, and closes before
another leader can open its own. A write that was under way then may still arrive later; such a write names the uid or
the version that it is about, creates under a fixed name, or carries a key, and is refused or is the same write.

Source: Kubernetes, "Leases"; client-go `tools/leaderelection` (the protocol; the code is our own).
"""

from __future__ import annotations

import asyncio
import datetime
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from spritz.k8s.api import Api, ApiFailure
from spritz.k8s.living import END_SECONDS, has_ended, must_end
from spritz.timeouts import within

#: Shares of `seconds`: how long the leader may work after a renewal, and how often it renews.
_WORK, _RENEW = 2 / 3, 1 / 4


class NotLeader(Exception):
    """The lease was lost or not renewed in time: another operator may lead."""


class Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = ""
    lease_duration_seconds: int | None = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = 0


class Lease(msgspec.Struct):
    """A Lease as it was read: other fields than the election's, such as labels, are written back as they were."""

    spec: Spec
    whole: dict[str, Any]

    @classmethod
    def of(cls, data: bytes) -> Lease:
        whole: dict[str, Any] = msgspec.json.decode(data)
        return cls(msgspec.convert(whole.get("spec") or {}, Spec), whole)

    def with_spec(self, spec: Spec) -> bytes:
        """The object to write: with the version that was read, so that a write of another in between refuses it."""
        kept = {name: value for name, value in (self.whole.get("spec") or {}).items() if name not in _ELECTION}
        return msgspec.json.encode(self.whole | {"spec": kept | msgspec.to_builtins(spec)})


#: Fields of a Lease's spec that the election writes.
_ELECTION = frozenset(Spec.__struct_encode_fields__)


def _now() -> float:
    """Seconds of a clock that also runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Election:
    """One candidate. `api`: a client for the election only, without a guard and without waiting for other requests."""

    def __init__(
        self,
        api: Api,
        name: str,
        log: Callable[..., None],
        *,
        namespace: str = "",
        seconds: float = 15.0,
        identity: str = "",
        now: Callable[[], float] = _now,
    ) -> None:
        self._api = api
        self._log = log
        self._seconds = seconds
        self._now = now
        self._name = name
        self._namespace = namespace or api.namespace
        self.identity = identity or f"{socket.gethostname()}_{os.urandom(4).hex()}"
        self._path = f"apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases"
        #: the Lease as last read, and when its content was first seen
        self._seen: Lease | None = None
        self._since = 0.0
        #: until when this operator may work
        self._until = 0.0
        #: when it last tried to get or to renew the lease
        self._tried = now()

    @property
    def is_alive(self) -> bool:
        """Whether it still tries to lead, also while the API server does not answer."""
        return self._now() - self._tried < 4 * self._seconds + 2 * END_SECONDS

    @property
    def leads(self) -> bool:
        return self._now() < self._until

    def check(self) -> None:
        """Raises NotLeader unless this operator holds the lease at this moment."""
        if not self.leads:
            raise NotLeader(f"{self.identity} has no lease {self._namespace}/{self._name}")

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` whenever this operator leads, until cancelled; then release the lease."""
        try:
            while True:
                await self._acquire()
                self._log("leader.elected", identity=self.identity, lease=f"{self._namespace}/{self._name}")
                async with asyncio.TaskGroup() as group:
                    working = group.create_task(self._work(work), name="leader.work")
                    group.create_task(self._keep_or_stop(working), name="leader.keep")
                has_ended()
        finally:
            await self._release()

    async def _acquire(self) -> None:
        while not await self._attempt():  # noqa: ASYNC110  # what it waits for is on another machine
            await asyncio.sleep(self._seconds * _RENEW * (0.5 + random.random()))

    async def _work(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except* NotLeader as lost:  # as `check` found
            self._log("leader.lost", identity=self.identity, why=str(lost.exceptions[0]))

    async def _keep_or_stop(self, working: asyncio.Task[None]) -> None:
        """Renew the lease; when it is lost, end the work.

        The loss does not leave as an exception: until Python 3.13 TaskGroup drops a cancellation that comes while it is
        left because of one, and the operator would go on after it was told to stop.
        """
        try:
            await self._keep(working)
        except NotLeader as lost:
            self._log("leader.lost", identity=self.identity, why=str(lost))
            must_end()  # or this operator would never lead again
            working.cancel()

    async def _keep(self, working: asyncio.Task[None]) -> None:
        """Renew for as long as the work lasts. Raises NotLeader."""
        while not working.done():
            await asyncio.wait([working], timeout=self._seconds * _RENEW)
            if not working.done():
                await self._attempt()
                self.check()

    async def _attempt(self) -> bool:
        """Take or renew the lease. Returns whether this operator leads."""
        self._tried = self._now()
        left = self._until - self._now() if self.leads else self._seconds * _WORK
        try:
            async with within(max(left, 0.1)):
                await self._try()
        except (ApiFailure, TimeoutError) as failure:
            self._log("leader.failed", error=str(failure) or "the API server does not answer", leads=self.leads)
        return self.leads

    async def _try(self) -> None:
        sent = self._now()
        current = await self._read()
        if current is None:
            about = {"name": self._name, "namespace": self._namespace}
            whole = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about}
            await self._write("POST", self._path, Lease(Spec(), whole).with_spec(self._spec(None)), sent)
            return
        if self._seen is None or current.spec != self._seen.spec:
            self._seen, self._since = current, self._now()
        spec = current.spec
        if spec.holder_identity != self.identity:
            # Another operator holds the lease: this one stops at once, even if its own time has not run out.
            self._until = 0.0
            unchanged = self._now() - self._since
            if spec.holder_identity and unchanged < (spec.lease_duration_seconds or self._seconds):
                return
        await self._write("PUT", f"{self._path}/{self._name}", current.with_spec(self._spec(spec)), sent)

    async def _read(self) -> Lease | None:
        answer = await self._api.find_path(f"{self._path}/{self._name}")
        return Lease.of(answer) if answer is not None else None

    async def _write(self, method: str, path: str, lease: bytes, sent: float) -> None:
        try:
            answer = await self._api.send(method, path, body=lease, repeatable=False)
        except ApiFailure as failure:
            if failure.code == 409:  # another was first; the next look says which
                return
            raise
        self._seen, self._since = Lease.of(answer), self._now()
        self._until = sent + self._seconds * _WORK

    def _spec(self, before: Spec | None) -> Spec:
        moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # noqa: TID251  # for readers
        held_before = before is not None and before.holder_identity == self.identity
        changes = (before.lease_transitions or 0) if before is not None else 0
        return Spec(
            holder_identity=self.identity,
            lease_duration_seconds=max(1, round(self._seconds)),
            acquire_time=before.acquire_time if held_before and before is not None else moment,
            renew_time=moment,
            lease_transitions=changes if held_before or before is None else changes + 1,
        )

    async def _release(self) -> None:
        """Release the lease after the work has stopped, so that another operator need not wait for its end."""
        if not self.leads:
            return
        self._until = 0.0
        lease = self._seen
        if lease is not None:
            spec: Any = msgspec.structs.replace(lease.spec, holder_identity="", lease_duration_seconds=1)
            body = lease.with_spec(spec)
            try:
                async with within(2):
                    await self._api.send("PUT", f"{self._path}/{self._name}", body=body, repeatable=False)
            except (ApiFailure, TimeoutError) as failure:
                self._log("leader.failed", error=str(failure), leads=False)
