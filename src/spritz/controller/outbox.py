"""The outbox to slurmdbd: sends the journal's groups unchanged, and keeps them until slurmdbd has stored them.

Owns the connection to AccountingStorageHost and its position in the journal: the journal itself is the outbox. While
slurmdbd is away the cluster runs on; unacknowledged events stay in the journal, at most `EVENTS_MAX` (MaxDBDMsgs). If
older ones had to be pruned, the state of every known job is sent in their place.

slurmdbd may request the newest events at once (`FlushEvents`); otherwise events are sent in batches.

Source: slurm.conf(5) AccountingStorageType, AccountingStorageHost, MaxDBDMsgs, AccountingStoreFlags.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from spritz import SLURM_VERSION
from spritz.client.channel.aio import PersistentChannel
from spritz.client.channel.handling import DEFERRED, Deferred
from spritz.client.channel.leader import DATABASE_SECONDS, watch_leader
from spritz.client.errors import ClientError
from spritz.client.locate import DatabaseConfig
from spritz.controller.api.fairshare import counted_tres
from spritz.controller.federation import Federating, Federation
from spritz.controller.journal.events import decode_group
from spritz.controller.journal.kept import Journaled
from spritz.controller.needs import Counted
from spritz.controller.writer.listeners import Loss
from spritz.model import stored
from spritz.model.accounting.records import (
    ClusterRegistered,
    EventGroup,
    EventsFlushed,
    EventsStored,
    FlushEvents,
    RegisterCluster,
    StoreEvents,
    StoreState,
)
from spritz.model.cluster.settings import SYSTEM
from spritz.model.commands.cluster import SkipJobIds
from spritz.model.commands.job import Done
from spritz.model.events.job import JobQueued
from spritz.model.limits.records import AskPolicy, ChangePolicy, SetPolicy
from spritz.runtime.randomness import SystemRandomness, backoff
from spritz.runtime.tasks import Supervisor, is_cancelled
from spritz.runtime.worker import Worker
from spritz.timeouts import within

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spritz.client.channel.channel import Channel
    from spritz.client.channel.handling import Call
    from spritz.controller.journal.blobs import BlobCollector
    from spritz.controller.nodes.machines import Machines
    from spritz.model.events import Event

#: Unacknowledged events kept, unless MaxDBDMsgs says otherwise.
EVENTS_MAX = 5_000_000

#: Seconds for which events are collected into one batch.
GATHER_SECONDS = 0.1

#: Bytes and groups at which a batch is sent.
MESSAGE_BYTES = 1024 * 1024
MESSAGE_GROUPS = 2_000

#: Seconds in which a batch must be stored: a database may be slow.
STORE_SECONDS = 120.0

#: Jobs of one piece when the state is sent.
_PIECE = 1_000

#: Seconds after a refusal (database full or away) before the next attempt: at first, and at most. Each attempt
#: registers again, and is sent all associations.
_REFUSED_SECONDS, _REFUSED_SECONDS_MAX = 2.0, 10.0

#: Seconds after an error of the outbox itself before it starts again.
_FAULT_SECONDS = 10.0

#: Seconds after the loss of a connection.
_PAUSE_SECONDS = 0.02

_HEAVY = frozenset({"job_script", "job_env"})


class Sending(Federating, Counted, Journaled, Protocol):
    """What slurmdbd gets, and what it tells."""

    @property
    def collector(self) -> BlobCollector: ...

    @property
    def events_needed(self) -> list[Callable[[], int]]: ...

    @property
    def machines(self) -> Machines | None: ...


class Outbox:
    """Sends the journal to slurmdbd, if AccountingStorageType says so.

    `acknowledged`: the last event that slurmdbd no longer needs; `set_aside`: how many events it could not store.
    """

    def __init__(self, context: Sending) -> None:
        self._context = context
        settings = context.configuration.loaded.settings
        self._keep = settings.words("AccountingStoreFlags")
        self._limit = settings.integer("MaxDBDMsgs") or EVENTS_MAX
        self.acknowledged = 0
        self.set_aside = 0
        #: Last event of earlier lives. slurmdbd may have more only if the journal was restored from a copy: this shows
        #: it even where this life's events have used the same numbers by now. None: slurmdbd has heard it.
        self._began_after: int | None = context.writer.durable_sequence
        self._faults = 0
        self._unaware = False
        #: pauses after refusals that follow each other
        self._pauses = _pauses()
        self._moved = asyncio.Event()
        self._hurry = asyncio.Event()
        context.events_needed.append(self.needed_after)
        if _HEAVY.intersection(self._keep):
            context.collector.needed_after = self.needed_after
        context.counters.append(self._counters)
        context.writer.listeners.add("outbox", self._listen, Loss.REBUILD, self._moved.set)
        self._database = DatabaseConfig(
            path=context.configuration.path,
            cluster_name=settings.cluster_name,
            host=settings.text("AccountingStorageHost") or "localhost",
            backup_host=settings.text("AccountingStorageBackupHost"),
            port=settings.integer("AccountingStoragePort") or 6819,
            slurm_user=context.configuration.settings.slurm_user,
        )
        self._worker = Worker("outbox")
        self._federation = Federation(context)
        context.tasks.keep(self._run(), name="outbox")

    def needed_after(self) -> int:
        """The last event that the journal may prune."""
        return max(self.acknowledged, self._context.writer.durable_sequence - self._limit)

    def _counters(self) -> dict[str, float]:
        behind = self._context.writer.durable_sequence - self.acknowledged
        channel = self._context.recorded.channel
        return {
            "outbox.unsent_events": float(behind),
            "outbox.acknowledged_sequence": float(self.acknowledged),
            "outbox.set_aside_events": float(self.set_aside),
            "outbox.connected": float(channel is not None and channel.is_open),
            "failure.outbox": float(self._faults),
        }

    def _listen(self, events: Sequence[Event]) -> None:
        self._moved.set()

    async def _flush(self, request: FlushEvents, call: Call) -> EventsFlushed:
        await self._context.writer.durable()
        self._hurry.set()
        self._moved.set()
        return EventsFlushed(sequence=self._context.writer.durable_sequence)

    def _set_policy(self, request: SetPolicy | ChangePolicy, call: Call) -> Deferred:
        """slurmdbd sends associations, QOS and limits, or a change of them; answered when durable."""
        self._context.writer.handle(request, SYSTEM, call.reply)
        return DEFERRED

    async def _run(self) -> None:
        """Runs for ever. After an error it starts again: the events are in the journal."""
        while not is_cancelled():
            try:
                await self._serve()
            except Exception as error:
                self._faults += 1
                self._context.log.error(
                    "outbox.failed", exception=error, error=repr(error), acknowledged=self.acknowledged
                )
            await self._context.clock.sleep(_FAULT_SECONDS)

    async def _serve(self) -> None:
        context = self._context
        link = PersistentChannel(
            self._database.addresses,
            role="slurmctld",
            log=context.log,
            table={
                FlushEvents: self._flush,
                SetPolicy: self._set_policy,
                ChangePolicy: self._set_policy,
                **self._federation.handlers(),
            },
            on_connect=self._register,
            owners=await self._worker.run(self._database.owners),  # looks SlurmUser up
            clock=context.clock,
            ceiling_seconds=0.25,
            secure=context.machines.secure_database() if context.machines is not None else None,
            each=bool(self._database.backup_host),
            to="slurmdbd",
        )
        async with link, Supervisor() as tasks:
            if self._database.backup_host:
                watch = watch_leader(
                    link, context.clock, context.log, seconds=DATABASE_SECONDS, event="slurmdbd.silent"
                )
                tasks.keep(watch, name="outbox.watch")
            while True:
                channel = await link.channel()
                try:
                    await self._send_from(channel)
                except ClientError as error:
                    if channel.is_open:
                        context.log.error("outbox.refused", error=error.message, acknowledged=self.acknowledged)
                        await self._pause(channel)
                        channel.close()
                    await channel.wait_closed()
                    # The link must first notice the loss, or it would return the same connection for ever.
                    await context.clock.sleep(_PAUSE_SECONDS)

    async def _register(self, channel: Channel) -> None:
        context = self._context
        await context.writer.durable()
        request = RegisterCluster(
            cluster=self._database.cluster_name,
            journal=context.journal.identity,
            last_sequence=context.writer.durable_sequence if self._began_after is None else self._began_after,
            oldest_sequence=context.journal.oldest_sequence,
            term=context.journal.term,
            host=context.configuration.addresses[0] if context.configuration.addresses else "",
            port=context.configuration.ports[0],
            version=SLURM_VERSION,
            format=stored.FORMAT,
            store=(*self._keep, *sorted({"nojobs", "nosteps"}.intersection(context.machine.state.settings.enforce))),
        )
        try:
            reply = await channel.call(request, ClusterRegistered)
        except ClientError:
            if not self._database.backup_host:  # else the next attempt is made at the other slurmdbd
                await self._pause(channel)
            raise
        self._began_after = None
        self.acknowledged, self.set_aside = reply.sequence, reply.set_aside
        if reply.set_back_from:
            context.log.error(
                "state.older",
                detail="slurmdbd has stored later events: the state was restored from an older copy",
                last_sequence=reply.sequence,
                later_sequence=reply.set_back_from,
            )
            context.writer.handle_own(SkipJobIds(seen=reply.last_job_id))
        await self._ask_policy(channel)
        context.recorded.channel = channel
        # A state directory that is new to the database: usage of earlier times is only in the records.
        self._unaware = reply.sequence == 0 and not context.machine.state.usage.entries
        behind = context.writer.durable_sequence - reply.sequence
        context.log.info("outbox.connected", acknowledged=reply.sequence, behind_events=behind)

    async def _pause(self, channel: Channel) -> None:
        """Wait after a refusal: longer each time, until events are stored again. Not after the connection has ended."""
        try:
            async with within(next(self._pauses)):
                await channel.wait_closed()
        except TimeoutError:
            pass

    async def _ask_policy(self, channel: Channel) -> None:
        """Request the current associations and limits; without an answer the previous ones stay."""
        try:
            await channel.call(AskPolicy(cluster=self._database.cluster_name, tres=counted_tres(self._context)), Done)
        except ClientError as error:
            if not channel.is_open:
                raise
            self._context.log.error("policy.not_heard", error=error.message)

    # Sending

    async def _send_from(self, channel: Channel) -> None:
        """Send events after `acknowledged` for as long as the connection holds. Raises ClientError."""
        context = self._context
        channel.on_close(self._moved.set)
        if self.acknowledged + 1 < context.journal.oldest_sequence:
            await self._send_state(channel)
        while True:
            await context.writer.durable()
            if self._unaware and context.writer.durable_sequence <= self.acknowledged:
                self._unaware = False
                context.tasks.spawn_contained(context.recorded.take_over(), name="usage")
            while context.writer.durable_sequence <= self.acknowledged:
                await self._wait(channel)
            message = await self._next_message()
            reply = await channel.call(message, EventsStored, timeout=STORE_SECONDS)
            self.acknowledged = max(self.acknowledged, reply.sequence)
            self._pauses = _pauses()
            self._note_set_aside(reply.set_aside)

    async def _wait(self, channel: Channel) -> None:
        """Return when there are events to send, after a pause that collects more of them."""
        self._moved.clear()
        self._hurry.clear()
        if not channel.is_open:
            raise ClientError.of("SLURM_COMMUNICATIONS_CONNECTION_ERROR")
        await self._moved.wait()
        if not channel.is_open:
            raise ClientError.of("SLURM_COMMUNICATIONS_CONNECTION_ERROR")
        if not self._hurry.is_set():
            try:
                async with within(GATHER_SECONDS):
                    await self._hurry.wait()
            except TimeoutError:
                pass
        await self._context.writer.durable()

    async def _next_message(self) -> StoreEvents:
        """The next groups, unchanged, with scripts and environments if accounting stores them."""
        context = self._context
        heavy = bool(_HEAVY.intersection(self._keep))
        groups: list[EventGroup] = []
        documents: dict[str, bytes] = {}
        size = 0
        unsent = await context.reader.groups(self.acknowledged, bytes_max=MESSAGE_BYTES, groups_max=MESSAGE_GROUPS)
        for group in unsent:
            groups.append(EventGroup(group.first, group.last, group.payload))
            size += len(group.payload)
            if heavy:
                size += await self._add_documents(decode_group(group), documents)
            if size >= MESSAGE_BYTES:
                break
        return StoreEvents(
            cluster=self._database.cluster_name, journal=context.journal.identity, groups=groups, documents=documents
        )

    async def _add_documents(self, events: Sequence[Event], documents: dict[str, bytes]) -> int:
        size = 0
        for event in events:
            if isinstance(event, JobQueued):
                for flag, key in (
                    ("job_script", event.job.spec.script_key),
                    ("job_env", event.job.spec.environment_key),
                ):
                    if key and flag in self._keep and key not in documents:
                        body = await self._context.reader.blob(key)
                        if body is not None:
                            documents[key] = body
                            size += len(body)
        return size

    async def _send_state(self, channel: Channel) -> None:
        """Some events that slurmdbd lacks are pruned: send the state of every known job instead."""
        context = self._context
        await context.writer.durable()
        # No await between this and the copy: the state must be that of the last durable event.
        sequence, state = context.writer.durable_sequence, context.machine.state
        jobs = sorted(state.jobs.values(), key=lambda job: job.id)
        steps = [step for steps_of_job in state.steps.values() for step in steps_of_job.values()]
        now = context.clock.now()
        context.log.error("outbox.events_lost", first=self.acknowledged + 1, last=sequence, jobs=len(jobs))
        for start in range(0, max(1, len(jobs)), _PIECE):
            piece = jobs[start : start + _PIECE]
            ids = {job.id for job in piece}
            message = StoreState(
                cluster=self._database.cluster_name,
                journal=context.journal.identity,
                sequence=sequence,
                at=now,
                jobs=piece,
                steps=[step for step in steps if step.job_id in ids],
                last=start + _PIECE >= len(jobs),
            )
            reply = await channel.call(message, EventsStored, timeout=STORE_SECONDS)
        self.acknowledged = reply.sequence
        self._note_set_aside(reply.set_aside)

    def _note_set_aside(self, count: int) -> None:
        if count > self.set_aside:
            self._context.log.error("outbox.set_aside", events=count - self.set_aside, of=count)
        self.set_aside = count


def _pauses() -> Iterator[float]:
    return backoff(SystemRandomness(), first_seconds=_REFUSED_SECONDS, ceiling_seconds=_REFUSED_SECONDS_MAX)


def begin_outbox(context: Sending) -> Outbox | None:
    """The outbox; None if this cluster has no accounting."""
    kind = context.configuration.loaded.settings.text("AccountingStorageType")
    return Outbox(context) if kind == "accounting_storage/slurmdbd" else None
