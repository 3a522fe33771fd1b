"""Misfortune that strikes just where somebody has asked for something, drawn from a run's seed.

Of faults that are drawn for themselves (`faults`) few meet a request that they could spoil: an order that is lost with
a connection must be one for a suspension, a machine that is cut off must have the job that is cancelled meanwhile. Here
a small story of a user has its fault with it, aimed at the node of its job ("host of job:TAG") or at one of its
messages. Jobs of a run's stories have tags "m…".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spritz_testing.daemons.plan import Action
from spritz_testing.daemons.workloads.habits import Habit
from spritz_testing.daemons.workloads.workload import Dependence, NewStep, script_of

if TYPE_CHECKING:
    from random import Random

    from spritz_testing.daemons.plan import Scale

#: One story for so many faults of a run, and some in any case.
_FAULTS_OF_STORY, _STORIES_MIN = 10, 2

#: Nodes without which no order passes through others.
_TREE_NODES_MIN = 3

#: Fewer jobs than this have a run of its own purpose.
JOBS_MIN = 10

#: Seconds, from and to, for which a node is silent so that nothing new starts on it, and so that it is given up.
_SILENT_SECONDS = 45.0, 85.0
LOST_SECONDS = 130.0, 260.0

#: Faults by which a node hears nothing, or is not heard, for a while: kind, target.
_AWAY = (
    *(("cut both ways", "host of"), ("cut both ways", "host of"), ("cut one way", "host of"), ("hang", "host of")),
    *(("stop", "slurmd of"), ("restart", "slurmd of"), ("restart", "slurmd of"), ("half open", "host of")),
)


class Story(Habit):
    """As a habit, with faults."""

    prefix = "m"

    def fault(self, kind: str, target: str, seconds: float, **data: Any) -> None:
        """Misfortune now, for so long."""
        left = self.scale.busy_seconds - self.at
        if left > 0.0:
            data |= {"seconds": round(min(seconds, left), 6), "draw": self.random.randrange(1 << 30)}
            self.actions.append(Action(at=round(self.at, 6), kind=kind, target=target, data=data))

    def lose(self, name: str, seconds: float = 60.0, **data: Any) -> None:
        """The next message of this kind, or the answer to it, does not arrive. `data["job"]`: of the node of a job."""
        kind = self.random.choice(("request lost", "request lost", "answer lost"))
        self.fault(kind, "cluster", seconds, message=name, **data)

    def away(self, tag: str, seconds: float) -> None:
        """The node of this job is away."""
        kind, target = self.random.choice(_AWAY)
        self.fault(kind, f"{target} job:{tag}", seconds)

    def small(self, place: int, *, seconds: float, **fields: Any) -> str:
        """A job on one node that starts soon, since it asks for little and goes before others. Returns its tag."""
        fields = {"partition": "high", "memory_mib_per_node": 100, **fields}
        wanted = self.job(place, seconds=seconds, **fields)
        self.submit(wanted)
        return wanted.tag

    def stubborn(self, place: int, seconds: float, chance: float = 0.5, **fields: Any) -> str:
        """A job whose script perhaps ignores SIGTERM: it is there until KillWait is over."""
        ignores = self.random.random() < chance
        script = script_of(self.tag(place), seconds, ignores_term=ignores)
        return self.small(place, seconds=seconds, script=script, ignores_term=ignores, **fields)


def meanwhile(story: Story) -> None:
    """A job is ended, queued again or suspended while its node is away; others wait for its end, or for its place."""
    random = story.random
    cpus = random.choice((1, 4, 8))
    away = random.choice((story.some(2.0, 35.0), random.uniform(*_SILENT_SECONDS), random.uniform(*LOST_SECONDS)))
    tag = story.stubborn(0, story.some(60.0, 200.0) + away, cpus_per_task=cpus, requeue=random.random() < 0.7)
    story.at += story.some(2.0, 40.0)
    back = story.at + away
    story.away(tag, away)
    story.at += min(away * random.uniform(0.3, 1.0), 80.0)
    request = random.choice(("cancel", "cancel", "cancel", "requeue", "suspend"))
    story.act(request, "root" if request == "suspend" else "", tag=tag)
    if request == "suspend":
        story.at = max(story.at, back) + story.some(30.0, 200.0)
        if random.random() < 0.7:
            story.act("resume", "root", tag=tag)
        return
    for place in range(1, random.randint(2, 4)):
        story.at += story.some(0.02, 5.0)
        kind = random.choice(("afterany", "afterany", "afternotok", ""))
        waits = {"dependencies": (Dependence(kind=kind, tag=tag),)} if kind and request == "cancel" else {}
        story.small(place, seconds=story.some(20.0, 100.0), cpus_per_task=random.choice((1, cpus)), **waits)


def order_lost(story: Story) -> None:
    """The order that carries out a request does not arrive, or nobody hears that it did."""
    random = story.random
    name = random.choice(("LaunchBatch", "SuspendTasks", "SuspendTasks", "TerminateJob"))
    if name == "LaunchBatch":
        story.lose(name, seconds=5.0)
    tag = story.stubborn(0, story.some(100.0, 300.0), cpus_per_task=random.choice((1, 8)))
    story.at += story.some(1.0, 30.0)
    if name == "LaunchBatch":
        return
    story.lose(name, seconds=5.0, job=tag)
    story.at += 0.001
    if name == "TerminateJob":
        story.act("cancel", tag=tag)
        return
    story.act("suspend", "root", tag=tag)
    story.at += story.some(40.0, 200.0)
    story.act("resume", "root", tag=tag)


def step_order_lost(story: Story) -> None:
    """The same for a step of an allocation, which its user gives up."""
    name = story.random.choice(("LaunchStep", "TerminateStep", "TerminateStep"))
    story.lose(name)
    aborted, after = story.some(2.0, 20.0) if name == "TerminateStep" else 0.0, story.some(0.1, 5.0)
    stays = story.random.random() < 0.3
    step = NewStep(seconds=200.0, after_seconds=after, ignores_term=stays, abort_after=aborted)
    size = {"partition": "high", "memory_mib_per_node": 100}
    story.submit(story.job(0, kind="salloc", seconds=240.0, steps=(step,), **size))


def run_again(story: Story) -> None:
    """A job is queued again and again while reports of its ends are repeated, on a node that it soon has once more."""
    random = story.random
    tag = story.stubborn(0, 300.0, chance=0.8, requeue=True, cpus_per_task=random.choice((1, 2, 8)))
    rounds = random.randint(2, 4)
    for number in range(rounds):
        is_last = number == rounds - 1
        story.at += story.some(2.0, 30.0)
        name = "StepFinished" if is_last else random.choice(("StepFinished", "JobGone", "JobGone"))
        way = random.choice(("client", "client", "connection", "server"))
        story.fault("answer lost", "cluster", 60.0, message=name, way=way, job=tag)
        for _ in range(1 if is_last else random.randint(1, 3)):
            story.at += story.some(0.001, 15.0)
            story.act("requeue", tag=tag)
        story.at += story.some(1.0, 30.0)


def short_steps(story: Story) -> None:
    """Short steps in one allocation, of which requests, orders or reports are lost."""
    random = story.random
    steps = [
        NewStep(seconds=story.some(0.05, 8.0), after_seconds=round(random.uniform(0.2, 60.0), 3), overlap=True)
        for _ in range(random.randint(4, 10))
    ]
    steps.sort(key=lambda step: step.after_seconds)
    story.submit(
        story.job(0, kind="salloc", seconds=120.0, partition="high", memory_mib_per_node=100, steps=tuple(steps))
    )
    for _ in range(random.randint(1, 3)):
        story.at += story.some(0.5, 20.0)
        name, way = random.choice(
            (("CreateStep", "client"), ("CreateStep", "server"), ("LaunchStep", "link"), ("StepFinished", "server"))
        )
        story.fault("answer lost", "cluster", 60.0, message=name, way=way)


def steps_with_gpus(story: Story) -> None:
    """Steps that share the GPUs of one allocation, some of which end while others run."""
    random = story.random
    steps = []
    for _ in range(random.randint(3, 6)):
        after, gpus = round(random.uniform(0.2, 40.0), 3), random.choice((1, 1, 2))
        steps.append(NewStep(gpus=gpus, seconds=story.some(3.0, 60.0), after_seconds=after))
    steps.sort(key=lambda step: step.after_seconds)
    size = {"gpus_per_node": random.choice((2, 3, 4)), "cpus_per_task": 8, "memory_mib_per_node": 100}
    story.submit(story.job(0, kind="salloc", seconds=90.0, partition="high", steps=tuple(steps), **size))


def burst(
    story: Story, count: int, chance: float, patience: tuple[float, float], pause: Callable[[], float]
) -> tuple[NewStep, ...]:
    """Steps that begin within a short time. Each is given up with this chance, after seconds between these two."""
    steps = [NewStep(seconds=90.0, after_seconds=0.1, overlap=True)]  # by which the fault finds the machine
    at = 6.0
    for _ in range(count):
        step = NewStep(seconds=story.some(2.0, 20.0), after_seconds=round(at, 3), overlap=True)
        steps.append(story.given_up(step, chance, story.some(*patience)))
        at += pause()
    return tuple(steps)


def cancelled_starts(story: Story) -> None:
    """Many steps at a time on a machine where they begin late, or none can be forked; some are given up meanwhile."""
    random = story.random

    def pause() -> float:
        return story.some(0.0005, 0.02) if random.random() < 0.8 else story.some(0.5, 10.0)

    steps = burst(story, random.randint(5, 9), 0.6, (0.02, 4.0), pause)
    tag = story.tag(0)
    size = {"partition": "high", "memory_mib_per_node": 100}
    story.submit(story.job(0, kind="salloc", seconds=100.0, steps=steps, **size))
    story.at += random.uniform(3.0, 5.9)
    kind = random.choice(("memory full", "memory full", "slow starts"))
    story.fault(kind, f"host of job:{tag}", story.some(2.0, 15.0))
    if random.random() < 0.4:
        story.at += story.some(0.5, 10.0)
        story.act("cancel", tag=tag)


def through_the_tree(story: Story) -> None:
    """Steps of many nodes, whose orders nodes pass on: one of them reaches no other just then, or an order is lost."""
    random, nodes = story.random, story.scale.nodes
    wide = random.randint(max(1, nodes - 1), nodes)
    steps, at = [], 1.0
    for _ in range(random.randint(3, 7)):
        fails_on = ("n1",) if random.random() < 0.5 else ()
        seconds = random.choice((story.some(0.5, 20.0), 300.0))
        step = NewStep(nodes=wide, tasks=wide, seconds=seconds, after_seconds=round(at, 3), overlap=True)
        if seconds < 300.0:
            step = story.given_up(replace(step, fails_on=fails_on), 0.6, story.some(0.2, 8.0))
        steps.append(step)
        at += story.some(0.5, 20.0)
    size = {"nodes_min": wide, "tasks": wide, "partition": "main", "memory_mib_per_node": 100}
    story.submit(story.job(0, kind="salloc", seconds=at + 320.0, steps=tuple(steps), **size))
    for _ in range(random.randint(2, 4)):
        if random.random() < 0.5:
            story.fault("order held up", "cluster", 60.0)
        else:
            kind = random.choice(("request lost", "request lost", "answer lost"))
            story.fault(kind, "cluster", 60.0, message="ForwardOrder", sender="slurmd")
        story.at += story.some(2.0, 30.0)


STORIES: tuple[Callable[[Story], None], ...] = (
    meanwhile,
    meanwhile,
    order_lost,
    step_order_lost,
    run_again,
    short_steps,
    steps_with_gpus,
    cancelled_starts,
    through_the_tree,
)


def draw(random: Random, scale: Scale) -> list[Action]:
    """Some of them; with `scale.every_kind` each. None in a run that has chosen its kinds of faults."""
    if scale.jobs < JOBS_MIN or scale.kinds:
        return []
    stories = [story for story in STORIES if story is not through_the_tree or scale.nodes >= _TREE_NODES_MIN]
    count = min(len(stories), _STORIES_MIN + scale.faults // _FAULTS_OF_STORY)
    chosen = list(dict.fromkeys(stories)) if scale.every_kind else random.sample(stories, count)
    actions: list[Action] = []
    for number, tell in enumerate(chosen):
        story = Story(random, scale, number)
        tell(story)
        actions += story.actions
    return sorted(actions, key=lambda action: action.at)
