"""Every request that `slurmctld` takes, and the function that answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spritz.controller.api.cluster import ClusterQueries
from spritz.controller.api.commands import PLAIN_COMMANDS, Commands
from spritz.controller.api.dynamic import DynamicNodes
from spritz.controller.api.events import EventStream
from spritz.controller.api.explain import ExplainQueries
from spritz.controller.api.fairshare import FairShareQueries
from spritz.controller.api.jobs import JobQueries
from spritz.controller.api.nodes import NodeQueries
from spritz.controller.api.partitions import PartitionQueries
from spritz.controller.api.priorities import PriorityQueries
from spritz.controller.api.reports import PLAIN_REPORTS, Reports
from spritz.controller.api.reservations import ReservationApi
from spritz.controller.api.shares import ShareQueries
from spritz.controller.api.standings import StandingQueries
from spritz.controller.api.steps import StepQueries
from spritz.controller.api.submit import Submissions
from spritz.controller.api.waiting import Waiting
from spritz.model import diagnostics, queries, reports
from spritz.model.commands.cluster import CreateNodes, DeleteNodes
from spritz.model.commands.job import SubmitHetJob, SubmitJob
from spritz.model.commands.reservation import CreateReservation, UpdateReservation
from spritz.model.commands.step import CreateHetStep, CreateStep
from spritz.model.fairshare import ListFairShares
from spritz.model.limits.records import CompareUsage
from spritz.model.limits.standing import ListStandings
from spritz.model.reservations import ListReservations
from spritz.model.shares import ListShares

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.client.handling import Handler
    from spritz.controller.context import Context


def handlers(context: Context, cluster: ClusterQueries) -> dict[type[Struct], Handler]:
    """The table for `client.server.Server`."""
    commands, submissions, taken = Commands(context), Submissions(context), Reports(context)
    jobs, waiting = JobQueries(context), Waiting(context)
    reservations = ReservationApi(context)
    return {
        SubmitJob: submissions.submit,
        SubmitHetJob: submissions.submit_het,
        CreateStep: waiting.create_step,
        CreateHetStep: waiting.create_step,
        **dict.fromkeys(PLAIN_COMMANDS, commands.plain),
        CreateReservation: reservations.make,
        UpdateReservation: reservations.make,
        ListReservations: reservations.list_reservations,
        reports.RegisterNode: taken.register,
        reports.IntroduceNode: taken.introduce,
        CreateNodes: DynamicNodes(context).create,
        DeleteNodes: DynamicNodes(context).delete,
        reports.NodeSamples: taken.samples,
        **dict.fromkeys(PLAIN_REPORTS, taken.plain),
        queries.ListJobs: jobs.list_jobs,
        queries.GetScript: jobs.get_script,
        queries.ListPriorities: PriorityQueries(context).list_priorities,
        ListShares: ShareQueries(context).list_shares,
        ListFairShares: FairShareQueries(context).list_shares,
        ListStandings: StandingQueries(context).list_standings,
        CompareUsage: FairShareQueries(context).compare_usage,
        queries.ListSteps: StepQueries(context).list_steps,
        queries.MeasureSteps: StepQueries(context).measure,
        queries.ListNodes: NodeQueries(context).list_nodes,
        queries.ListPartitions: PartitionQueries(context).list_partitions,
        queries.AwaitAllocation: waiting.await_allocation,
        queries.AwaitEnd: waiting.await_end,
        queries.WatchEvents: EventStream(context).watch,
        queries.ExplainJob: ExplainQueries(context).explain,
        queries.Ping: cluster.ping,
        queries.ShowConfig: cluster.show_config,
        queries.Reconfigure: cluster.reconfigure,
        queries.Shutdown: cluster.shutdown,
        queries.PauseScheduling: cluster.pause_scheduling,
        queries.SetDampening: cluster.set_dampening,
        queries.SetDebug: cluster.set_debug,
        queries.SetPowerException: cluster.set_power_exception,
        queries.SetSchedulingLog: cluster.set_scheduling_log,
        queries.SetDebugFlag: cluster.set_debug_flag,
        queries.Statistics: cluster.statistics,
        diagnostics.GetDiagnostics: cluster.diagnostics,
        diagnostics.ResetDiagnostics: cluster.reset_diagnostics,
    }
