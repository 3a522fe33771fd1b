"""What users and administrators do in several steps that belong together, drawn from a run's seed.

`workload` draws requests one by one; here each habit is a small story: a script that is submitted over and over, a
command that waits for a job's end, steps that contend for one allocation. A run has some of them, with jobs of their
own (tags "h…").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from spritz_testing.daemons.plan import Action
from spritz_testing.daemons.system.world import EPOCH
from spritz_testing.daemons.workloads.workload import CPUS_OF_NODE, PEOPLE, NewJob, NewStep, script_of

if TYPE_CHECKING:
    from random import Random

    from spritz_testing.daemons.plan import Scale

#: One habit for so many jobs of the workload.
_JOBS_OF_HABIT = 10

#: With standbys, so many takeovers among submissions.
_HANDOVERS = 4

#: Highest priority that a job can have.
_PRIORITY_MAX = 4_294_967_294


class Habit:
    """One story as it is drawn: who, from when on, and the actions."""

    #: with which tags of its jobs begin
    prefix = "h"

    def __init__(self, random: Random, scale: Scale, number: int) -> None:
        self.random = random
        self.scale = scale
        self.number = number
        self.user = random.choice(PEOPLE)
        self.at = random.uniform(5.0, 0.6 * scale.busy_seconds)
        #: nothing happens later
        self.until = scale.busy_seconds
        self.actions: list[Action] = []
        self._names: dict[str, str] = {}
        #: CPUs of the largest job that can ever start
        self.cpus_max = CPUS_OF_NODE * scale.nodes
        if "accounting" in scale.parts:
            from spritz_testing.daemons.accounting.policy import CPUS_MAX, draw_names

            account, qos = draw_names(random, self.user, is_small=False)
            self._names = {"account": account, "qos": qos}
            self.cpus_max = min(self.cpus_max, CPUS_MAX)

    def some(self, low: float, high: float) -> float:
        """Seconds between the two: short ones are as likely as long ones."""
        return round(float(low * (high / low) ** self.random.random()), 3)

    def act(self, kind: str, target: str = "", **data: Any) -> None:
        if self.at < self.until:
            self.actions.append(Action(at=round(self.at, 6), kind=kind, target=target or self.user, data=data))

    def tag(self, place: int) -> str:
        """The tag of a job of this story."""
        return f"{self.prefix}{self.number}x{place}"

    def job(self, place: int, *, seconds: float, **fields: Any) -> NewJob:
        """A job of this story."""
        tag = self.tag(place)
        if fields.get("kind", "batch") == "batch":
            fields.setdefault("script", script_of(tag, seconds))
        environment = (f"SIM_TAG={self.prefix}{self.number}",)
        fields = {"time_limit_minutes": int(seconds / 60) + 2, "environment": environment, **self._names, **fields}
        return NewJob(tag=tag, seconds=seconds, **fields)

    def given_up(self, step: NewStep, chance: float, seconds: float) -> NewStep:
        """The step, whose srun perhaps is killed, or gets a Ctrl-C, after so long."""
        if self.random.random() >= chance:
            return step
        if self.random.random() < 0.3:
            return replace(step, kill_after=seconds)
        return replace(step, abort_after=seconds)

    def submit(self, wanted: NewJob, **data: Any) -> None:
        kind = "submit" if wanted.kind == "batch" else wanted.kind
        self.act(kind, wanted=msgspec.to_builtins(wanted), **data)


def same_script(habit: Habit) -> None:
    """One script again and again, as a study of parameters; now and then with an option that is refused."""
    random, seconds = habit.random, habit.some(0.5, 20.0)
    script = script_of(f"h{habit.number}", seconds)
    every = habit.some(0.2, 60.0)
    for place in range(random.randint(3, 10)):
        refused = {"nodes_min": habit.scale.nodes + 5} if random.random() < 0.25 else {}
        habit.submit(habit.job(place, seconds=seconds, script=script, **refused))
        habit.at += habit.some(0.001, 0.1) if random.random() < 0.2 else every * random.uniform(0.3, 2.0)


def waiting(habit: Habit) -> None:
    """sbatch --wait, mostly of an array."""
    for place in range(habit.random.randint(1, 4)):
        array = {"array": f"0-{habit.random.randint(1, 5)}"} if habit.random.random() < 0.7 else {}
        habit.submit(habit.job(place, seconds=habit.some(1.0, 60.0), **array), wait=True)
        habit.at += habit.some(0.1, 300.0)
        if habit.random.random() < 0.2:
            habit.act("cancel", tag=f"h{habit.number}x{place}")


def contending_steps(habit: Habit) -> None:
    """salloc of one node, and more steps than fit: some wait, and their user gives up one of these."""
    random = habit.random
    for place in range(random.randint(1, 2)):
        cpus, long = random.choice((2, 4, 6)), habit.some(100.0, 400.0)
        steps = _behind(habit, cpus) if random.random() < 0.5 else _contending(habit, cpus, long)
        wanted = habit.job(place, kind="salloc", seconds=long + 60.0, cpus_per_task=cpus, steps=steps)
        leaves = {"kill_after": habit.some(5.0, 200.0)} if random.random() < 0.3 else {}
        habit.submit(wanted, **leaves)
        habit.at += habit.some(1.0, 300.0)


def _contending(habit: Habit, cpus: int, long: float) -> tuple[NewStep, ...]:
    random = habit.random
    steps = [NewStep(cpus_per_task=cpus // 2, seconds=long, time_limit_minutes=random.choice((0, 0, 1)))]
    for _ in range(random.randint(1, 4)):
        asks = random.choice((cpus // 2, cpus // 2, cpus))
        after = round(random.uniform(0.5, 20.0), 3)
        step = NewStep(cpus_per_task=asks, seconds=habit.some(1.0, 60.0), after_seconds=after)
        steps.append(habit.given_up(step, 0.5, habit.some(0.5, 60.0)))
    return tuple(sorted(steps, key=lambda step: step.after_seconds))


def _behind(habit: Habit, cpus: int) -> tuple[NewStep, ...]:
    """The first that waits wants all CPUs, and is given up; those behind it would fit beside the one that runs."""
    random, after = habit.random, habit.some(0.5, 5.0)
    large = NewStep(cpus_per_task=cpus, seconds=5.0, after_seconds=after)
    steps = [NewStep(cpus_per_task=cpus // 2, seconds=500.0), habit.given_up(large, 1.0, habit.some(2.0, 30.0))]
    for _ in range(random.randint(1, 2)):
        after = round(after + habit.some(0.1, 2.0), 3)
        steps.append(NewStep(cpus_per_task=cpus // 2, seconds=habit.some(1.0, 30.0), after_seconds=after))
    return tuple(steps)


def wide_steps(habit: Habit) -> None:
    """salloc of many nodes, steps on most of them, ended as soon as they begin: orders run through the tree."""
    random, nodes = habit.random, habit.scale.nodes
    wide = random.randint(max(1, nodes - 2), nodes)
    steps = []
    for _ in range(random.randint(2, 5)):
        count = random.randint(max(1, wide - 1), wide)
        after = round(random.uniform(0.1, 60.0), 3)
        step = NewStep(nodes=count, tasks=count, seconds=habit.some(5.0, 100.0), after_seconds=after, overlap=True)
        steps.append(habit.given_up(step, 0.6, habit.some(0.002, 2.0)))
    wanted = habit.job(0, kind="salloc", seconds=90.0, nodes_min=wide, tasks=wide, steps=tuple(steps))
    leaves = {random.choice(("kill_after", "signal_after")): habit.some(1.0, 80.0)} if random.random() < 0.6 else {}
    habit.submit(wanted, **leaves)


def limited_step(habit: Habit) -> None:
    """A job whose script runs a step with a limit of its own, and which is cancelled at any time."""
    random = habit.random
    after, stays = habit.some(0.01, 5.0), random.random() < 0.6
    step = NewStep(seconds=200.0, time_limit_minutes=1, after_seconds=after, ignores_term=stays)
    habit.submit(habit.job(0, seconds=150.0, steps=(step,)))
    if random.random() < 0.8:
        habit.at += random.uniform(40.0, 66.0)
        habit.act("cancel", tag=f"h{habit.number}x0")


def long_job(habit: Habit) -> None:
    """A job that lasts: through outages, a long suspension, a change of its mind."""
    random = habit.random
    seconds = random.uniform(0.3, 0.9) * habit.scale.busy_seconds
    habit.at *= 0.3
    habit.submit(habit.job(0, seconds=seconds, requeue=True))
    target = {"tag": f"h{habit.number}x0"}
    for _ in range(random.randint(0, 2)):
        habit.at += habit.some(5.0, 300.0)
        habit.act("suspend", "root", **target)
        if random.random() < 0.8:
            habit.at += habit.some(1.0, 700.0)
            habit.act("resume", "root", **target)
    if random.random() < 0.3:
        habit.at += habit.some(1.0, 300.0)
        habit.act(random.choice(("requeue", "cancel")), **target)


def with_signal(habit: Habit) -> None:
    """Jobs that want a signal before their end, and are still there when it is due."""
    random = habit.random
    for place in range(random.randint(1, 4)):
        minutes = random.choice((1, 2))
        signal = random.choice((10, 12)), random.choice((10, 30, 50)), True
        seconds = habit.some(60.0, 60.0 * minutes + 100.0)
        habit.submit(habit.job(place, seconds=seconds, time_limit_minutes=minutes, end_signal=signal))
        habit.at += habit.some(10.0, 600.0)


def impatience(habit: Habit) -> None:
    """A user who makes the same request twice, at once."""
    random = habit.random
    habit.submit(habit.job(0, seconds=habit.some(1.0, 200.0)))
    target = {"tag": f"h{habit.number}x0"}
    habit.at += habit.some(0.01, 100.0)
    for kind, data in random.choice(
        (
            (("cancel", {}), ("cancel", {})),
            (("hold", {"by_user": True}), ("release", {})),
            (("requeue", {}), ("requeue", {})),
            (("suspend", {}), ("resume", {})),
            (("update", {"changes": {"nice": 5}}), ("update", {"changes": {"nice": 9}})),
        )
    ):
        who = "root" if kind in ("suspend", "resume") else habit.user
        for _ in range(random.randint(1, 3)):
            habit.act(kind, who, **data, **target)
            habit.at += habit.some(0.0002, 0.05)


def priorities(habit: Habit) -> None:
    """Jobs that wait, to which an administrator gives priorities at the ends of their range; then scontrol top."""
    random, count = habit.random, habit.random.randint(3, 5)
    for place in range(count):
        begin = float(int(EPOCH + habit.at + 300.0)) if random.random() < 0.9 else 0.0
        habit.submit(habit.job(place, seconds=habit.some(1.0, 60.0), begin_at=begin))
        habit.at += habit.some(0.001, 1.0)
    for place in range(count):
        if random.random() < 0.7:
            value = random.choice((1, 2, 100, 1 << 31, _PRIORITY_MAX - 1, _PRIORITY_MAX))
            habit.act("update", "root", tag=f"h{habit.number}x{place}", changes={"priority": value})
            habit.at += habit.some(0.01, 5.0)
    for _ in range(random.randint(1, 3)):
        tags = [f"h{habit.number}x{place}" for place in random.sample(range(count), random.randint(1, count - 1))]
        habit.act("top", random.choice((habit.user, "root")), tag=tags[0], more=tags[1:])
        habit.at += habit.some(0.01, 10.0)


def reboots(habit: Habit) -> None:
    """scontrol reboot of nodes, and its cancellation; a node may be named twice, as overlapping ranges do."""
    random = habit.random
    nodes = [f"n{random.randint(1, habit.scale.nodes)}" for _ in range(random.randint(1, 2))]
    count = habit.scale.nodes
    habit.submit(habit.job(0, seconds=habit.some(20.0, 300.0), nodes_min=count, tasks=count))
    habit.at += habit.some(0.01, 20.0)
    habit.act("reboot_nodes", "root", nodes=nodes, asap=random.random() < 0.5)
    if random.random() < 0.8:
        habit.at += habit.some(0.005, 30.0)
        habit.act("set_node", "root", nodes=nodes * random.choice((1, 2)), state="CANCEL_REBOOT")


def reserved_by_number(habit: Habit) -> None:
    """A reservation of some nodes, whichever these are, for tomorrow; nodes of it may fail until then."""
    random = habit.random
    count = random.randint(max(1, habit.scale.nodes - 2), habit.scale.nodes)
    name = f"any{habit.number}"
    start = float(int(EPOCH + 86_400.0))
    habit.act("reserve", "root", name=name, node_count=count, start_at=start, duration_seconds=3600.0, users=["root"])
    for _ in range(random.randint(0, 2)):
        habit.at += habit.some(1.0, 300.0)
        node = f"n{random.randint(1, habit.scale.nodes)}"
        habit.act("set_node", "root", nodes=[node], state="DRAIN")
        habit.at += habit.some(10.0, 300.0)
        habit.act("set_node", "root", nodes=[node], state="RESUME")
    if random.random() < 0.5:
        habit.at += habit.some(1.0, 300.0)
        habit.act("unreserve", "root", name=name)


def stale_plans(habit: Habit) -> None:
    """Small jobs behind large ones that cannot start yet, so that mostly full passes start them. Before such a plan is
    carried out, users and administrators change their minds, and jobs of a higher tier come and go.
    """
    random, nodes = habit.random, habit.scale.nodes
    habit.submit(habit.job(0, seconds=habit.some(200.0, 900.0), cpus_per_task=2, partition="main"))
    habit.at += habit.some(0.5, 5.0)
    for place, cpus in enumerate(random.sample((5, 6, 7, 8), 3)):
        cpus = min(cpus, habit.cpus_max // nodes)
        wide = habit.job(
            1 + place, seconds=20.0, time_limit_minutes=5, nodes_min=nodes, tasks=nodes, cpus_per_task=cpus
        )
        habit.submit(wide)
    for place in range(4, random.randint(10, 16)):
        size = {"cpus_per_task": random.choice((1, 1, 2, 8)), "gpus": random.choice((0, 0, 1, 3))}
        size |= {
            "memory_mib_per_node": random.choice((500, 5000, 10_000)),
            "time_limit_minutes": random.choice((1, 2, 5)),
        }
        high = random.random() < 0.3
        seconds = habit.some(1.0, 15.0) if high else habit.some(2.0, 60.0)
        habit.submit(habit.job(place, seconds=seconds, partition="high" if high else "main", **size))
        at = habit.at
        habit.at += random.uniform(0.5, 40.0)
        _changes_its_mind(habit, place)
        habit.at = at + habit.some(0.1, 10.0)


def _changes_its_mind(habit: Habit, place: int) -> None:
    """Something after which the job may not start, or not there."""
    random, target = habit.random, {"tag": f"h{habit.number}x{place}"}
    nodes = [f"n{number}" for number in range(1, habit.scale.nodes + 1)]
    match random.choice(("hold", "hold", "cancel", "drain", "reserve", "reserve", "update", "")):
        case "hold":
            habit.act("hold", by_user=True, **target)
            habit.at += habit.some(30.0, 300.0)
            habit.act("release", **target)
        case "cancel":
            habit.act("cancel", **target)
        case "drain":
            habit.act("set_node", "root", nodes=nodes, state="DRAIN")
            habit.at += habit.some(10.0, 60.0)
            habit.act("set_node", "root", nodes=nodes, state="RESUME")
        case "reserve":
            time = {"start_at": float(int(EPOCH + habit.at + habit.some(40.0, 250.0))), "duration_seconds": 60.0}
            for node in nodes:
                name = f"r{habit.number}x{place}{node}"
                habit.act("reserve", "root", name=name, users=["root"], nodes=[node], **time)
        case "update":
            later = {"begin_at": float(int(EPOCH + habit.at + habit.some(30.0, 300.0)))}
            habit.act("update", changes=random.choice((later, {"partitions": ["shared"]})), **target)


def crowding(habit: Habit) -> None:
    """Short jobs on one node, more than its memory or its GPUs are enough for: while a pass plans a start, some end,
    and others that come first take their place, on other CPUs or on shared ones.
    """
    random, others = habit.random, min(habit.scale.nodes - 1, habit.cpus_max // CPUS_OF_NODE)
    if others:
        wide = habit.job(0, seconds=200.0, nodes_min=others, tasks=others, cpus_per_task=8, partition="main")
        habit.submit(wide)
        habit.at += habit.some(5.0, 40.0)
    name, counts = random.choice((("memory_mib_per_node", (5000, 9000, 9000, 12_000)), ("gpus", (1, 1, 2, 2, 3))))
    shares = random.random() < 0.6
    for place in range(1, random.randint(14, 24)):
        size: dict[str, Any] = {"cpus_per_task": random.choice((1, 1, 2)), name: random.choice(counts)}
        comes_first, seconds = random.random() < 0.4, habit.some(2.0, 20.0)
        if shares:
            size |= {"partition": "shared", "shares": True, "nice": 0 if comes_first else 1000}
        else:
            size["partition"] = "high" if comes_first else "main"
        habit.submit(habit.job(place, seconds=seconds, **size))
        habit.at += habit.some(0.2, 10.0)


def following(habit: Habit) -> None:
    """A program that follows the cluster, and is slow."""
    habit.at *= 0.5
    habit.act("follow", seconds=habit.some(60.0, 2000.0), pause=habit.some(0.01, 60.0))


def handover(habit: Habit) -> None:
    """An administrator lets another controller lead while jobs are submitted in a burst."""
    random, count = habit.random, habit.random.randint(4, 7)
    asked = random.randrange(count // 2)
    for place in range(count):
        habit.submit(habit.job(place, seconds=1.0))
        if place == asked:
            habit.act("take_over", "root", index=random.randint(0, 1))
        habit.at += habit.some(0.0005, 0.01)


def thinned_array(habit: Habit) -> None:
    """An array of which few tasks run at a time; its user thinks better of some that wait, or changes these alone."""
    random = habit.random
    last = random.randint(5, 12)
    wanted = habit.job(0, seconds=habit.some(5.0, 60.0), array=f"0-{last}", throttle=random.choice((1, 1, 2)))
    habit.submit(wanted)
    for _ in range(random.randint(1, 4)):
        habit.at += habit.some(1.0, 120.0)
        tasks = sum(1 << number for number in random.sample(range(1, last + 1), random.randint(1, 3)))
        target = {"tag": wanted.tag, "tasks": format(tasks, "x")}
        kind = random.choice(("cancel", "cancel", "cancel", "hold", "update"))
        data: dict[str, Any] = {"changes": {"nice": 7}} if kind == "update" else {}
        habit.act(kind, **data, **target)
        if kind == "hold":
            habit.at += habit.some(1.0, 120.0)
            habit.act("release", **target)


def moved_together(habit: Habit) -> None:
    """A heterogeneous job is moved into a QOS whose limit on submission is nearly reached (`accounting.policy`)."""
    begins, place = float(int(EPOCH + habit.at + 500.0)), 0
    for place in range(habit.random.randint(2, 4)):
        habit.submit(habit.job(place, seconds=habit.some(1.0, 60.0), begin_at=begins, qos="high"))
        habit.at += habit.some(0.001, 2.0)
    first, second = (habit.job(place + number, seconds=20.0, begin_at=begins, qos="normal") for number in (1, 2))
    habit.submit(replace(first, components=(second,)))
    habit.at += habit.some(0.1, 100.0)
    habit.act("update", tag=first.tag, changes={"qos": "high"})


def few_at_a_time(habit: Habit) -> None:
    """Short jobs of one user in a QOS that lets two of them run: one begins whenever another one ends."""
    random = habit.random
    for place in range(random.randint(10, 18)):
        wanted = habit.job(place, seconds=habit.some(1.0, 20.0), qos="high", partition=random.choice(("main", "high")))
        habit.submit(wanted)
        habit.at += habit.some(0.01, 20.0)


def evening(habit: Habit) -> None:
    """The last jobs of the day, and one in the night, when controllers have forgotten these."""
    random, busy = habit.random, habit.scale.busy_seconds
    habit.until = busy + 600.0
    habit.at = busy * random.uniform(0.95, 0.99)
    for place in range(random.randint(1, 2)):
        array = {"array": f"0-{random.randint(1, 3)}"}
        habit.submit(habit.job(place, seconds=habit.some(1.0, 10.0), partition="high", qos="normal", **array))
    habit.at = busy + random.uniform(40.0, 500.0)
    habit.submit(habit.job(5, seconds=5.0, qos="normal"))


HABITS: tuple[Callable[[Habit], None], ...] = (
    same_script,
    waiting,
    contending_steps,
    wide_steps,
    limited_step,
    long_job,
    with_signal,
    impatience,
    priorities,
    reboots,
    reserved_by_number,
    following,
    thinned_array,
)

#: Of clusters with accounting, in each of their runs, and in every other one.
ACCOUNTING_HABITS, ACCOUNTING_HABITS_RARE = (moved_together, thinned_array, evening), (few_at_a_time,)


#: Where plans are stale when they are carried out.
_OVERTAKEN = [stale_plans, stale_plans, crowding, crowding]


def draw(random: Random, scale: Scale) -> list[Action]:
    """Some of them; with `scale.every_kind` each."""
    count = len(HABITS) if scale.every_kind else min(len(HABITS), 1 + scale.jobs // _JOBS_OF_HABIT)
    chosen = list(HABITS) if scale.every_kind else random.sample(HABITS, count)
    if scale.jobs < _JOBS_OF_HABIT:
        return []
    if scale.slow_passes:
        chosen += _OVERTAKEN
    if "standby" in scale.parts:
        chosen += [handover] * _HANDOVERS
    if "accounting" in scale.parts:
        chosen += ACCOUNTING_HABITS
        chosen += [habit for habit in ACCOUNTING_HABITS_RARE if random.random() < 0.5]
    actions: list[Action] = []
    for number, tell in enumerate(chosen):
        habit = Habit(random, scale, number)
        tell(habit)
        actions += habit.actions
    return sorted(actions, key=lambda action: action.at)
