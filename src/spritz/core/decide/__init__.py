"""Command -> events and effects, or a refusal. One function per command, one file per idea; `DECISIONS` pairs them.

A decision reads the state through its `DecisionContext` and records events there. It never changes the state itself,
never reads a clock, and checks everything before it records the first event.

Map
---
`submission/`   requests become waiting jobs, or are refused
`waiting/`      jobs that wait: updated, held, moved ahead
`starting/`     what the scheduler proposes is checked and carried out; preemption
`running/`      steps, reports of node daemons, suspended jobs
`node/`         nodes: registered, changed, rebooted, powered up and down, lost
`reservations/`   reservations, and what they get
`prolog`, `script`   between start and first task
`ending`        the only way out; `cancel` and `requeue` lead there
`gang`          time slices
`access`, `accounts`   who may act; which account and QOS, and whether limits permit it
`arrays`, `dependency`, `siblings`   array jobs, jobs that wait for others, federated jobs
`cluster`       the configuration, and partitions made with scontrol
`due`           `Tick`: what has fallen due
`trigger`       strigger
`set_aside`, `job_ids`   after a fault of the core; ids that were given by events which are lost
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from spritz.core.decide import accounts, cancel, cluster, due, job_ids, prolog, requeue, set_aside, siblings, trigger
from spritz.core.decide.node import dynamic, power, rebooting, registration, states
from spritz.core.decide.reservations import reservation
from spritz.core.decide.running import reports, steps, suspend
from spritz.core.decide.starting import plan
from spritz.core.decide.submission import crontab, submit
from spritz.core.decide.waiting import hold, top, update
from spritz.model import federation as on_siblings
from spritz.model.commands import cluster as on_cluster
from spritz.model.commands import job as on_job
from spritz.model.commands import reservation as on_reservation
from spritz.model.commands import step as on_step
from spritz.model.commands.crontab import UpdateCrontab
from spritz.model.limits.records import AdoptUsage, ChangePolicy, ResetUsage, SetPolicy
from spritz.model.node_daemon import reports as on_report
from spritz.model.triggers import ClearTriggers, FireTriggers, PullTriggers, SetTrigger

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.core.decision import DecisionContext

# Any: each function takes its own command; the table pairs them.
DECISIONS: dict[type[Struct], Callable[[DecisionContext, Any], Struct]] = {
    on_job.SubmitJob: submit.submit_job,
    on_job.SubmitHetJob: submit.submit_het_job,
    UpdateCrontab: crontab.update_crontab,
    on_job.CancelJobs: cancel.cancel_jobs,
    on_job.UpdateJob: update.update_job,
    on_job.HoldJob: hold.hold,
    on_job.ReleaseJob: hold.release,
    on_job.TopJob: top.top,
    on_job.RequeueJob: requeue.requeue,
    on_job.SuspendJob: suspend.suspend,
    on_job.ResumeJob: suspend.resume,
    on_job.NotifyJob: steps.notify,
    on_step.CreateStep: steps.create_step,
    on_step.CreateHetStep: steps.create_het_step,
    on_step.SignalStep: steps.signal,
    on_step.AttachStep: steps.attach,
    on_job.FinishAllocation: cancel.finish_allocation,
    on_cluster.Configure: cluster.configure,
    on_cluster.CreatePartition: cluster.create_partition,
    on_cluster.UpdatePartition: cluster.update_partition,
    on_cluster.DeletePartition: cluster.delete_partition,
    on_cluster.UpdateNode: states.update_node,
    on_cluster.AddNodes: dynamic.add_nodes,
    on_cluster.DeleteNodes: dynamic.delete_nodes,
    on_cluster.RebootNodes: rebooting.reboot_nodes,
    on_report.AdmitNode: dynamic.admit_node,
    on_reservation.CreateReservation: reservation.create_reservation,
    on_reservation.UpdateReservation: reservation.update_reservation,
    on_reservation.DeleteReservation: reservation.delete_reservation,
    on_cluster.ApplyPlan: plan.apply_plan,
    on_cluster.SkipJobIds: job_ids.skip_job_ids,
    on_cluster.KeepPriorities: plan.keep_priorities,
    on_cluster.Tick: due.tick,
    on_cluster.SetAside: set_aside.set_aside,
    SetPolicy: accounts.set_policy,
    ChangePolicy: accounts.change_policy,
    ResetUsage: accounts.reset_usage,
    AdoptUsage: accounts.adopt_usage,
    SetTrigger: trigger.set_trigger,
    ClearTriggers: trigger.clear_triggers,
    PullTriggers: trigger.pull_triggers,
    FireTriggers: trigger.fire_triggers,
    on_siblings.QueueSibling: siblings.queue_sibling,
    on_siblings.RevokeSibling: siblings.revoke_sibling,
    on_siblings.AskLock: siblings.ask_lock,
    on_siblings.ReturnLock: siblings.take_lock_back,
    on_siblings.ReportSibling: siblings.take_report,
    on_siblings.SiblingPlaced: siblings.sibling_placed,
    on_siblings.SiblingGone: siblings.sibling_gone,
    on_siblings.LockAnswered: siblings.lock_answered,
    on_siblings.LockUnused: siblings.lock_unused,
    on_siblings.LockReturned: siblings.lock_returned,
    on_siblings.ReportTaken: siblings.report_taken,
    on_report.RegisterNode: registration.register_node,
    on_report.NodeLost: states.node_lost,
    on_report.NodeSilent: states.node_silent,
    on_report.NodeTrouble: states.node_trouble,
    on_report.PowerProgramStarted: power.program_started,
    on_report.StepStarted: reports.step_started,
    on_report.StepFinished: reports.step_finished,
    on_report.JobGone: reports.job_gone,
    on_report.PrologEnded: prolog.site_ended,
    on_report.NodePrologEnded: prolog.node_ended,
}

#: commands of the controller and its node daemons; the api never accepts them from users
INTERNAL: frozenset[type[Struct]] = frozenset(
    kind for kind in DECISIONS if kind.__module__ in (on_report.__name__, on_siblings.__name__)
) | {
    on_cluster.AddNodes,
    on_cluster.Configure,
    on_cluster.ApplyPlan,
    on_cluster.KeepPriorities,
    on_cluster.SkipJobIds,
    on_cluster.SetAside,
    on_cluster.Tick,
    SetPolicy,
    ChangePolicy,
    AdoptUsage,
    PullTriggers,
    FireTriggers,
}
