"""Faults of the core: starts, ends, dependencies, limits, resources and steps of jobs."""

from __future__ import annotations

from tests.simulation.planted.entry import Edit, Planted

_START = "core/decide/starting/start.py"
_ENDING = "core/decide/ending.py"
_DEPENDENCY = "core/decide/dependency.py"
_REPORTS = "core/decide/running/reports.py"
_APPLY = "core/apply/job.py"
_GANG = "core/decide/gang.py"
_USE = "model/rules/node_use.py"
_CHECK = "model/limits/check.py"

FAULTS = (
    # -- starts
    Planted(
        name="stale_plan_starts_ended_job",
        rule=3,
        file=_START,
        old="if job is None or job.state is not JobState.PENDING:",
        new="if job is None or job.state.active:",
        also=(Edit(_START, "    if not may_wait(job):\n", "    if not (job.state.ended or may_wait(job)):\n"),),
        why="A job that is cancelled while a full pass plans its start is started after the acknowledgement.",
    ),
    Planted(
        name="stale_plan_starts_held_job",
        rule=3,
        file=_START,
        old="""\
    if not may_wait(job):
        return f"not eligible ({job.reason.value})"
""",
        new="",
        why="A job that is held while a full pass plans its start is started after the acknowledgement.",
    ),
    Planted(
        name="stale_plan_starts_cancelled_task",
        rule=3,
        needs=("arrays",),
        file=_START,
        old="if task_id is None or not mask_of(job.array.pending) >> task_id & 1:",
        new="if task_id is None:",
        why="A task of an array that is cancelled, or started, while a full pass plans its start is started all the"
        " same.",
    ),
    Planted(
        name="stale_plan_starts_on_drained_node",
        rule=2,
        needs=("operators",),
        file=_START,
        old="""\
        if not takes_jobs(node, resumes=state.settings.power.resumes):
            return f"node {name} not available"
""",
        new="",
        why="A job starts on a node after its drain was acknowledged, if its start was planned before.",
    ),
    Planted(
        name="stale_plan_runs_into_reservation",
        rule=3,
        needs=("reservations",),
        file=_START,
        old='        if other is not None:\n            return f"node {share.node} is reserved ({other.name})"\n',
        new="        if other is not None and other.active(now):\n"
        '            return f"node {share.node} is reserved ({other.name})"\n',
        why="A start that was planned before a reservation was made runs into the reservation's time.",
    ),
    Planted(
        name="throttle_off_by_one",
        rule=3,
        needs=("arrays",),
        file=_START,
        old="state.arrays_running.get(job.id, 0) >= job.array.limit",
        new="state.arrays_running.get(job.id, 0) > job.array.limit",
        also=(
            Edit(
                "scheduling/plan/decisions.py",
                "if limit and self.snapshot.array_running.get(array_id, 0) + begun >= limit:",
                "if limit and self.snapshot.array_running.get(array_id, 0) + begun > limit:",
            ),
        ),
        why="One task more than --array=...%N permits runs at once.",
    ),
    Planted(
        name="cpus_overlap_in_part",
        rule=3,
        file=_USE,
        old="if cpus & use.cpus and not sharing:",
        new="if not cpus & ~use.cpus and not sharing:",
        why="A planned start is refused only if all its CPUs are in use: after a quick pass has taken some of them, two"
        " jobs have the same CPU.",
    ),
    Planted(
        name="memory_of_others_not_counted",
        rule=3,
        file=_USE,
        old="if share.memory_mib and use.memory_mib + share.memory_mib > usable_memory_mib(capacity):",
        new="if share.memory_mib > usable_memory_mib(capacity):",
        why="A planned start does not count the memory that other jobs have taken since: a node gives out more memory"
        " than it has.",
    ),
    Planted(
        name="gpus_by_count",
        rule=3,
        needs=("gpus",),
        file=_USE,
        old="if mask & ~devices or mask & busy or mask.bit_count() != gres.count:",
        new="if mask & ~devices or busy.bit_count() + gres.count > devices.bit_count():",
        why="GPUs of a planned start are compared by number, not by index: one that another job has taken since has two"
        " owners.",
    ),
    # -- limits and licenses
    Planted(
        name="running_jobs_off_by_one",
        rule=3,
        needs=("accounting", "limits"),
        file=_CHECK,
        old="                if ledger.use(key).jobs >= limit:",
        new="                if ledger.use(key).jobs > limit:",
        why="One job more than MaxJobsPerUser of a QOS permits runs at once.",
    ),
    Planted(
        name="array_counts_as_one_submission",
        rule=3,
        needs=("accounting", "limits", "arrays"),
        file=_CHECK,
        old="if ledger.use(key).submitted + count > limit:",
        new="if ledger.use(key).submitted >= limit:",
        why="An array passes MaxSubmitJobs of a QOS if there is room for one of its tasks.",
    ),
    Planted(
        name="records_counted_one_by_one",
        rule=3,
        defect="b3",
        needs=("accounting", "limits"),
        file="core/decide/waiting/update.py",
        old="draft(context, selected.job, changes, command.priority_now, Move(moves, selected.tasks.bit_count()))",
        new="draft(context, selected.job, changes, command.priority_now,"
        " Move(context.state.ledger.fork(), selected.tasks.bit_count()))",
        why="An update that moves several records of a job to another QOS is checked for each alone: together they"
        " exceed its limit on submission.",
    ),
    Planted(
        name="number_of_licenses_ignored",
        rule=3,
        needs=("licenses",),
        file="model/rules/licenses.py",
        old="self.taken.get(name, 0) + kept.get(name, 0) + count <= self.total.get(name, 0)",
        new="self.taken.get(name, 0) + kept.get(name, 0) < self.total.get(name, 0)",
        why="A job that asks for several licenses starts if one is left.",
    ),
    # -- ends
    Planted(
        name="nodes_free_at_the_end_of_the_job",
        rule=3,
        kinds=("undying processes",),
        file=_APPLY,
        old="""\
        if share.node in staying:
            use.completing[job.id] = None
        else:
            use.give_back(job.id)
            state.left_node(share.node, event.at)
""",
        new="""\
        use.give_back(job.id)
        if share.node not in staying:
            state.left_node(share.node, event.at)
""",
        also=(
            Edit(
                "scheduling/view/changes/jobs.py",
                "nodes = tuple([share for share in allocation.nodes if share.node in names])",
                "nodes = ()",
            ),
        ),
        why="CPUs are given to the next job while processes of a cancelled one still take their KillWait to die.",
    ),
    Planted(
        name="silent_node_taken_for_lost",
        rule=3,
        kinds=("cut both ways", "partition", "power loss", "stop"),
        file=_ENDING,
        old="node.state is NodeState.DOWN or bool(node.flags & AWAY)",
        new="node.state is NodeState.DOWN or bool(node.flags & (AWAY | NodeFlag.NOT_RESPONDING))",
        also=(
            Edit(
                _ENDING,
                "from spritz.model.states import JobFlag, JobState, NodeState\n",
                "from spritz.model.states import JobFlag, JobState, NodeFlag, NodeState\n",
            ),
        ),
        why="A job that ends while its node does not respond leaves the node at once: when the node is back, the next"
        " job meets the processes of the first.",
    ),
    Planted(
        name="complete_with_the_first_node",
        rule=6,
        needs=("several nodes",),
        file=_APPLY,
        old="    completing = tuple(name for name in job.completing if name != event.node)\n",
        new="    completing: tuple[str, ...] = ()\n",
        why="A job is taken for gone when its first node is: the others are never given back.",
    ),
    Planted(
        name="late_report_of_a_step",
        rule=3,
        kinds=("cut both ways", "cut one way", "reset", "stop", "half open"),
        needs=("requeue",),
        file=_REPORTS,
        old="return step if step is not None and step.restart_count == life else None",
        new="return step",
        why="A repeated report about the script of an earlier life, on the same node, ends the present one: the job has"
        " an exit code that its script never had.",
    ),
    Planted(
        name="late_report_of_a_gone_job",
        rule=3,
        kinds=("cut both ways", "cut one way", "reset", "stop", "half open"),
        needs=("requeue",),
        file=_REPORTS,
        old="if job is not None and node in job.completing and job.completing_life == life:",
        new="if job is not None and node in job.completing:",
        why="A repeated report that an earlier life has left a node frees it while processes of the next one still die"
        " there.",
    ),
    Planted(
        name="last_node_tells_the_exit_code",
        rule=3,
        needs=("srun", "several nodes"),
        file=_REPORTS,
        old="    total = max(step.exit_status, status)\n",
        new="    total = status\n",
        why="A step that failed on one node has the exit code of the node that reports last.",
    ),
    Planted(
        name="hold_lost_by_requeue",
        rule=3,
        needs=("requeue",),
        file=_ENDING,
        old="""\
    if hold is Hold.NONE:
        hold = job.hold  # set while it ran: `scontrol hold` of a running job is for its next life
""",
        new="",
        why="A hold that was acknowledged while the job ran is lost when it is requeued, and the job starts.",
    ),
    Planted(
        name="requeue_keeps_the_life",
        rule=3,
        kinds=("cut both ways", "partition", "power loss", "stop"),
        needs=("requeue",),
        file=_ENDING,
        old="restart_count=job.restart_count + 1,",
        new="restart_count=job.restart_count + (not gone),",
        why="A job that lost its node is queued again with the same number of its life: the same step is launched"
        " twice, and a node that had it refuses it.",
    ),
    Planted(
        name="kept_records_of_arrays",
        rule=5,
        needs=("arrays",),
        file=_APPLY,
        old="""\
    state.put_job(job)
    if job.array_job_id:
        _refresh_array(state, job)
    if job.het_job_id:
        _refresh_components(state, job)


def _without_former_life(
""".rstrip(),
        new="""\
    state.put_job(job)
    if job.het_job_id:
        _refresh_components(state, job)


def _without_former_life(
""".rstrip(),
        why="Tasks that ended before the last of their array have no deadline for being forgotten: records pile up.",
    ),
    Planted(
        name="task_ids_given_again",
        rule=3,
        # Controllers forget jobs early in runs with accounting alone.
        needs=("accounting", "arrays"),
        file=_APPLY,
        old="    _use_number(state, event.job_id)\n    pending = mask_of(array.array.pending)",
        new="    pending = mask_of(array.array.pending)",
        why="The id of an array's task is given again after its record is forgotten: two jobs have one id, and their"
        " scripts are launched as the same life.",
    ),
    # -- dependencies
    Planted(
        name="dependent_meets_processes",
        rule=3,
        needs=("dependencies",),
        file=_DEPENDENCY,
        old="return job.state.ended and not job.flags & COMPLETING",
        new="return job.state.ended",
        why="A job that is submitted with a dependency on one that is COMPLETING starts while that one's processes are"
        " still there.",
    ),
    Planted(
        name="one_task_is_enough",
        rule=3,
        needs=("dependencies", "arrays"),
        file=_DEPENDENCY,
        old="all(job.state is JobState.COMPLETED for job in members)",
        new="any(job.state is JobState.COMPLETED for job in members)",
        why="afterok of an array is fulfilled if one of its tasks succeeded.",
    ),
    Planted(
        name="requeue_fulfils_dependencies",
        rule=3,
        kinds=("cut both ways", "partition", "power loss", "stop"),
        needs=("dependencies", "requeue"),
        file=_ENDING,
        old="if not completing and not ended.flags & COMPLETING and not requeued:",
        new="if not completing and not ended.flags & COMPLETING:",
        why="When a job loses its node and is requeued, jobs that wait for its end are released, or never satisfied,"
        " although it runs again.",
    ),
    # -- requests
    Planted(
        name="array_is_its_last_record",
        rule=2,
        needs=("arrays",),
        file="core/decide/arrays.py",
        old="return [Selected(state.jobs[member]) for member in array_members(state, job_id)]",
        new="return [Selected(state.jobs[member]) for member in array_members(state, job_id)[-1:]]",
        why="An acknowledged cancel or hold of an array leaves out the tasks that have records of their own.",
    ),
    Planted(
        name="some_tasks_are_all",
        rule=2,
        needs=("arrays",),
        file="core/decide/arrays.py",
        old="selected.append(Selected(array_record, 0 if pending & ~wanted == 0 else pending & wanted))",
        new="selected.append(Selected(array_record))",
        why="A cancel, hold or release of some tasks of an array is carried out for all tasks that wait.",
    ),
    Planted(
        name="stale_note_hides_a_hold",
        rule=2,
        file="core/decide/starting/plan.py",
        old="if job is None or job.state is not JobState.PENDING or job.reason in CORE_REASONS:",
        new="if job is None or job.state is not JobState.PENDING:",
        why="The notes of a full pass that began before a hold was acknowledged replace the reason that squeue shows.",
    ),
    # -- suspension
    Planted(
        name="resumed_by_its_first_node",
        rule=3,
        needs=("suspend", "several nodes"),
        file=_GANG,
        old="state.uses[share.node].cpus for share in state.held_shares(job))",
        new="state.uses[share.node].cpus for share in state.held_shares(job)[:1])",
        why="A suspended job is resumed as soon as its CPUs on its first node are free, and meets other jobs on the"
        " second.",
    ),
    Planted(
        name="limit_passes_while_suspended",
        rule=5,
        needs=("suspend",),
        file=_GANG,
        old="ends_at=job.ends_at + seconds if job.ends_at else 0.0,",
        new="ends_at=job.ends_at,",
        why="The time limit of a resumed job does not move by its suspension: it is ended before it has had its time.",
    ),
    Planted(
        name="limit_moved_twice",
        rule=5,
        needs=("suspend",),
        file=_GANG,
        old="ends_at=job.ends_at + seconds if job.ends_at else 0.0,",
        new="ends_at=job.ends_at + 2 * seconds if job.ends_at else 0.0,",
        why="The time limit of a resumed job moves by twice its suspension: its deadline comes late.",
    ),
    Planted(
        name="time_slice_not_moved",
        rule=5,
        needs=("gang",),
        file=_GANG,
        old="at=context.now, next_at=context.now + state.settings.preemption.slice_seconds if waiting else 0.0",
        new="at=context.now, next_at=state.next_slice_at if waiting else 0.0",
        why="The end of a time slice stays due: jobs are suspended and resumed in each turn of the loop.",
    ),
    # -- steps
    Planted(
        name="ended_step_made_again",
        rule=3,
        kinds=("kill", "kill inside a write", "power inside a write", "disk slow", "kill at a callback"),
        needs=("srun",),
        file="core/decide/running/steps.py",
        old="next((step for step in live if step.spec.io_key == io_key), None) or state.ended_steps.get(io_key)",
        new="next((step for step in live if step.spec.io_key == io_key), None)",
        why="srun repeats a request whose answer was lost; if its step was short and has ended, it runs a second time.",
    ),
    Planted(
        name="ports_of_the_first_node",
        rule=3,
        needs=("srun", "ports", "several nodes"),
        file="core/step/ports.py",
        old="        for node in nodes\n        for job_id in",
        new="        for node in nodes[:1]\n        for job_id in",
        why="Ports are reserved by what is free on a step's first node: on the second another step has them.",
    ),
    Planted(
        name="gpus_of_steps_by_count",
        rule=3,
        needs=("srun", "gpus"),
        file="core/step/job_nodes.py",
        old="""\
        if not self.shared:
            self.mask &= ~mask
        self.count -= item.count
""",
        new="""\
        self.count -= item.count
""",
        why="A step gets the lowest GPUs of its job, whichever other steps have: two steps have one GPU.",
    ),
)
