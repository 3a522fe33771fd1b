"""What users ask for in a run, drawn from its seed: pure data, which `users` carries out.

Jobs are named by tags, since their numbers are known only to whom the controller told them. A tag is the job's comment,
and its name unless it shares one (`NewJob.name`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from spritz_testing.daemons.plan import Action
from spritz_testing.daemons.system.world import EPOCH

if TYPE_CHECKING:
    from random import Random

    from spritz_testing.daemons.plan import Scale

#: Users who submit jobs.
PEOPLE = ("alice", "bob", "carol", "dave")

#: Their accounts, as `accounting.policy` makes them.
ACCOUNTS_OF = {"alice": ("physics", "biology"), "bob": ("physics",), "carol": ("biology",), "dave": ("biology",)}


#: CPUs of each node (`site`).
CPUS_OF_NODE = 8


class Dependence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One condition of --dependency, on the job with a tag."""

    #: after, afterany, afterok, afternotok, aftercorr, singleton
    kind: str
    tag: str = ""
    minutes: int = 0


class NewStep(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that srun runs inside an allocation, or a script."""

    tasks: int = 1
    nodes: int = 1
    cpus_per_task: int = 1
    gpus: int = 0
    memory_mib: int = 0
    overlap: bool = False
    #: --resv-ports; 0: as many as it needs, None: none
    ports: int | None = None
    #: what its tasks do
    seconds: float = 1.0
    exit_status: int = 0
    ignores_term: bool = False
    #: srun --time; 0: as its job
    time_limit_minutes: int = 0
    #: ranks that exit so, while the others succeed; (): all
    failing: tuple[int, ...] = ()
    #: nodes on which its tasks fail at once
    fails_on: tuple[str, ...] = ()
    #: seconds from the start of the script, or from the grant, to its request
    after_seconds: float = 0.0
    #: seconds after which its srun is killed, or gets SIGINT; 0.0: it is not
    kill_after: float = 0.0
    abort_after: float = 0.0
    #: which call of srun it was, as `history.Began.call`; set when it is made
    call: str = ""


class NewJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as its user asks for it; `requests.wanted_of` makes of it what the checks read."""

    tag: str
    #: job name, if it is not the tag
    name: str = ""
    #: batch, srun or salloc
    kind: str = "batch"
    script: str = ""
    environment: tuple[str, ...] = ()
    partition: str = ""
    nodes_min: int = 1
    #: 0: as many as nodes_min
    nodes_max: int = 0
    tasks: int = 1
    cpus_per_task: int = 1
    #: GPUs, by one of three options
    gpus: int = 0
    gpus_per_node: int = 0
    gpus_per_task: int = 0
    memory_mib_per_node: int = 0
    memory_mib_per_cpu: int = 0
    #: name -> count
    licenses: dict[str, int] = {}
    #: "0-9", "" for none; `throttle` is the number after %
    array: str = ""
    throttle: int = 0
    #: of a heterogeneous job: the components after the first
    components: tuple[NewJob, ...] = ()
    dependencies: tuple[Dependence, ...] = ()
    #: "all" or "any"
    dependency_mode: str = "all"
    kill_on_invalid_dependency: bool = False
    #: seconds since the epoch; 0.0: none
    begin_at: float = 0.0
    deadline_at: float = 0.0
    held: bool = False
    exclusive: bool = False
    #: --oversubscribe
    shares: bool = False
    reservation: str = ""
    account: str = ""
    qos: str = ""
    #: None: the partition's
    time_limit_minutes: int | None = None
    time_min_minutes: int | None = None
    #: --signal: number, seconds before the end, whether to the batch shell only
    end_signal: tuple[int, int, bool] | None = None
    #: None: the cluster's default
    requeue: bool | None = None
    nice: int = 0
    #: what its script, or its allocation's user, does
    seconds: float = 10.0
    exit_status: int = 0
    #: the script ends by this signal (0: it exits)
    killed_by: int = 0
    #: tasks of an array that end so, while the others succeed; (): all
    failing: tuple[int, ...] = ()
    ignores_term: bool = False
    steps: tuple[NewStep, ...] = ()


def script_of(
    tag: str,
    seconds: float,
    exit_status: int = 0,
    killed_by: int = 0,
    ignores_term: bool = False,
    failing: tuple[int, ...] = (),
) -> str:
    """A batch script as the simulated supervisors run it."""
    plan = f"seconds={seconds:g} exit={exit_status} signal={killed_by}{' ignore=15' if ignores_term else ''}"
    plan += " only=" + ",".join(map(str, failing)) if failing else ""
    return f"#!/bin/sh\n#SIM {plan}\n# tag {tag}\n"


def cpus_of(job: NewJob) -> int:
    """CPUs of a job with all its components on `nodes_min` nodes."""
    own = job.nodes_min * CPUS_OF_NODE if job.exclusive else max(job.nodes_min, job.tasks * job.cpus_per_task)
    return own + sum(cpus_of(component) for component in job.components)


def _environment(tag: str) -> tuple[str, ...]:
    """The same of some jobs that follow each other, as of a user's shell: it is stored once."""
    number = tag.lstrip("j").partition("+")[0]
    return (f"SIM_TAG=j{int(number) // 3 * 3}" if number.isdigit() else f"SIM_TAG={tag}",)


def draw(random: Random, scale: Scale) -> list[Action]:
    """What users and administrators do in a run, in the order of time: a day of a cluster, in `scale.busy_seconds`."""
    day = _Day(random, scale)
    day.draw_reservations()
    day.draw_jobs()
    day.draw_queues()
    if "accounting" in scale.parts:
        day.draw_crowds()
    day.draw_operators()
    day.draw_readings()
    day.draw_trials()
    return sorted(day.actions, key=lambda action: action.at)


#: Jobs of a day for each crowd (`_Day.draw_crowds`).
_JOBS_OF_CROWD = 15

#: How often jobs are of a kind, in percent.
_KIND_WEIGHTS = {"batch": 76, "srun": 14, "salloc": 10}


class _Day:
    """The actions as they are drawn."""

    def __init__(self, random: Random, scale: Scale) -> None:
        self.random = random
        self.scale = scale
        self.actions: list[Action] = []
        #: jobs that were drawn, in the order of time: (at, user, wanted)
        self.jobs: list[tuple[float, str, NewJob]] = []
        #: (name, users, from, to)
        self.reservations: list[tuple[str, tuple[str, ...], float, float]] = []

    def act(self, at: float, kind: str, target: str, **data: Any) -> None:
        if at < self.scale.busy_seconds:
            self.actions.append(Action(at=at, kind=kind, target=target, data=data))

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def unusual(self, probability: float) -> bool:
        """Of something that a run may have more often than a usual day."""
        return self.chance(min(0.8, probability * self.scale.unusual))

    def some(self, low: float, high: float) -> float:
        """Seconds between the two, whose logarithm is spread evenly: often short, now and then long."""
        spread: float = (high / low) ** self.random.random()
        return round(low * spread, 3)

    # Jobs

    def draw_jobs(self) -> None:
        for number, at in enumerate(self._arrivals()):
            user = self.random.choice(PEOPLE)
            wanted = self._wanted(f"j{number}", user, at)
            self.jobs.append((at, user, wanted))
            self._submit(at, user, wanted)
            self._follow(at, user, wanted)
            if self.unusual(0.08):
                self._succeed(at, user, wanted)

    def _succeed(self, at: float, user: str, before: NewJob) -> None:
        """A user goes on from a job: gives it up and submits the next one, which waits for its end, or submits what is
        to follow each outcome.
        """
        random, at = self.random, at + self.some(0.5, 120.0)
        gives_up = self.chance(0.5)
        if gives_up:
            self.act(at, "cancel", user, tag=before.tag)
            at += self.some(0.05, 5.0)
        kinds = ("afterany", "afternotok") if gives_up else ("afterany", "afterok", "afternotok")
        for place, kind in enumerate(random.sample(kinds, random.randint(1, len(kinds)))):
            tag, seconds = f"{before.tag}s{place}", self.some(1.0, 60.0)
            wanted = NewJob(
                tag=tag,
                script=script_of(tag, seconds),
                environment=_environment(tag),
                dependencies=(Dependence(kind=kind, tag=before.tag),),
                kill_on_invalid_dependency=True,
                account=before.account,
                qos=before.qos,
                seconds=seconds,
                time_limit_minutes=int(seconds / 60) + 2,
            )
            self._submit(round(at, 6), user, wanted)

    def draw_queues(self) -> None:
        """Now and then large jobs wait in a row while small ones would fit beside what runs."""
        for number in range(self.random.choice((0, 1, 1, 2))):
            at = self.random.uniform(5.0, 0.7 * self.scale.busy_seconds)
            if self.chance(0.35):
                self._calm_queue(number, at)
            elif self.chance(0.3):
                self._many_steps(number, at)
            else:
                self._busy_queue(number, at)

    def _large(self, number: int, at: float, user: str, count: int) -> float:
        """Equal jobs of most of the cluster, one after the other. Returns when the last one was submitted."""
        random = self.random
        minutes = random.choice((1, 1, 2, 3))
        nodes = random.choice((self.scale.nodes, max(1, self.scale.nodes // 2), max(1, self.scale.nodes - 1)))
        if "accounting" in self.scale.parts:  # more has no room in the limits of `accounting.policy`
            nodes = min(nodes, 4)
        size = {"nodes_min": nodes, "tasks": nodes, "cpus_per_task": random.choice((5, 6, 8))}
        for place in range(count):
            self._queued(f"q{number}l{place}", user, at, minutes, size)
            at = round(at + self.some(0.01, 4.0), 6)
        return at

    def _calm_queue(self, number: int, at: float) -> None:
        """Nothing but submissions, and readings of planned starts: these are kept."""
        random = self.random
        user = random.choice(PEOPLE)
        at = self._large(number, at, user, random.randint(2, 5))
        for place in range(random.randint(3, 9)):
            size = {"cpus_per_task": random.choice((1, 2, 2, 4))}
            minutes = random.choice((1, 2, 5, 10, 30))
            self._queued(f"q{number}s{place}", random.choice(PEOPLE), at, minutes, size)
            if self.chance(0.4):
                self.act(at + self.some(0.5, 5.0), "expected_starts", user)
            at = round(at + self.some(0.05, 30.0), 6)
        if self.chance(0.3):
            self.act(at, "cancel", user, tag=f"q{number}l0")

    def _many_steps(self, number: int, at: float) -> None:
        """Many call srun at a time, for steps that want ports on their nodes, most of them short."""
        random = self.random
        for place in range(random.randint(5, 10)):
            tag, nodes, user = f"q{number}r{place}", random.choice((1, 1, 2)), random.choice(PEOPLE)
            nodes = min(nodes, self.scale.nodes)
            step = NewStep(tasks=nodes, nodes=nodes, ports=random.choice((1, 2, 3)), seconds=self.some(0.5, 60.0))
            wanted = NewJob(
                tag=tag,
                kind="srun",
                environment=(f"SIM_TAG={tag}",),
                partition="main",
                account=ACCOUNTS_OF[user][0] if "accounting" in self.scale.parts else "",
                qos="normal" if "accounting" in self.scale.parts else "",
                nodes_min=nodes,
                tasks=nodes,
                cpus_per_task=random.choice((1, 2, 4, 6)),
                memory_mib_per_node=500,
                seconds=step.seconds,
                time_limit_minutes=5,
                steps=(step,),
            )
            self._submit(at, user, wanted)
            at = round(at + self.some(0.01, 3.0), 6)

    def _busy_queue(self, number: int, at: float) -> None:
        """While full passes plan starts of small jobs, others take their place, or users and administrators do."""
        random = self.random
        at = self._large(number, at, random.choice(PEOPLE), random.choice((0, 0, 1, 2)))
        shares = "GANG" in self.scale.preemption and self.chance(0.5)
        for place in range(random.randint(8, 16)):
            tag, owner = f"q{number}s{place}", random.choice(PEOPLE)
            size: dict[str, Any] = {"cpus_per_task": random.choice((1, 2, 3)), "gpus": random.choice((0, 0, 1, 2))}
            size["memory_mib_per_node"] = random.choice((100, 1000, 5000))
            if self.chance(0.15):
                size = {"array": "0-3", "throttle": random.choice((0, 1, 2))}
            if self.chance(0.15):
                size["licenses"] = {"matlab": 2}
            partition = random.choice(("main", "main", "main", "high"))
            if shares:  # they take turns
                partition, size = "shared", {"shares": True, "cpus_per_task": random.choice((6, 8))}
            self._queued(tag, owner, at, random.choice((1, 1, 2, 5, 10)), size, partition)
            soon = at + self.some(0.01, 20.0)
            if self.chance(0.2):
                self.act(soon, "cancel", owner, tag=tag, **({"tasks": "3"} if "array" in size else {}))
            elif self.chance(0.15):
                self.act(soon, "hold", owner, tag=tag)
                self.act(soon + self.some(100.0, 600.0), "release", owner, tag=tag)
            elif self.chance(0.2):
                self.act(soon, "suspend", "root", tag=tag)
                self.act(soon + self.some(2.0, 100.0), "resume", "root", tag=tag)
            elif self.chance(0.1):
                node = f"n{random.randint(1, self.scale.nodes)}"
                self.act(soon, "set_node", "root", nodes=[node], state="DRAIN")
                self.act(soon + self.some(20.0, 200.0), "set_node", "root", nodes=[node], state="RESUME")
            elif self.chance(0.1):
                time = {"start_at": float(int(EPOCH + soon + self.some(90.0, 600.0))), "duration_seconds": 60.0}
                wanted = {"name": f"res{tag}", "users": ["alice"], "nodes": self._some_nodes()[:1], **time}
                self.act(soon, "reserve", "root", **wanted)
            at = round(at + self.some(0.02, 6.0), 6)

    def _queued(
        self, tag: str, user: str, at: float, minutes: int, size: dict[str, Any], partition: str = "main"
    ) -> None:
        seconds = round(minutes * 60 * self.random.choice((0.3, 0.9, 1.5)), 3)
        wanted = NewJob(
            tag=tag,
            script=script_of(tag, seconds),
            environment=(f"SIM_TAG={tag}",),
            partition=partition,
            account=ACCOUNTS_OF[user][0] if "accounting" in self.scale.parts else "",
            qos="normal" if "accounting" in self.scale.parts else "",
            seconds=seconds,
            time_limit_minutes=minutes,
            **{"memory_mib_per_node": 500} | size,
        )
        self._submit(at, user, wanted)

    def draw_crowds(self) -> None:
        """Many jobs of one user, account and QOS at a time: they reach the limits of `accounting.policy`."""
        from spritz_testing.daemons.accounting.policy import draw_names

        random = self.random
        for number in range(max(1, self.scale.jobs // _JOBS_OF_CROWD)):
            at, user = random.uniform(10.0, 0.7 * self.scale.busy_seconds), random.choice(PEOPLE)
            account, qos = draw_names(random, user, is_small=True)
            cpus, gpus = random.choice((1, 1, 4, 8)), random.choice((0, 0, 0, 1))
            for place in range(random.randint(6, 16)):
                tag, seconds = f"c{number}x{place}", self.some(20.0, 300.0)
                wanted = NewJob(
                    tag=tag,
                    script=script_of(tag, seconds),
                    environment=(f"SIM_TAG={tag}",),
                    account=account,
                    qos=qos,
                    cpus_per_task=cpus,
                    gpus=gpus,
                    seconds=seconds,
                    time_limit_minutes=int(seconds / 60) + 2,
                )
                self._submit(at, user, wanted)
                self._follow(at, user, wanted)
                at = round(at + self.some(0.001, 5.0), 6)

    def _arrivals(self) -> list[float]:
        """Times of submissions: a third of them come in bursts."""
        random, scale = self.random, self.scale
        times: list[float] = []
        while len(times) < scale.jobs:
            at = random.uniform(5.0, 0.9 * scale.busy_seconds)
            burst = random.randint(2, 8) if self.chance(0.1) else 1
            times += [round(at + random.random() * 0.02 * place, 6) for place in range(burst)]
        return sorted(times[: scale.jobs])

    def _submit(self, at: float, user: str, wanted: NewJob) -> None:
        data: dict[str, Any] = {"wanted": msgspec.to_builtins(wanted)}
        if wanted.kind == "batch":
            kind = "submit"
            if self.chance(0.04):
                data["kill_after"] = self.some(0.0005, 0.02)
        else:
            kind = wanted.kind
            if self.chance(0.3):
                data[self.random.choice(("kill_after", "signal_after"))] = self.some(0.001, 200.0)
        self.act(at, kind, user, **data)

    def _wanted(self, tag: str, user: str, at: float) -> NewJob:
        kind = self.random.choices(list(_KIND_WEIGHTS), list(_KIND_WEIGHTS.values()))[0]
        fields = self._size() | self._time(at) | self._place(user, at)
        if self.chance(0.02):
            fields["nodes_min"] = self.scale.nodes + 3  # more than there are: refused
        if kind == "batch":
            fields |= self._batch(tag, user)
            if self.chance(0.06) and not fields.get("array"):
                fields["components"] = tuple(
                    self._component(f"{tag}+{place}", held=fields["held"]) for place in range(1, 1 + self._few())
                )
            if self.chance(0.3) and not fields.get("array"):
                fields["steps"] = self._steps(fields)
            fields["script"] = script_of(
                *(tag, fields["seconds"], fields["exit_status"], fields["killed_by"], fields["ignores_term"]),
                failing=fields.get("failing", ()),
            )
        else:
            fields |= {"held": False, "killed_by": 0, "ignores_term": False}
            fields["steps"] = self._steps(fields)[:1] if kind == "srun" else self._steps(fields)
            if kind == "srun":
                fields["nodes_max"] = 0
        if not fields.get("components") and self.unusual(0.2):
            fields["dependencies"], fields["dependency_mode"] = self._dependencies(fields)
            fields["kill_on_invalid_dependency"] = self.chance(0.4)
        if "singleton" in [one.kind for one in fields.get("dependencies", ())]:
            fields["name"] = f"single-{user}"
        if "accounting" in self.scale.parts:
            from spritz_testing.daemons.accounting.policy import draw_names

            is_small = fields["nodes_min"] == 1 and not fields.get("components")
            names = draw_names(random=self.random, user=user, is_small=is_small)
            fields["account"], fields["qos"] = names
            if "components" in fields:  # all of them, as the checks count them, in a QOS where they can run together
                names = fields["account"], fields["qos"] = names[0], "normal"
                parts = fields["components"]
                fields["components"] = tuple(replace(part, account=names[0], qos=names[1]) for part in parts)
        job = NewJob(tag=tag, kind=kind, environment=_environment(tag), **fields)
        if "accounting" in self.scale.parts:
            from spritz_testing.daemons.accounting.policy import CPUS_MAX, GPUS_MAX

            # As in Slurm, a limit holds a job back that has taken as many nodes as it may, also where fewer would do.
            if max(job.nodes_max * CPUS_OF_NODE * job.exclusive, cpus_of(job)) > CPUS_MAX or (
                job.nodes_max * job.gpus_per_node > GPUS_MAX
            ):
                job = replace(job, nodes_max=0)
            while job.components and cpus_of(job) > CPUS_MAX:
                job = replace(job, components=job.components[:-1])
        return job

    def _few(self) -> int:
        return self.random.choice((1, 1, 2))

    def _size(self) -> dict[str, Any]:
        """Nodes, CPUs, memory, devices, licenses."""
        random = self.random
        nodes = random.choice((1, 1, 1, 1, 1, 2, 2, 3, min(4, self.scale.nodes)))
        fields: dict[str, Any] = {
            "nodes_min": nodes,
            "tasks": nodes * random.choice((1, 1, 2)),
            "cpus_per_task": random.choice((1, 1, 1, 2, 4)),
        }
        if self.chance(0.1):
            fields["nodes_max"] = nodes + random.randint(1, 2)
        memory = random.choice(("", "", "memory_mib_per_cpu", "memory_mib_per_node"))
        if memory:
            fields[memory] = random.choice((100, 500, 1000, 2000, 6000 if memory == "memory_mib_per_node" else 300))
        if self.chance(0.2):
            option = random.choice(("gpus", "gpus_per_node", "gpus_per_task"))
            choices = {"gpus": (nodes, 2 * nodes), "gpus_per_node": (1, 2, 4), "gpus_per_task": (1, 1, 2)}
            fields[option] = random.choice(choices[option])
        if self.chance(0.12) and self.scale.licenses:
            name = random.choice(sorted(self.scale.licenses))
            fields["licenses"] = {name: random.randint(1, self.scale.licenses[name])}
        if self.chance(0.08):
            fields["exclusive"] = True
        elif self.chance(0.08):
            fields |= {"shares": True, "partition": "shared"}
        return fields

    def _time(self, at: float) -> dict[str, Any]:
        """How long it runs, its limit, when it may begin."""
        random = self.random
        seconds = self.some(1.0, 600.0)
        fields: dict[str, Any] = {
            "seconds": seconds,
            "exit_status": random.choice((0, 0, 0, 0, 1, 77)),
            "killed_by": random.choice((0,) * 12 + (11, 9)),
            "ignores_term": self.chance(0.1),
        }
        if self.chance(0.7):
            minutes = max(1, int(seconds / 60 * random.choice((0.5, 1.5, 2, 4)) + 1))
            fields["time_limit_minutes"] = minutes
            if minutes > 1 and self.chance(0.1):
                fields["time_min_minutes"] = random.randint(1, minutes)
        if self.unusual(0.08):
            fields["end_signal"] = (random.choice((10, 12)), random.choice((10, 30, 60)), self.chance(0.5))
        if self.chance(0.07):
            fields["begin_at"] = float(int(EPOCH + at + self.some(1.0, 900.0)))
        if self.chance(0.05):
            fields["deadline_at"] = float(int(EPOCH + at + self.some(200.0, 3000.0)))
        return fields

    def _place(self, user: str, at: float) -> dict[str, Any]:
        """Partition, reservation, order."""
        random = self.random
        fields: dict[str, Any] = {"nice": random.choice((0, 0, 0, 0, 100, 1000))}
        if "accounting" in self.scale.parts:  # the limits are those of `accounting.policy`
            fields["account"] = random.choice(ACCOUNTS_OF[user])
            fields["qos"] = random.choice(("normal", "normal", "high", "low"))
        if self.chance(0.35):
            fields["partition"] = random.choice(("low", "low", "high", "main,low", "shared", "main"))
        for name, users, since, until in self.reservations:
            if user in users and since - 300 < at < until and self.chance(0.5):
                fields["reservation"] = name
                fields.pop("partition", None)
        return fields

    def _batch(self, tag: str, user: str) -> dict[str, Any]:
        """Arrays, holds, requeue."""
        random = self.random
        fields: dict[str, Any] = {"held": self.chance(0.06), "requeue": random.choice((None, True, False))}
        if self.unusual(0.14):
            last = random.randint(1, 12)
            fields["array"] = random.choice((f"0-{last}", f"1-{last}:2", f"0,3,{last + 3}"))
            fields["throttle"] = random.choice((0, 1, 2, 3))
            fields["failing"] = random.choice(((), (0, 3), (1,)))
        return fields

    def _component(self, tag: str, *, held: bool) -> NewJob:
        fields = self._size() | {"held": held}
        fields.pop("licenses", None)
        return NewJob(tag=tag, environment=_environment(tag), **fields)

    def _steps(self, fields: dict[str, Any]) -> tuple[NewStep, ...]:
        """Steps that fit into the job, or now and then do not."""
        count = self.random.randint(1, 3) if fields.get("gpus_per_node", 0) < 2 else self.random.randint(2, 5)
        return tuple(self._step(fields) for _ in range(count))

    def _step(self, fields: dict[str, Any]) -> NewStep:
        random = self.random
        nodes = random.randint(1, min(fields["nodes_min"], fields["tasks"]))
        tasks = random.randint(nodes, fields["tasks"]) if self.chance(0.95) else fields["tasks"] + 50
        gpus = fields.get("gpus_per_node", 0)
        return NewStep(
            tasks=tasks,
            nodes=nodes,
            cpus_per_task=random.randint(1, fields["cpus_per_task"]),
            gpus=gpus and random.randint(0, max(1, gpus // 2)),
            ports=random.choice((None, None, None, 0, 1, 2)),
            overlap=self.chance(0.2),
            seconds=self.some(0.5, max(1.0, fields["seconds"] * 1.2)),
            exit_status=random.choice((0, 0, 0, 2, 3)),
            failing=random.choice(((), (0,), (1,))) if tasks > 1 else (),
            after_seconds=round(random.random() * fields["seconds"] * 0.7, 3),
        )

    def _dependencies(self, fields: dict[str, Any]) -> tuple[tuple[Dependence, ...], str]:
        random = self.random
        if self.chance(0.15):
            return (Dependence(kind="singleton"),), "all"
        earlier = self.jobs[-15:]
        if not earlier:
            return (), "all"
        chosen: list[Dependence] = []
        for _, _, other in random.sample(earlier, min(len(earlier), self._few())):
            kind = random.choice(("after", "afterany", "afterok", "afternotok", "afterok"))
            if fields.get("array") and other.array:
                kind = "aftercorr"
            minutes = random.choice((0, 0, 1)) if kind == "after" else 0
            chosen.append(Dependence(kind=kind, tag=other.tag, minutes=minutes))
        return tuple(chosen), random.choice(("all", "all", "any"))

    # What users do with jobs that they have submitted

    def _follow(self, at: float, user: str, wanted: NewJob) -> None:
        random = self.random
        later = at + self.some(0.003, 400.0)
        who = user if self.chance(0.9) else random.choice((*PEOPLE, "root"))
        target: dict[str, Any] = {"tag": wanted.tag}
        if wanted.array and self.chance(0.4):
            target["tasks"] = format(random.randint(1, 31), "x")
        if self.unusual(0.14):
            self.act(later, "cancel", who, **target)
        if self.unusual(0.06):  # a mistake that is noticed at once
            self.act(at + self.some(0.02, 1.5), self._ends(wanted), user, tag=wanted.tag)
        if self.unusual(0.08) or (wanted.held and self.chance(0.8)):
            if not wanted.held:
                self.act(later, "hold", who, by_user=who != "root", **target)
            self.act(later + self.some(0.002, 300.0), "release", who, **target)
        if self.unusual(0.12):
            self.act(at + self.some(0.003, 300.0), "update", who, changes=self._changes(at), **target)
        if self.unusual(0.06):
            self.act(later, "requeue", who, hold=self.chance(0.2), **target)
            self.act(later + self.some(1.0, 300.0), "release", "root", **target)
        if self.unusual(0.03):  # held while it runs, then queued again
            self.act(later, "hold", who, by_user=who != "root", **target)
            self.act(later + self.some(0.01, 60.0), "requeue", who, **target)
            self.act(later + self.some(200.0, 900.0), "release", "root", **target)
        if self.unusual(0.12):
            self._suspend(at + self.some(0.02, 1.5) if self.chance(0.4) else later, who, target, self._ends(wanted))
        if self.unusual(0.05):
            self.act(later, "cancel", who, signal=random.choice((10, 12, 15)), batch=self.chance(0.3), **target)
        if self.chance(0.03):
            self.act(later, "top", random.choice((user, "root")), tag=wanted.tag)
        for _ in range(random.randint(0, 2)):
            reading = random.choice(("show_job", "show_job", "explain", "show_script"))
            self.act(at + self.some(0.003, 900.0), reading, user, tag=wanted.tag)

    def _ends(self, wanted: NewJob) -> str:
        """What its user does with a job that must not run on. Cancelled tasks of an array are not queued again."""
        return "cancel" if wanted.array else self.random.choice(("cancel", "requeue"))

    def _suspend(self, at: float, user: str, target: dict[str, Any], ends: str) -> None:
        """An administrator suspends a job for a while. Its user may end it or queue it again, then or soon after."""
        until = at + self.some(0.1, 200.0)
        self.act(at, "suspend", "root", **target)
        self.act(until, "resume", "root", **target)
        if self.chance(0.5):
            again = self.random.uniform(at, until + self.random.choice((0.0, 20.0)))
            self.act(again, ends, user, **target)

    def _changes(self, at: float) -> dict[str, Any]:
        random = self.random
        if "accounting" in self.scale.parts and self.chance(0.25):
            return {"qos": random.choice(("normal", "high", "high"))}
        return random.choice(
            (
                {"time_limit_minutes": random.randint(1, 30)},
                {"nice": random.choice((0, 50, 500))},
                {"priority": random.randint(1, 5000)},
                {"nodes_min": 1, "nodes_max": random.randint(1, 2)},
                {"begin_at": float(int(EPOCH + at + self.some(1.0, 400.0)))},
                {"array_limit": random.randint(1, 4)},
                {"dependencies": []},
                {"licenses": ""},
                {"partitions": ["main"]},
            )
        )

    # Administrators

    def draw_operators(self) -> None:
        random, busy = self.random, self.scale.busy_seconds
        for _ in range(random.randint(0, 3)):
            at, node = random.uniform(10.0, busy * 0.8), f"n{random.randint(1, self.scale.nodes)}"
            self.act(at, "set_node", "root", nodes=[node], state=random.choice(("DRAIN", "DRAIN", "DOWN")))
            self.act(min(at + self.some(1.0, 900.0), busy - 1.0), "set_node", "root", nodes=[node], state="RESUME")
        for _ in range(random.randint(0, 3)):
            self.act(random.uniform(10.0, busy), "reread", "root", **self._new_configuration())
        if self.chance(0.3):
            at = random.uniform(10.0, busy * 0.8)
            self.act(at, "set_partition", "root", partition="low", changes={"state": random.choice(("DOWN", "DRAIN"))})
            self.act(min(at + 300.0, busy - 1.0), "set_partition", "root", partition="low", changes={"state": "UP"})
        if self.chance(0.4):
            at = random.uniform(10.0, busy * 0.7)
            self.act(at, "node_add", "root", node="d1")
            if self.chance(0.6):
                self.act(at + self.some(5.0, busy), "node_delete", "root", node="d1")
        if self.chance(0.25) or self.scale.every_kind:
            self.act(random.uniform(10.0, busy), "shutdown", "root")
        if "standby" in self.scale.parts:
            for _ in range(random.randint(int(self.scale.every_kind), 2)):
                self.act(random.uniform(10.0, busy), "take_over", "root", index=random.randint(0, 1))

    def _new_configuration(self) -> dict[str, Any]:
        random = self.random
        if self.chance(0.3):
            return {"mistake": random.choice(("NodeName=n1 CPUs=many", "PartitionName=main Nodes=nowhere", "Nonsense"))}
        key, values = random.choice(
            (
                ("KillWait", "5 20"),
                ("SlurmdTimeout", "60 200"),
                ("BatchStartTimeout", "5 20"),
                ("MessageTimeout", "8 20"),
            )
        )
        return {"settings": {key: random.choice(values.split())}}

    def draw_reservations(self) -> None:
        """Before the jobs, which may name them."""
        random, busy = self.random, self.scale.busy_seconds
        for number in range(random.choice((0, 0, 1, 2))):
            at = random.uniform(5.0, busy * 0.7)
            since, seconds = at + self.some(5.0, 600.0), self.some(60.0, 1200.0)
            name, users = f"res{number}", tuple(random.sample(PEOPLE, 2))
            self.reservations.append((name, users, since, since + seconds))
            wanted: dict[str, Any] = {"name": name, "start_at": float(int(EPOCH + since)), "users": list(users)}
            wanted |= {"duration_seconds": float(int(seconds)), "nodes": self._some_nodes()}
            self.act(at, "reserve", "root", **wanted)
            if self.chance(0.3):
                self.act(since + seconds * random.random(), "unreserve", "root", name=name)

    def _some_nodes(self) -> list[str]:
        numbers = self.random.sample(range(1, self.scale.nodes + 1), self.random.randint(1, 2))
        return [f"n{number}" for number in sorted(numbers)]

    # Readings

    def draw_trials(self) -> None:
        """Jobs that are not submitted: sbatch --test-only."""
        for number in range(self.random.randint(1, 3)):
            at, user = self.random.uniform(5.0, self.scale.busy_seconds), self.random.choice(PEOPLE)
            wanted = self._wanted(f"trial{number}", user, at)
            self.act(at, "test_only", user, wanted=msgspec.to_builtins(wanted))

    def draw_readings(self) -> None:
        every = max(30.0, self.scale.busy_seconds / 40)
        at = every
        while at < self.scale.busy_seconds:
            self.act(
                at,
                self.random.choice(("squeue", "squeue", "expected_starts", "sinfo")),
                self.random.choice((*PEOPLE, "root")),
            )
            at += every * self.random.uniform(0.5, 1.5)
