"""Stories for interleavings that few draws make: each holds what one narrow span of time needs, and nothing else.

As in `mishaps` a story has its fault with it, if it needs one. Each draws from a stream of its own, so that a further
story changes none of the others. Their jobs have tags "n…".
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from spritz_testing.daemons.system.world import EPOCH
from spritz_testing.daemons.workloads import mishaps
from spritz_testing.daemons.workloads.workload import Dependence, NewStep

if TYPE_CHECKING:
    from spritz_testing.daemons.plan import Action, Scale

#: Highest priority that a job can have.
_PRIORITY_MAX = 4_294_967_294


class Story(mishaps.Story):
    """With tags of its own."""

    prefix = "n"


def outranked(story: Story) -> None:
    """Jobs that wait with low priorities, and one with the highest there is: scontrol top of two low ones takes half of
    what lies between them from the others.
    """
    random, count = story.random, story.random.randint(4, 6)
    begins = float(int(EPOCH + story.at + 400.0))
    for place in range(count):
        story.submit(story.job(place, seconds=story.some(1.0, 20.0), begin_at=begins))
    story.at += story.some(0.5, 5.0)
    for place in range(count):
        value = _PRIORITY_MAX if place == 0 else random.randint(1, 100)
        story.act("update", "root", tag=story.tag(place), changes={"priority": value})
        story.at += story.some(0.01, 2.0)
    first = random.sample(range(1, count), 2)
    story.act("top", random.choice((story.user, "root")), tag=story.tag(first[0]), more=[story.tag(first[1])])


def outlasting(story: Story) -> None:
    """Jobs that run into their time limit, each after a suspension."""
    random = story.random
    for place in range(random.randint(1, 3)):
        story.small(place, seconds=900.0, time_limit_minutes=random.choice((1, 1, 2)))
        began = story.at
        story.at += story.some(5.0, 40.0)
        story.act("suspend", "root", tag=story.tag(place))
        story.at += random.uniform(60.0, 300.0)
        story.act("resume", "root", tag=story.tag(place))
        story.at = began + story.some(1.0, 100.0)


def lost_and_awaited(story: Story) -> None:
    """A job is lost with its node and queued again, while others wait for its end."""
    random = story.random
    away = random.uniform(*mishaps.LOST_SECONDS)
    tag = story.small(0, seconds=away + story.some(60.0, 200.0), requeue=True)
    for place, kind in enumerate(random.sample(("afterany", "afterok", "afternotok"), random.randint(1, 3)), 1):
        story.at += story.some(0.1, 3.0)
        story.small(place, seconds=story.some(5.0, 60.0), dependencies=(Dependence(kind=kind, tag=tag),))
    story.at += story.some(2.0, 20.0)
    story.away(tag, away)


def unheard_ends(story: Story) -> None:
    """Jobs whose end is told in vain, since the connection breaks; slurmd is killed before it can tell again."""
    random = story.random
    for place in range(random.randint(2, 4)):
        story.fault("request lost", "cluster", 60.0, message="StepFinished", sender="slurmd")
        later = story.some(0.02, 0.5)
        story.fault("slurmd lost at a point", "cluster", 60.0, point="written", cut=False, later=later)
        story.small(place, seconds=story.some(1.0, 20.0), requeue=random.random() < 0.5)
        story.at += story.some(20.0, 120.0)


def held_up_in_the_tree(story: Story) -> None:
    """A step of some nodes, whose launch they pass on. One reaches no other just then, and the step is given up:
    where it has begun it has ended already, and elsewhere its launch is still on its way.
    """
    wide = _wide(story, story.random.choice((2, 2, 3, 4)))
    # The first ones open the connections between nodes: an order that finds none is not sent.
    steps = [replace(wide, seconds=0.2, after_seconds=after) for after in (1.0, 4.0)]
    gives_up = story.some(0.2, 3.0)
    steps.append(replace(wide, seconds=0.1, abort_after=gives_up, after_seconds=9.0))
    _allocate(story, 40.0, steps)
    story.at += 8.5
    # It arrives while srun, without which no task begins, has not yet heard that the step is over.
    story.fault("order held up", "cluster", 20.0, from_node=False, lasts=gives_up + story.some(0.2, 2.5))


def lost_in_the_tree(story: Story) -> None:
    """Steps of some nodes. The launch of one is lost between two nodes, and later ones are not."""
    story.at = 5.0 + 0.1 * story.at  # while nodes are free
    wide = _wide(story, story.random.choice((2, 3, 3, 4)))
    steps = [replace(wide, seconds=0.2, after_seconds=after) for after in (1.0, 4.0, 9.0, 20.0, 40.0)]
    _allocate(story, 100.0, steps)
    story.at += story.some(1.0, 8.5)
    story.fault("request lost", "cluster", 20.0, message="ForwardOrder", sender="slurmd")


def _wide(story: Story, nodes: int) -> NewStep:
    """A step of few nodes: its job starts at once."""
    nodes = min(nodes, story.scale.nodes)
    return NewStep(nodes=nodes, tasks=nodes, overlap=True)


def _allocate(story: Story, seconds: float, steps: list[NewStep]) -> None:
    """A job for these steps, all of which are as wide."""
    nodes = steps[0].nodes
    size = {"nodes_min": nodes, "tasks": nodes, "memory_mib_per_node": 100}
    partition = "high" if nodes <= 2 else "main"
    story.submit(story.job(0, kind="salloc", seconds=seconds, steps=tuple(steps), partition=partition, **size))


def given_up_at_once(story: Story) -> None:
    """A burst of steps on a machine where they begin late, or where some processes cannot be forked: most are given up
    before their turn, or before the next attempt.
    """
    random = story.random
    steps = mishaps.burst(story, random.randint(9, 13), 0.8, (0.05, 1.0), lambda: story.some(0.0005, 0.01))
    tag = story.tag(0)
    size = {"partition": "high", "memory_mib_per_node": 100}
    story.submit(story.job(0, kind="salloc", seconds=60.0, steps=steps, **size))
    story.at += random.uniform(3.0, 5.9)
    kind = random.choice(("memory full", "slow starts"))
    story.fault(kind, f"host of job:{tag}", story.some(3.0, 15.0))


def taken_gpus(story: Story) -> None:
    """Short jobs that share CPUs and take few GPUs. While a full pass plans the start of some, others come that rank
    before them, and a quick pass lets these have the same GPUs.
    """
    random, place = story.random, 0
    for _ in range(random.randint(6, 8)):
        for nice in (1000, 1000, *random.choice(((0,), (0, 0)))):
            size = {"gpus": 1, "partition": "shared", "shares": True, "memory_mib_per_node": 100, "nice": nice}
            if not nice:
                story.at += story.some(1.0, 12.0)
            story.submit(story.job(place, seconds=story.some(2.0, 12.0), **size))
            place += 1
        story.at += random.uniform(10.0, 25.0)


#: (story, chance that a run has it)
STORIES: tuple[tuple[Callable[[Story], None], float], ...] = (
    (outranked, 0.15),
    (outlasting, 0.25),
    (lost_and_awaited, 0.25),
    (unheard_ends, 0.25),
    (held_up_in_the_tree, 0.5),
    (given_up_at_once, 0.25),
    (taken_gpus, 0.8),
    (lost_in_the_tree, 0.6),
)

#: Stories of plans that are stale when they are carried out, as with `Scale.slow_passes`.
_OVERTAKEN = frozenset({taken_gpus})


def draw(random: Random, scale: Scale) -> list[Action]:
    """Each with its chance; with `scale.every_kind` all. None in a run that has chosen its kinds of faults."""
    if scale.jobs < mishaps.JOBS_MIN or scale.kinds:
        return []
    actions: list[Action] = []
    for number, (tell, chance) in enumerate(STORIES):
        own = Random(random.getrandbits(64))
        if tell in _OVERTAKEN and not scale.slow_passes:
            continue
        if own.random() < chance or scale.every_kind:
            story = Story(own, scale, number)
            tell(story)
            actions += story.actions
    return sorted(actions, key=lambda action: action.at)
