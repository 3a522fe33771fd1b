"""Rule 3: no CPU, GPU, memory or port of a node has two owners at one time; exclusive jobs are alone.

A resource belongs to a life of a job from the beginning to the end of each of its processes there. Stopped processes
keep memory and GPUs; their CPUs are free for others (scontrol(1) suspend), and stay so if the job is ended while it is
suspended. Within a job, steps own CPUs and the GPUs that they asked for among themselves, and the script and the job's
container own none.
"""

from __future__ import annotations

from signal import SIGKILL, SIGTERM
from typing import TYPE_CHECKING

from spritz.model.ids import STEP_MAX
from spritz_testing.daemons.checks.violation import Violation, clock
from spritz_testing.daemons.history import Acted, Signalled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spritz_testing.daemons.checks.story import Run, Story
    from spritz_testing.daemons.history import Began

_KILLING = (SIGTERM, SIGKILL)

#: UnkillableStepTimeout: seconds after which a node gives up processes that do not die, and asks for a drain
_UNKILLABLE_SECONDS = 60.0

#: seconds until a job is stopped whose suspension its node has accepted: after its beginning, or beside another order
_AT_ONCE_SECONDS = 0.1
_SLOW_SPOOL_SECONDS = 5.0


def owners(story: Story) -> Iterator[Violation]:
    """At each beginning: what the new processes have is not that of any that are there."""
    present: dict[str, list[Run]] = {}
    runs = sorted((run for life in story.lives.values() for run in life.runs), key=lambda run: run.began.at)
    for run in runs:
        at = run.began.at
        here = [
            other for other in present.get(run.began.node, ()) if other.until > at and not _given_up(story, other, at)
        ]
        for other in here:
            yield from _between(story, run, other)
        here.append(run)
        present[run.began.node] = here
        yield from _memory(story, run, here)
    yield from _continued(story, runs)


def _given_up(story: Story, run: Run, at: float) -> bool:
    """Whether its processes did not die for so long that its node was drained, and an administrator resumed it."""
    node = run.began.node
    undying = (fault for fault in story.faults if fault.kind == "undying processes" and node in fault.named)
    if not any(fault.until - fault.since >= _UNKILLABLE_SECONDS and fault.since < run.until for fault in undying):
        return False
    return any(
        operation.kind == "undrain" and run.began.at < operation.called_at < at and node in operation.wanted["nodes"]
        for operation in story.operations
    )


def _between(story: Story, run: Run, other: Run) -> Iterator[Violation]:
    began, before = run.began, other.began
    for port in sorted(set(began.ports) & set(before.ports)):
        yield _violation("3.port", run, other, f"port {port}")
    if _life(run) == _life(other):
        yield from _steps(run, other)
        return
    if alone := _exclusive(story, run, other):
        yield _violation("3.exclusive", run, other, f"the node, which job {alone} has alone")
    if not (began.shares or before.shares):
        cpus = sorted(began.job_cpus & before.job_cpus)
        # A job that is suspended while its launch is on its way begins and is stopped at once.
        owned = other.owns_cpus_at(began.at) and run.owns_cpus_at(began.at + _stopped_within(story, began))
        if cpus and owned and not _ends_suspended(story, other, began.at):
            yield _violation("3.cpu", run, other, f"CPU {', '.join(map(str, cpus))}")
    for name, index in sorted(began.gres & before.gres):
        if name not in story.final.rules.shared_gres:
            yield _violation("3.gres", run, other, f"{name} {index}")


def _stopped_within(story: Story, began: Began) -> float:
    """Seconds in which a job that began suspended is stopped: its supervisor gets the order after the spool has it."""
    slow = (fault for fault in story.faults if fault.kind == "spool slow" and began.node in fault.named)
    is_slow = any(fault.since <= began.at < fault.until for fault in slow)
    return _SLOW_SPOOL_SECONDS if is_slow else _AT_ONCE_SECONDS


def _ends_suspended(story: Story, run: Run, at: float) -> bool:
    """Whether its processes are being ended, and an administrator had suspended its job, which freed its CPUs: maybe
    before it began, while its launch was on its way. Its node kills what a dead supervisor cannot stop.
    """
    began = run.began
    changes = story.changes(story.subject(began.job_id))
    suspended = any(change.kind == "suspend" and began.at <= change.called_at <= at for change in changes)
    suspended = suspended or _was_suspended_by_a_user(story, run, at)
    return (suspended or story.final.rules.suspends) and any(
        isinstance(entry, Signalled)
        and entry.number in _KILLING
        and (entry.node, entry.job_id, entry.restart_count) == (began.node, began.job_id, began.restart_count)
        and entry.at <= at
        for entry in story.entries
    )


def _life(run: Run) -> tuple[int, int]:
    return run.began.job_id, run.began.restart_count


