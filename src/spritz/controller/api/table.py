"""Every request that `slurmctld` accepts, with its handler."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from spritz.client.channel.turns import OwnPlaces
from spritz.controller.api.cluster import ClusterQueries
from spritz.controller.api.commands import PLAIN_COMMANDS, Commands
from spritz.controller.api.crontab import Crontabs
from spritz.controller.api.deferred import DeferredRequests
from spritz.controller.api.dynamic import DynamicNodes
from spritz.controller.api.events import EventStream
from spritz.controller.api.explain import ExplainQueries
from spritz.controller.api.fairshare import FairShareQueries
from spritz.controller.api.limit_usage import LimitUsageQueries
from spritz.controller.api.listings import LISTINGS_MAX, in_own_place
from spritz.controller.api.nodes import NodeQueries
from spritz.controller.api.partitions import PartitionQueries
from spritz.controller.api.queue.jobs import JobQueries
from spritz.controller.api.queue.priorities import PriorityQueries
from spritz.controller.api.queue.steps import StepQueries
from spritz.controller.api.reports import PLAIN_REPORTS, Reports
from spritz.controller.api.reservations import ReservationApi
from spritz.controller.api.shares import ShareQueries
from spritz.controller.api.submit import Submissions
from spritz.controller.callers.identity import identified
from spritz.controller.journal.kept import Journaled, Replaying, Storing
from spritz.controller.needs import Clocked, Configured, Counted, Identifying, Logged, Reading, Spawning
from spritz.controller.programs.triggers import TriggerRequests
from spritz.controller.writer.durable import Writing
from spritz.model.accounting.fairshare import ListFairShares
from spritz.model.accounting.shares import ListShares
from spritz.model.commands.cluster import CreateNodes, DeleteNodes
from spritz.model.commands.crontab import UpdateCrontab
from spritz.model.commands.job import SubmitHetJob, SubmitJob
from spritz.model.commands.reservation import CreateReservation, UpdateReservation
from spritz.model.commands.step import CreateHetStep, CreateStep
from spritz.model.limits.records import CompareUsage
from spritz.model.limits.standing import ListStandings
from spritz.model.node_daemon import reports
from spritz.model.queries import diagnostics
from spritz.model.queries.allocations import AwaitAllocation
from spritz.model.queries.configuration import ShowConfig
from spritz.model.queries.crontabs import GetCrontab
from spritz.model.queries.daemons import (
    PauseScheduling,
    Ping,
    PingControllers,
    Reconfigure,
    SetDampening,
    SetDebug,
    SetDebugFlag,
    SetPowerException,
    SetSchedulingLog,
    Shutdown,
    TakeOver,
)
from spritz.model.queries.events import Statistics, WatchChanges, WatchEvents
from spritz.model.queries.explanations import ExplainJob
from spritz.model.queries.jobs import AwaitEnd, GetScript, ListJobs
from spritz.model.queries.nodes import ListNodes
from spritz.model.queries.partitions import ListPartitions
from spritz.model.queries.priorities import ListPriorities
from spritz.model.queries.reservations import ListReservations
from spritz.model.queries.steps import ListSteps, MeasureSteps
from spritz.model.triggers import ClearTriggers, ListTriggers, SetTrigger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from msgspec import Struct

    from spritz.client.channel.handling import Handler
    from spritz.client.channel.token_requests import TokenRequests
    from spritz.controller.callers.identity import Lookups
    from spritz.controller.callers.rate_limits import RateLimits
    from spritz.controller.nodes.links import NodeLinks
    from spritz.controller.nodes.machines import Machines
    from spritz.controller.plugins.submit import SubmitPlugins
    from spritz.controller.scheduler.forecasts import Forecasts
    from spritz.controller.scheduler.shares import Shares
    from spritz.controller.scheduler.usage_from_accounting import RecordedUsage
    from spritz.model.job.record import JobSpec


class Answering(
    Clocked,
    Configured,
    Counted,
    Identifying,
    Journaled,
    Logged,
    Reading,
    Replaying,
    Spawning,
    Storing,
    Writing,
    Protocol,
):
    """What all the handlers together use of the controller."""

    @property
    def check_request(self) -> Callable[[JobSpec], tuple[str, str] | None]: ...

    @property
    def check_whole(self) -> Callable[[Sequence[JobSpec]], tuple[str, str] | None]: ...

    @property
    def forecasts(self) -> Forecasts: ...

    @property
    def limits(self) -> RateLimits | None: ...

    @property
    def machines(self) -> Machines | None: ...

    @property
    def nodes(self) -> NodeLinks: ...

    @property
    def recorded(self) -> RecordedUsage: ...

    @property
    def shares(self) -> Shares: ...

    @property
    def submit_plugins(self) -> SubmitPlugins | None: ...

    @property
    def tokens(self) -> TokenRequests: ...


def handlers(context: Answering, cluster: ClusterQueries) -> dict[type[Struct], Handler]:
    """A handler for each request that the controller answers, wrapped in the checks that it needs."""
    identity, tasks, waiting = context.identity, context.tasks, DeferredRequests(context)
    return {
        Ping: cluster.ping,
        **context.tokens.handlers(),
        **(context.machines.table() if context.machines is not None else {}),
        **_reports(context),
        **{
            kind: identified(identity, tasks, handler, lookups=lookups, limits=context.limits)
            for kind, (handler, lookups) in _commands(context, cluster, waiting).items()
        },
        **{
            kind: identified(identity, tasks, handler, lookups=lookups, query=True, limits=context.limits)
            for kind, (handler, lookups) in _queries(context, cluster, waiting).items()
        },
    }


_Table = dict[type["Struct"], tuple["Handler", "Lookups | None"]]


def _reports(context: Answering) -> dict[type[Struct], Handler]:
    """Reports of node daemons, which are identified by uid alone."""
    taken = Reports(context)
    return {
        reports.RegisterNode: taken.register,
        reports.IntroduceNode: taken.introduce,
        reports.NodeSamples: taken.samples,
        **dict.fromkeys(PLAIN_REPORTS, taken.plain),
    }


def _commands(context: Answering, cluster: ClusterQueries, waiting: DeferredRequests) -> _Table:
    """Requests that change state."""
    commands, submissions = Commands(context), Submissions(context)
    reservations, nodes = ReservationApi(context), DynamicNodes(context)
    return {
        SubmitJob: (submissions.submit, submissions.lookups),
        SubmitHetJob: (submissions.submit_het, submissions.lookups),
        UpdateCrontab: (submissions.update_crontab, submissions.lookups),
        CreateStep: (waiting.create_step, None),
        CreateHetStep: (waiting.create_step, None),
        **dict.fromkeys((SetTrigger, ClearTriggers), (TriggerRequests(context).change, None)),
        **dict.fromkeys(PLAIN_COMMANDS, (commands.plain, commands.lookups)),
        CreateReservation: (reservations.make, reservations.lookups),
        UpdateReservation: (reservations.make, reservations.lookups),
        CreateNodes: (nodes.create, None),
        DeleteNodes: (nodes.delete, None),
        Reconfigure: (cluster.reconfigure, None),
        Shutdown: (cluster.shutdown, None),
        TakeOver: (cluster.peers.take_over, None),
        PauseScheduling: (cluster.pause_scheduling, None),
        SetDampening: (cluster.set_dampening, None),
        SetDebug: (cluster.set_debug, None),
        SetPowerException: (cluster.set_power_exception, None),
        SetSchedulingLog: (cluster.set_scheduling_log, None),
        SetDebugFlag: (cluster.set_debug_flag, None),
        diagnostics.ResetDiagnostics: (cluster.reset_diagnostics, None),
    }


def _queries(context: Answering, cluster: ClusterQueries, waiting: DeferredRequests) -> _Table:
    """The handlers of queries."""
    jobs, steps, explain = JobQueries(context), StepQueries(context), ExplainQueries(context)
    jobs.follow()
    steps.follow()
    fairshare, events = FairShareQueries(context), EventStream(context)
    bounded = partial(in_own_place, OwnPlaces(LISTINGS_MAX))
    return {
        ListReservations: (ReservationApi(context).list_reservations, None),
        ListJobs: (bounded(jobs.list_jobs), None),
        GetScript: (jobs.get_script, None),
        ListTriggers: (TriggerRequests(context).list, None),
        GetCrontab: (Crontabs(context).get, None),
        ListPriorities: (bounded(PriorityQueries(context).list_priorities), None),
        ListShares: (ShareQueries(context).list_shares, None),
        ListFairShares: (fairshare.list_shares, None),
        ListStandings: (LimitUsageQueries(context).list_standings, None),
        CompareUsage: (fairshare.compare_usage, None),
        ListSteps: (bounded(steps.list_steps), None),
        MeasureSteps: (steps.measure, None),
        ListNodes: (bounded(NodeQueries(context).list_nodes), None),
        ListPartitions: (PartitionQueries(context).list_partitions, None),
        AwaitAllocation: (waiting.await_allocation, None),
        AwaitEnd: (waiting.await_end, None),
        WatchEvents: (events.watch, None),
        WatchChanges: (events.watch_changes, None),
        ExplainJob: (explain.explain, explain.lookups),
        PingControllers: (cluster.peers.ping, None),
        ShowConfig: (cluster.show_config, None),
        Statistics: (cluster.statistics, None),
        diagnostics.GetDiagnostics: (cluster.diagnostics, None),
    }
