"""The client side of the Kubernetes operator, as far as scenarios need it.

It queues the job of a pod, looks at its jobs, and reports their end. What it does to a pod is read from the rows as
`k8s.scheduling.pod_scheduler` does.
"""

from __future__ import annotations

from spritz.client.command.sync import connect_controller, submit_key
from spritz.client.errors import ClientError
from spritz.k8s import slurm
from spritz.model.commands.job import Done, FinishAllocation, JobSubmitted, SubmitJob
from spritz.model.job.job_filter import JobFilter
from spritz.model.job.record import JobSpec
from spritz.model.queries.daemons import Reconfigure
from spritz.model.queries.job_records import Jobs
from spritz.model.queries.jobs import ListJobs
from spritz_testing.daemons.clients.command import Command, Data
from spritz_testing.daemons.clients.users import KINDS
from spritz_testing.daemons.history import Outcome, Reading
from spritz_testing.daemons.plan import Action, Scale
from spritz_testing.daemons.runs.run import Result
from spritz_testing.daemons.wanted import Wanted
from tests.simulation.daemons.apart import apart
from tests.simulation.daemons.scenarios.play import carry_out, judged


def _pod(command: Command, data: Data) -> None:
    """The operator queues the job of a pod, as `Slurm.allocate`."""
    tag = data["tag"]
    spec = JobSpec(name=tag, comment=tag, external=True, cpus_per_task=1, node_list=(data["node"],), nodes_given=True)
    wanted = Wanted(tag=tag, name=tag, partition="main", batch=False, requeue=False, tier=5)
    operation = command.called("external", wanted=wanted)
    request = SubmitJob(spec=spec, script=b"", environment=(), submit_key=submit_key())
    try:
        with command.connected(operation) as controller:
            reply = controller.call(request, JobSubmitted)
    except ClientError as error:
        if operation.outcome is Outcome.UNKNOWN:
            command.failed(operation, error)
        raise
    command.users.jobs[tag] = reply.job_id
    command.done(operation, job_id=reply.job_id)


def _complete(command: Command, data: Data) -> None:
    """The pod is over: its job's end is reported, as `Slurm.complete`."""
    job_id = command.users.job_id(data["tag"])
    command.ask("finish", FinishAllocation(job_id=job_id), Done, job_id=job_id)


def _look(command: Command, data: Data) -> None:
    """The operator looks at its jobs: (job id, whether it evicts the pod) of all that it knows; none without answer."""
    called_at = command.world.now
    try:
        with connect_controller() as controller:
            jobs = controller.joined(ListJobs(filter=JobFilter(), all=True), Jobs, "jobs").jobs
    except ClientError:
        return  # `RestError`: it tries again
    rows = [
        slurm.Job(
            id=job.id, state=job.state.value, completing=list(job.completing), preempt_action=job.preempt_action or ""
        )
        for job in jobs
    ]
    known = [(row.id, _is_evicted(row), row.is_gone) for row in rows]
    reading = Reading(client="operator", kind="pods", called_at=called_at, answered_at=command.world.now, rows=known)
    command.users.history.add(reading)


def _is_evicted(job: slurm.Job) -> bool:
    """What `PodScheduler._look` does to a placed pod with this row. Without a row nothing is done to it."""
    if job.is_gone or job.is_pending:
        return False
    return not job.is_running or bool(job.preempt_action)


def _remove(command: Command, data: Data) -> None:
    """An administrator takes the last node out of slurm.conf, and calls scontrol reconfigure."""
    site = command.users.site
    site.units[f"{site.nodes[-1].name}/slurmd"].stop()
    site.nodes.pop()
    site.write_conf()
    command.ask("reconfigure", Reconfigure(), Done, wanted=data)


def _carry_out(seed: int, scale: Scale, actions: tuple[Action, ...], faulty: bool) -> Result:
    KINDS.update({"pod": _pod, "complete": _complete, "look": _look, "remove": _remove})
    return carry_out(seed, scale, actions, faulty)


def play_pods(scale: Scale, *actions: Action, seed: int = 1, faulty: bool = False) -> Result:
    """As `play.play`, with actions of pods."""
    return judged(apart(_carry_out, seed, scale, actions, faulty))
