"""Faults of the node daemon: its machine, its agent, the spool, reports and forwarding."""

from __future__ import annotations

from tests.simulation.planted.entry import Planted

_MACHINE = "node/machine.py"
_AGENT = "node/agent.py"
_REPORTER = "node/reporter.py"

FAULTS = (
    Planted(
        name="previous_term_accepted",
        rule=4,
        kinds=("order delayed",),
        file=_MACHINE,
        old="if term < self.term:",
        new="if term < self.term - 1:",
        why="A node carries out orders of the controller before the present one, which was stopped and goes on after a"
        " takeover.",
    ),
    Planted(
        name="term_not_learned_at_registration",
        rule=4,
        kinds=("order delayed",),
        file=_AGENT,
        old="here.machine.term = max(here.machine.term, term)",
        new="here.machine.term = here.machine.term or term",
        why="Between its registration with a new controller and that one's first order a node obeys the old one.",
    ),
    Planted(
        name="ended_step_launched_again",
        rule=3,
        kinds=("answer lost",),
        file=_MACHINE,
        old="""\
        if key in self._ended:
            return []
        # Of a life that is gone no step was here by this key, so no report of it will come: it is refused, and the
        # controller takes the launch for failed.
        if life in self._gone:
""",
        new="""\
        if life in self._gone:
""",
        why="A launch that is repeated because its answer was lost starts a short step of a job that is still there a"
        " second time.",
    ),
    Planted(
        name="running_step_launched_again",
        rule=3,
        kinds=("answer lost",),
        file=_MACHINE,
        old="elif key.step_id in entry.steps or any(_key(queued) == key for queued in entry.queued):",
        new="elif any(_key(queued) == key for queued in entry.queued):",
        why="A launch that is repeated because its answer was lost starts a running step again, or reports that it has"
        " failed while it runs.",
    ),
    Planted(
        name="late_launch_ignores_suspension",
        rule=3,
        kinds=("program fails",),
        needs=("suspend",),
        file=_MACHINE,
        old="return [start, SuspendStep(key, resume=False)] if entry.suspended else [start]",
        new="return [start]",
        why="A step whose launch arrives after its job was suspended runs beside the job that has its CPUs.",
    ),
    Planted(
        name="gone_with_steps_left",
        rule=3,
        kinds=("undying processes",),
        file=_MACHINE,
        old='if not entry.over or entry.steps or entry.queued or entry.prolog == "running":',
        new='if not entry.over or entry.queued or entry.prolog == "running":',
        why="The node reports a job as gone when it is told to end it: its CPUs are given to another job while its"
        " processes die.",
    ),
    Planted(
        name="unacknowledged_ends_not_told",
        rule=3,
        kinds=("slurmd lost at a point", "cut both ways"),
        file=_MACHINE,
        old="return (*here, *waiting, *unacknowledged)",
        new="return (*here, *waiting)",
        why="A node that registers before the report of a script's end is acknowledged does not name it: the job counts"
        " as lost, and is requeued or fails, though it succeeded.",
    ),
    Planted(
        name="result_removed_before_it_is_stored",
        rule=3,
        kinds=("slurmd lost at a point",),
        needs=("spool",),
        file=_MACHINE,
        old="return [*actions, Send(_with_job_gone(result))]",
        new="return [*actions, Send(_with_job_gone(result)), RemoveSpool(key)]",
        why="The result of a script is removed from the spool when it is sent: if slurmd is killed before the"
        " controller has it, a successful job counts as lost.",
    ),
    Planted(
        name="boot_taken_for_a_killed_supervisor",
        rule=3,
        kinds=("power loss", "reboot"),
        defect="A7",
        needs=("reboot", "spool"),
        file=_MACHINE,
        old='error_kind=ENDED_BY_BOOT if booted else "unkillable" if unkillable else "supervisor",',
        new='error_kind="unkillable" if unkillable else "supervisor",',
        why="A job whose machine died is FAILED by signal 9, an end that no node saw, and not requeued.",
    ),
    Planted(
        name="written_result_ignored",
        rule=3,
        kinds=("supervisor lost at a point",),
        needs=("spool",),
        file=_AGENT,
        old="""\
        written = spools.read_record(link.directory)
        if written is not None and written.result is not None:
            self._carry_out(here, here.machine.noticed_end(link.key, written.result))
            return
        self._log.error("supervisor.died",
""".rstrip(),
        new="""\
        self._log.error("supervisor.died",
""".rstrip(),
        why="A supervisor that is killed after it has written its step's result counts as killed before: a successful"
        " job fails by signal 9.",
    ),
    Planted(
        name="found_result_not_reported",
        rule=6,
        kinds=("slurmd lost at a point", "restart"),
        needs=("spool",),
        file=_AGENT,
        old="""\
                if step.result is not None:
                    self._result_written(here, step.key, step.result)
                    continue
""",
        new="""\
                if step.result is not None:
                    continue
""",
        why="A result that lies in the spool when slurmd starts is not reported: its job runs until its time limit.",
    ),
    Planted(
        name="cancelled_step_starts_in_its_turn",
        rule=3,
        kinds=("slow starts",),
        needs=("many nodes of one daemon",),
        file=_AGENT,
        old="""\
            if self._starting.get((here.machine.node, starting.action.key)) is starting:
                self._try(here, starting)
""",
        new="""\
            self._try(here, starting)
""",
        why="A step that was cancelled while it waited for others to start is started when its turn comes.",
    ),
    Planted(
        name="cancelled_step_starts_after_its_pause",
        rule=3,
        kinds=("memory full",),
        needs=("scarce memory",),
        file=_AGENT,
        old="""\
        elif starting is not None and isinstance(order, control.Terminate):
            self._give_up(here, starting, "cancelled before it could start")
""",
        new="",
        why="A step that could not start for lack of memory, and was cancelled meanwhile, starts at the next attempt.",
    ),
    Planted(
        name="full_spool_loses_results",
        rule=3,
        kinds=("spool full", "spool broken"),
        defect="A6",
        needs=("spool",),
        file=_AGENT,
        old="""\
        if report.unstored:
            self._carry_out(here, here.machine.noticed_end(link.key, result))
""",
        new="""\
        if report.unstored:
            self._carry_out(here, here.machine.noticed_death(link.key))
""",
        why="A result that could not be written, since the spool is full, is dropped: a successful job fails by signal"
        " 9.",
    ),
    Planted(
        name="report_lost_with_its_connection",
        rule=6,
        kinds=("answer lost", "reset", "cut both ways"),
        file=_REPORTER,
        old="""\
            except ConnectionLost:
                return
""",
        new="""\
            except ConnectionLost:
                self._pending.pop(number, None)
                return
""",
        why="A report that is under way when the connection breaks is dropped: the controller, which may not have heard"
        " it, waits for it for ever.",
    ),
    Planted(
        name="unanswered_report_repeated_at_once",
        rule=5,
        kinds=("disk slow", "stop", "slow link", "slow network"),
        file=_REPORTER,
        old="                await channel.call(report, Done, timeout=_ANSWER_SECONDS)\n",
        new="                await channel.call(report, Done, timeout=0.01)\n",
        why="While the controller or its disk is slow, each report is sent a hundred times a second.",
    ),
    Planted(
        name="nodes_below_a_lost_head",
        rule=6,
        kinds=("answer lost", "stop"),
        needs=("fanout",),
        file="node/forwarding.py",
        old="return _together([Forwarded(unanswered=head.nodes), *await self._without_head(request, below)])",
        new="return Forwarded(unanswered=head.nodes)",
        why="When the head of a branch dies while it has an order, the nodes below it are in no answer and never get"
        " the order.",
    ),
)