def _steps(run: Run, other: Run) -> Iterator[Violation]:
    began, before = run.began, other.began
    if began.shares or before.shares or began.step_id > STEP_MAX or before.step_id > STEP_MAX:
        return
    cpus = sorted(began.step_cpus & before.step_cpus)
    if cpus:
        between = f"CPU {', '.join(map(str, cpus))} (steps {before.step_id} and {began.step_id})"
        yield _violation("3.cpu", run, other, between)
    for name, index in sorted(began.step_gres & before.step_gres):
        yield _violation("3.gres", run, other, f"{name} {index} (steps {before.step_id} and {began.step_id})")


def _exclusive(story: Story, run: Run, other: Run) -> int:
    """Number of the job that excludes the other; 0: neither does. Lives and components of one job do not."""
    same = story.subject(run.began.job_id)[0] == story.subject(other.began.job_id)[0]
    if same and not run.began.array_job_id:
        return 0
    at = run.began.at
    # The cluster has suspended one for a job that has the node alone, or it had the node alone itself. A job that is
    # suspended while its launch is on its way begins and is stopped at once, as in Slurm.
    for job, stopped_by in ((other, at), (run, at + _stopped_within(story, run.began))):
        if story.final.rules.suspends and job.stopped_at(stopped_by) and not _was_suspended_by_a_user(story, job, at):
            return 0
    for began in (run.began, other.began):
        wanted = story.wanted(began.job_id)
        sharing = wanted.sharing if wanted is not None else ""
        if sharing == "exclusive" or (sharing == "user" and run.began.uid != other.began.uid):
            return began.job_id
    return 0


def _was_suspended_by_a_user(story: Story, run: Run, at: float) -> bool:
    """Whether the last request about this life of it was to suspend it."""
    subject = story.subject(run.began.job_id)
    before = [life.ended_at for life in story.lives_of(subject) if life.life < run.began.restart_count]
    since = max((ended_at for ended_at in before if ended_at < at), default=0.0)
    changes = [change for change in story.changes(subject) if since < change.called_at < at]
    kinds = [change.kind for change in changes if change.kind in ("suspend", "resume")]
    return kinds[-1:] == ["suspend"]


def _memory(story: Story, run: Run, here: list[Run]) -> Iterator[Violation]:
    """The sum of all jobs' memory is not more than the node has: also that of jobs that share their CPUs."""
    node = run.began.node
    most = next((shape.memory_mib for shape in story.final.rules.nodes if shape.name == node), 0)
    held = {_life(other): other.began.memory_mib for other in here}
    if most and sum(held.values()) > most:
        parts = ", ".join(f"job {job_id}: {mib}" for (job_id, _life), mib in sorted(held.items()))
        text = f"memory of {node} at {clock(run.began.at)}: {sum(held.values())} MiB of {most} MiB ({parts})"
        yield Violation(rule="3.memory", at=run.began.at, text=text, entries=tuple(other.began for other in here))


def _continued(story: Story, runs: list[Run]) -> Iterator[Violation]:
    """A job that goes on after it was stopped needs CPUs that are free, unless it goes on to its end: SIGCONT lets
    stopped processes heed SIGTERM. Supervisors carry out what a node has accepted at the same moment in any order.
    """
    for run in runs:
        for _since, until in run.stops:
            if until == run.ended_stopped_at:
                continue  # it goes on for its end alone
            for other in runs:
                if other.began.node != run.began.node or _life(other) == _life(run) or other is run:
                    continue
                there = other.began.at < until < other.until and other.owns_cpus_at(until)
                if there and not other.owns_cpus_at(until + _AT_ONCE_SECONDS):
                    there = not _is_stopped_for(story, run, other, until)
                cpus = run.began.job_cpus & other.began.job_cpus
                if there and until < run.until and cpus and not (run.began.shares or other.began.shares):
                    text = (
                        f"job {run.began.job_id} went on at {clock(until)} on {run.began.node} with CPU "
                        f"{', '.join(map(str, sorted(cpus)))}, which job {other.began.job_id} has since "
                        f"{clock(other.began.at)}"
                    )
                    yield Violation(rule="3.cpu", at=until, text=text, entries=(run.began, other.began))


def _is_stopped_for(story: Story, run: Run, other: Run, at: float) -> bool:
    """Whether, when its node accepted before `at` that `run` goes on, it had accepted that the other is suspended."""
    goes_on, stops = (f"{job_id} life {life}" for job_id, life in (_life(run), _life(other)))
    last, is_stopped = "", False
    for entry in story.entries:
        if not isinstance(entry, Acted) or entry.node != run.began.node or entry.at > at:
            continue
        if entry.subject == stops and entry.kind in ("SuspendTasks", "ResumeTasks"):
            last = entry.kind
        elif entry.subject == goes_on and entry.kind == "ResumeTasks":
            is_stopped = last == "SuspendTasks"
    return is_stopped


def _violation(rule: str, run: Run, other: Run, resource: str) -> Violation:
    began, before = run.began, other.began
    until = "is still there" if other.until == float("inf") else f"ended at {clock(other.until)}"
    text = (
        f"job {began.job_id} began on {began.node} at {clock(began.at)} with {resource}, "
        f"and job {before.job_id}, there since {clock(before.at)}, {until}"
    )
    return Violation(rule=rule, at=began.at, text=text, entries=(before, began))
