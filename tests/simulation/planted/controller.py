"""Faults of the controller's links to nodes, its parked requests, timers, forks and listings."""

from __future__ import annotations

from tests.simulation.planted.entry import Edit, Planted

_NODES = "controller/nodes/links.py"
_DEFERRED = "controller/api/deferred.py"
_PENDING = "core/pending.py"
_REGISTRATION = "core/decide/node/registration.py"

#: Without it a node does not start what it was told to end, however late the launch comes.
_FORGETS_ENDS = Edit(
    "node/machine.py",
    "        # Its launch may still come: from a node that could not pass it on for a while.\n"
    "        self._remember_end(key)\n",
    "",
)

FAULTS = (
    Planted(
        name="launch_not_derived_again",
        rule=6,
        kinds=("cut both ways", "cut one way", "reset", "stop", "half open"),
        file=_PENDING,
        old="[launch(step, name) for name in step.unstarted_nodes if node is None or name == node]",
        new="[launch(step, name) for name in step.unstarted_nodes if node is None]",
        why="A launch that was lost with a connection or with the controller is not sent when the node comes back: the"
        " job runs without a process until its time limit.",
    ),
    Planted(
        name="suspension_not_derived_again",
        rule=3,
        kinds=("cut both ways", "cut one way", "reset", "stop", "half open"),
        needs=("suspend",),
        file=_PENDING,
        old="if (suspended or job.suspended_seconds) and job.allocation is not None:",
        new="if not suspended and job.suspended_seconds and job.allocation is not None:",
        why="A node that missed a suspension goes on with the job, while its CPUs are given to another one.",
    ),
    Planted(
        name="end_of_step_not_derived_again",
        rule=6,
        kinds=("cut both ways", "cut one way", "reset", "stop", "half open"),
        needs=("srun",),
        file=_PENDING,
        old="""\
        # Where its launch has not arrived it never runs.
        return [terminate_step(step, name) for name in step.running_nodes if node is None or name == node]
""",
        new="""\
        return []
""",
        why="A cancelled step whose node was cut off at that moment is never ended there.",
    ),
    Planted(
        name="terminate_names_next_life",
        rule=6,
        needs=("requeue",),
        file=_PENDING,
        old="restart_count=job.completing_life, cause=termination_cause(job), kill_now=kill_now",
        new="restart_count=job.restart_count, cause=termination_cause(job), kill_now=kill_now",
        why="The order to end a requeued job names its next life, which its nodes do not have: the processes go on, and"
        " the job is COMPLETING for ever.",
    ),
    Planted(
        name="returned_node_is_told_nothing",
        rule=6,
        kinds=("cut both ways", "cut one way", "reset", "stop", "half open"),
        file=_NODES,
        old="""\
                self._catch_up(report.name)
            else:
""".rstrip(),
        new="""\
            else:
""".rstrip(),
        why="A node that registers again hears nothing of what was decided meanwhile: launches, suspensions and ends of"
        " jobs whose orders were lost with its connection stay lost.",
    ),
    Planted(
        name="order_overtakes_the_tree",
        rule=3,
        kinds=("kill", "stop", "power loss", "cut one way", "partition"),
        needs=("fanout",),
        file=_NODES,
        old="""\
                await asyncio.shield(before)
                self._under_way[effect.node] += 1
            await self._deliver(effect, channel)
""",
        new="""\
                self._under_way[effect.node] += 1
            await self._deliver(effect, channel)
""",
        also=(_FORGETS_ENDS,),
        why="An order over a node's own link overtakes the launch that is forwarded to it: the node ends what it does"
        " not have, and then starts a cancelled job.",
    ),
    Planted(
        name="forwarded_orders_overtake",
        rule=3,
        kinds=("kill", "stop", "power loss", "cut one way", "partition"),
        needs=("fanout",),
        file=_NODES,
        old="""\
            for earlier in before:
                await asyncio.shield(earlier)
""",
        new="",
        also=(_FORGETS_ENDS,),
        why="A forwarded message does not wait for the one before it: through another branch the end of a job reaches a"
        " node before its launch, and the cancelled job starts.",
    ),
    Planted(
        name="unanswered_branch_forgotten",
        rule=6,
        kinds=("kill", "stop", "power loss", "cut one way", "partition"),
        needs=("fanout",),
        file=_NODES,
        old="""\
        if passing:
            self._repeat(order, answer.unanswered)
        else:
            missed += answer.unanswered
""",
        new="""\
        if passing:
            self._repeat(order, answer.unanswered)
""",
        why="Nodes of a branch that was lost while it forwarded an order do not get the order over their own links.",
    ),
    Planted(
        name="silence_begins_again",
        rule=6,
        kinds=("cut both ways", "partition", "power loss", "stop"),
        file=_NODES,
        old="self._silent_since.setdefault(name, now)",
        new="self._silent_since[name] = now",
        why="Each look restarts the silence of a node without a link: a dead node is never declared lost, and its jobs"
        " run for ever.",
    ),
    Planted(
        name="returned_node_keeps_its_jobs",
        rule=3,
        kinds=("cut both ways", "partition", "power loss", "stop"),
        file=_REGISTRATION,
        old="if (job_id, life, step_id) not in expected:",
        new="if (job_id, life, step_id) not in expected and job_id not in context.state.jobs:",
        also=(
            Edit(
                _REGISTRATION,
                "ended = tuple(life for life in report.jobs if life not in expected)",
                "ended = tuple(life for life in report.jobs if life not in expected"
                " and life[0] not in context.state.jobs)",
            ),
        ),
        why="A node that was declared lost and comes back goes on with jobs that were requeued: their old processes"
        " hold CPUs that are given to others.",
    ),
    Planted(
        name="request_behind_abandoned_one",
        rule=6,
        defect="b6",
        needs=("srun",),
        file=_DEFERRED,
        old="""\
        self._note_first(job_id)
        if job_id in self._steps:
            self._touched[job_id] = None
            self._context.writer.turn()

    def _first_step(
""".rstrip(),
        new="""\
        self._note_first(job_id)

    def _first_step(
""".rstrip(),
        why="When the first of two waiting sruns is aborted, the second, which fits, is not tried before a step of the"
        " job ends.",
    ),
    Planted(
        name="end_of_array_not_heard",
        rule=6,
        needs=("arrays",),
        file=_DEFERRED,
        old="numbers = (job_id,) if job is None else (job_id, job.array_job_id, job.het_job_id)",
        new="numbers = (job_id,) if job is None else (job_id, job.het_job_id)",
        why="sbatch --wait of an array is not answered, since the ends of its tasks have other job ids.",
    ),
    Planted(
        name="dead_client_keeps_its_job",
        rule=6,
        kinds=("cut both ways", "cut one way", "reset", "stop", "half open"),
        needs=("srun",),
        file=_DEFERRED,
        old="""\
            self._expect(job_id, self._grace())
            self._context.tasks.spawn_contained(self._cancel_if_killed(job_id), name="interactive.killed")
""",
        new="""\
            self._context.tasks.spawn_contained(self._cancel_if_killed(job_id), name="interactive.killed")
""",
        why="The allocation of an salloc that died on another machine is never given back.",
    ),
    Planted(
        name="grant_before_durable",
        rule=1,
        kinds=("kill", "kill inside a write", "power inside a write", "disk slow", "kill at a callback"),
        needs=("srun",),
        file=_DEFERRED,
        old="self._context.writer.when_durable(partial(self._begin_answers, answers))",
        new="self._begin_answers(answers)",
        why="srun hears of its allocation, or sbatch --wait of the job's end, before the event is on disk: a kill"
        " undoes what was told.",
    ),
    Planted(
        name="rows_kept_by_priority",
        rule=2,
        file="controller/api/queue/row_cache.py",
        old="if known is None or known[0] is not job or known[1] != priority:",
        new="if known is None or known[1] != priority:",
        # Rows of fewer jobs are not kept.
        also=(Edit("controller/api/queue/jobs.py", "_MANY_JOBS = 200\n", "_MANY_JOBS = 1\n"),),
        why="squeue shows a job as it was before an acknowledged change that leaves its priority as it is.",
    ),
    Planted(
        name="step_deadline_outlives_its_job",
        rule=5,
        kinds=("undying processes", "stop"),
        defect="b1",
        needs=("srun",),
        file="core/apply/job.py",
        old="    state.end_step_deadlines(job.id)\n",
        new="",
        also=(
            Edit(
                "core/job/timers.py",
                " or job.state.ended or job.restart_count != step.restart_count\n",
                "\n",
            ),
            Edit(
                "controller/writer/timers.py",
                '            context.writer.count_failure("tick")\n            self._retry(deadline)\n',
                '            context.writer.count_failure("tick")\n            self.arm()\n',
            ),
        ),
        why="The time limit of a step stays due after its job was cancelled: until its node answers, the same order is"
        " sent a thousand times a second.",
    ),
    Planted(
        name="top_tries_every_value",
        rule=5,
        defect="b2",
        needs=("top",),
        file="core/decide/waiting/top.py",
        old="    extra = bisect_left(range(max(above - goals[0], 0) + 1), True, key=leads)\n",
        new="    extra = 0\n    while not leads(extra):\n        extra += 1\n",
        why="scontrol top takes steps in proportion to the difference of priorities, which are numbers of 32 bits, in"
        " one turn of the loop.",
    ),
    Planted(
        name="node_named_twice_is_changed_twice",
        rule=2,
        defect="b7",
        needs=("operators", "reboot"),
        file="core/decide/node/states.py",
        old="for name in dict.fromkeys(command.names):",
        new="for name in command.names:",
        why="An operator's cancel_reboot of n1,n1 is refused by its second half, after the first has changed the node.",
    ),
    Planted(
        name="refused_fork_tried_each_turn",
        rule=5,
        kinds=("fork refused",),
        defect="b16",
        needs=("forks",),
        file="controller/forked.py",
        old="""\
        if now < self._not_before:
            raise _refusal(name, "it was refused a moment ago")
""",
        new="""\
        return
""",
        why="A fork that the system refuses is tried again in every turn of the loop.",
    ),
    Planted(
        name="reservation_tried_at_each_event",
        rule=5,
        defect="b14",
        needs=("reservations",),
        file="core/decide/reservations/replenish.py",
        old="AGAIN_SECONDS = 60.0",
        new="AGAIN_SECONDS = 0.0",
        why="For a reservation that lacks a node all nodes are tried after each event, not once a minute.",
    ),
    Planted(
        name="stream_counts_its_end",
        rule=5,
        defect="b10",
        needs=("streams",),
        file="client/channel/channel.py",
        old="""\
    def put(self, item: T | Exception | None) -> None:
        self._queue.put_nowait(item)
        self._compare(self._queue.qsize())

    async def get(self) -> T | Exception | None:
        item = await self._queue.get()
        self._compare(self._queue.qsize())
        return item
""",
        new="""\
    def put(self, item: T | Exception | None) -> None:
        self._queue.put_nowait(item)
        if item is not None and self._queue.qsize() == STREAM_ITEMS_MAX:
            self._on_change(True)

    async def get(self) -> T | Exception | None:
        item = await self._queue.get()
        if self._queue.qsize() == STREAM_ITEMS_MAX - 1:
            self._on_change(False)
        return item
""",
        why="A stream that ends with exactly 255 waiting items turns back-pressure off for its connection: the queue of"
        " a slow reader grows without bound.",
    ),
    Planted(
        name="kill_deadline_not_moved",
        rule=5,
        kinds=("cut both ways", "partition", "power loss", "stop"),
        file="core/decide/due.py",
        old="repeat_kill_at=context.now + REPEAT_KILL_SECONDS))",
        new="repeat_kill_at=job.repeat_kill_at))",
        why="The repeated order to kill a job leaves its deadline as it was: while a node hangs, the order and its"
        " event are repeated in each turn.",
    ),
    Planted(
        name="end_signal_has_no_deadline",
        rule=5,
        needs=("signals",),
        file="core/job/timers.py",
        old=", (signal_at, Due.END_SIGNAL)\n",
        new="\n",
        why="Nothing wakes the core for the signal of --signal: a job that nothing else happens to never gets it.",
    ),
    Planted(
        name="deadlines_out_of_order",
        rule=5,
        file="core/job/timers.py",
        old="            heapify(self._heap)\n",
        new="",
        why="After many changes of deadlines their heap is in no order: time limits and begin times are noticed late.",
    ),
    Planted(
        name="reconnect_without_a_pause",
        rule=5,
        file="client/channel/aio.py",
        old="""\
                self._report(error, reported)
                await self._clock.sleep(next(waits))
""",
        new="""\
                self._report(error, reported)
                await self._clock.sleep(0.001)
""",
        why="A daemon whose peer is away tries to connect a thousand times a second.",
    ),
)
