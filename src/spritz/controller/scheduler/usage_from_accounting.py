"""Usage recomputed from accounting's records: compared with the controller's own, and adopted if it has none.

It is adopted for a new state directory in front of an old database, or by order of an administrator.

Source: model.limits.records.ReckonUsage; `spritz usage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from spritz.client.errors import ClientError
from spritz.controller.needs import Clocked, Logged, Reading
from spritz.controller.writer.durable import Writing
from spritz.model.limits.records import AdoptUsage, ComparedUsage, CompareUsage, Reckoned, ReckonUsage, UsageCompared
from spritz.model.limits.usage import RAW

if TYPE_CHECKING:
    from spritz.client.channel.channel import Channel
    from spritz.model.limits.ledger import LedgerKey

#: A database with records of many years needs time.
RECKON_SECONDS = 600.0


class Adopting(Clocked, Logged, Reading, Writing, Protocol):
    """Where usage by accounting's records goes."""


class RecordedUsage:
    """Asks slurmdbd over the connection of `outbox` (`channel`; None: not connected)."""

    def __init__(self, context: Adopting) -> None:
        self._context = context
        self.channel: Channel | None = None

    async def compare(self, request: CompareUsage) -> UsageCompared:
        """Both figures for every association and QOS with usage. Raises ClientError."""
        at, recomputed = await self._reckon()
        state, now = self._context.machine.state, self._context.clock.now()
        recorded = {tuple(row.key): row.amounts.get(RAW, 0.0) for row in recomputed.rows}
        rows = [
            ComparedUsage(name=name, kept=state.usage.amount(key, RAW, at), recorded=recorded.get(key, 0.0))
            for key, name in self._names().items()
        ]
        if request.adopt:
            self._context.writer.handle_own(AdoptUsage(since=at, rows=recomputed.rows))
            self._context.log.info("usage.adopted", jobs=recomputed.jobs, seconds=now - at)
        rows = [row for row in rows if row.kept or row.recorded]
        return UsageCompared(rows=rows, jobs=recomputed.jobs, adopted=request.adopt)

    async def take_over(self) -> None:
        """Adopt the usage by the records: the controller has none of its own."""
        try:
            at, recomputed = await self._reckon()
        except ClientError as error:
            self._context.log.error("usage.not_reckoned", error=error.message)
            return
        if recomputed.rows:
            self._context.writer.handle_own(AdoptUsage(since=at, rows=recomputed.rows))
            self._context.log.info("usage.adopted", jobs=recomputed.jobs)

    async def _reckon(self) -> tuple[float, Reckoned]:
        context = self._context
        if self.channel is None or not self.channel.is_open:
            raise ClientError.of("ESLURM_DB_CONNECTION")
        state, at = context.machine.state, context.clock.now()
        policy = state.settings.priority_policy
        request = ReckonUsage(
            cluster=state.settings.cluster_name,
            at=at,
            since=state.usage_reset_at,
            half_life_seconds=policy.half_life_seconds,
            weights=dict(state.rules.weights),
            partition_qos=dict(state.rules.partition_qos),
            largest=policy.largest,
        )
        return at, await self.channel.call(request, Reckoned, timeout=RECKON_SECONDS)

    def _names(self) -> dict[LedgerKey, str]:
        policy = self._context.machine.state.rules.policy
        by_key: dict[LedgerKey, str] = {}
        for association in policy.associations:
            user = f" user {association.user}" if association.user else ""
            home = f" partition {association.partition}" if association.partition else ""
            by_key["a", association.id] = f"account {association.account}{user}{home}"
        for qos in policy.qos:
            by_key["q", qos.name] = f"qos {qos.name}"
        return by_key
