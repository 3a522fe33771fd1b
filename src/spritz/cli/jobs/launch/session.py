"""A run of srun from its options to its exit status: submit a job if necessary, run the step, release the job.

Source: srun(1).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.options import Fatal
from spritz.cli.jobs.launch import allocation
from spritz.cli.jobs.launch.allocation import HARMLESS
from spritz.cli.jobs.launch.controller import Controller, running_on
from spritz.cli.jobs.launch.interrupts import Interrupts, StepSignals
from spritz.cli.jobs.launch.settings import KEYS, Settings
from spritz.cli.jobs.submit import request_context, spec
from spritz.client.command.sync import submit_key
from spritz.client.errors import ClientError, RemoteError
from spritz.client.locate import find_slurm_conf, read_keys
from spritz.model.commands.job import Done, SubmitJob
from spritz.model.errors import SpritzError
from spritz.stepd.reactor import Reactor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from spritz.cli.call.context import Context
    from spritz.cli.jobs.filters.chain import Filters
    from spritz.cli.jobs.launch.listener import Listener
    from spritz.cli.jobs.launch.programs import MultiProg
    from spritz.cli.jobs.launch.run import StepRun
    from spritz.cli.jobs.launch.streams.redirection import Streams
    from spritz.cli.jobs.launch.streams.terminal import Terminal
    from spritz.cli.jobs.submit.values import Values
    from spritz.client.locate import ControllerConfig
    from spritz.model.commands.job import SubmitHetJob
    from spritz.model.commands.step import CreateHetStep, CreateStep
    from spritz.model.job.step import Step, StepSpec
    from spritz.model.queries.allocations import AllocationGranted

_REHOLD_SECONDS = 1.0
#: Exit status of a step whose tasks were killed.
_KILLED = 128 + 9


class Session:
    """A context manager that restores the terminal and closes files on exit."""

    #: CliFilterPlugins, which get the step
    filters: Filters | None = None

    def __init__(self, options: Values, command: list[str], argv: list[str], context: Context, *, inside: bool) -> None:
        self.prepare(options, command, argv, context, inside=inside)
        self.reactor = Reactor()
        self.controller = Controller(self.reactor)
        self.interrupts = Interrupts(self.reactor, lambda number: None)
        #: the user pressed Ctrl-C twice: cancel the job too, if it was submitted for the step
        self._aborted = False
        self._out_of_memory = False
        self._job_id = 0
        #: the allocation that was made for the step
        self._granted: AllocationGranted | None = None
        #: (job id, node) -> why the step could not be started there
        self._launch_errors: dict[tuple[int, str], str] = {}

    def prepare(self, options: Values, command: list[str], argv: list[str], context: Context, *, inside: bool) -> None:
        """Parse options into the request. Makes no change that `__exit__` must undo."""
        if context.environ.get("SLURM_HOSTFILE") and "nodelist" not in options:
            options = {**options, "distribution": "arbitrary"}  # the file overrides any other method: srun(1)
        self.given = options
        self.command = command
        self.argv = argv
        self.context = context
        self.inside = inside
        self.streams: Streams
        self._reports_binding = False
        self._binds = True
        configured = read_keys(KEYS)
        self.settings = Settings(options, configured, context.environ)
        self._tell_binding(configured)
        self.fields = spec.fields_of(options, spec.source_of(context))
        if not self._binds and options["cpu-bind"].lower().partition("cpu:")[0].rpartition(",")[2] in ("map_", "mask_"):
            self.fields["cpu_bind"] = ""  # the step could not bind to CPUs that it does not have
        self.multi_prog: MultiProg = ()
        if "multi-prog" in options:
            self._read_multi_prog()
        self.terminal: Terminal | None = None
        #: --clusters: candidates; the job goes to the cluster that starts it first
        self.clusters: Sequence[ControllerConfig] = ()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.terminal is not None:
            self.terminal.restore()
        self.controller.close()
        self.reactor.close()

    def _read_multi_prog(self) -> None:
        from spritz.cli.jobs.launch.programs import read_multi_prog

        tasks = self.fields["tasks"] if self.fields.get("tasks_given") else None
        assert tasks is None or isinstance(tasks, int), "parsed"
        self.multi_prog, total = read_multi_prog(self.command[0], self.command[1:], tasks, self.context.cwd)
        self.fields["tasks"], self.fields["tasks_given"] = total, True

    def _tell_binding(self, configured: dict[str, str]) -> None:
        """Print a message if the cluster's configuration makes --cpu-bind ineffective."""
        words = self.given.get("cpu-bind", "").lower().replace(";", ",").split(",")
        if configured.get("taskplugin", "task/none").lower() in ("none", "task/none"):
            if "cpu-bind" in self.given:
                self.inform("cluster configuration lacks support for cpu binding")
                self._binds = False
        elif "v" in words or "verbose" in words:
            self._reports_binding = True

    def inform(self, text: str) -> None:
        """Print a message of srun's, unless --quiet."""
        if not self.settings.quiet:
            self.context.info(text)

    def run(self) -> int:
        """Do all of srun's work; return its exit status. Raises SpritzError."""
        self.fit_nodes()
        if self.settings.pty:
            self._find_terminal()
        if self.inside:
            from spritz.cli.jobs.launch.request import job_id_of

            job_id = job_id_of(self.given)
            if self.settings.verbose:
                from spritz.cli.jobs.launch import verbose

                if self.settings.verbose > 1:
                    verbose.report_environment(self.context, self.given.get("propagate"))
                verbose.tell_job_around(self.context, job_id)
            self._check_nodes(job_id)
            return self._run_step(job_id)
        if "relative" in self.given:
            raise Fatal("--relative option invalid for job allocation request")
        return self._run_job()

    def fit_nodes(self) -> None:
        """Reduce the nodes to the number of tasks, and the list of nodes to the maximum number of nodes."""
        for fit in (spec.fewer_nodes, spec.fit_tasks_per_node):
            warning = fit(self.fields)
            if warning:
                self.inform(warning)
        hosts, most = self.fields.get("node_list"), self.fields.get("nodes_max")
        if isinstance(hosts, tuple) and isinstance(most, int) and 0 < most < len(hosts):
            if self.fields.get("distribution") == "arbitrary":  # where each host is the node of a task
                return
            self.context.error(
                "Required nodelist includes more nodes than permitted by max-node count "
                f"({len(hosts)} > {most}). Eliminating nodes from the nodelist."
            )
            self.fields["node_list"] = hosts[:most]

    def _check_nodes(self, job_id: int) -> None:
        """Raises SpritzError, with Slurm's message, if the step requests more nodes than the job has."""
        environ = self.context.environ
        requested, has = self.fields.get("nodes_min"), environ.get("SLURM_JOB_NUM_NODES", "")
        if self.fields.get("nodes_given") and has.isdecimal() and environ.get("SLURM_JOB_ID") == str(job_id):
            assert isinstance(requested, int), "parsed"
            if requested > int(has):
                raise SpritzError(f"Only allocated {has} nodes asked for {requested}", code="ESLURM_INVALID_NODE_COUNT")

    # -- a new job

    def _run_job(self) -> int:
        submit = self.submission()
        if "test-only" in self.given:
            from spritz.cli.jobs.submit.announce import test_only

            return test_only(self.controller, submit, self.context)
        if self.settings.verbose > 1:
            from spritz.cli.jobs.launch import verbose

            verbose.report_environment(self.context, self.given.get("propagate"))
        if self.clusters:
            from spritz.cli.jobs.submit.first_cluster import placed

            submit, _ = placed(self.clusters, submit, self.context)
            self.controller.look_again()
        granted = allocation.obtain(
            self.controller, self.interrupts, submit, self.context, allocation.SRUN, quiet=self.settings.quiet
        )
        job_id = granted.job.id
        if self.settings.verbose:
            from spritz.cli.jobs.launch import verbose

            verbose.tell_jobs(self.context, [component.job for component in granted.components] or [granted.job])
        self.granted(granted)
        self._job_id = job_id
        status = 1
        try:
            if "uid" in self.given:
                request_context.become(granted.job.spec.uid, granted.job.spec.gid)
            status = self._run_step(job_id)
        finally:
            if self._aborted:
                allocation.cancel(self.controller, job_id)
            else:
                ended = status << 8 if status < 128 else status - 128
                allocation.give_back(self.controller, job_id, ended, out_of_memory=self._out_of_memory)
        return status

    def granted(self, granted: AllocationGranted) -> None:
        """Give the step all nodes of the job that was submitted for it."""
        assert granted.job.allocation is not None, "a running job has nodes"
        self._granted = granted
        self.fields["nodes_min"] = self.fields["nodes_max"] = len(granted.job.allocation.nodes)

    def submission(self) -> SubmitJob | SubmitHetJob:
        """The submission of the job for the step."""
        return self.own_submission()

    def own_submission(self) -> SubmitJob:
        """The job request of this part."""
        context = self.context
        fields: dict[str, object] = {
            "name": os.path.basename(self.command[0]),
            "interactive": True,
            "command": self.command[0],
            "submit_line": " ".join(["srun", *self.argv]),
            "submit_host": os.uname().nodename,
            "submit_session": context.session,
            "work_dir": context.cwd,
            "umask": request_context.umask(),
            **self.fields,
        }
        for name in ("stdout", "stderr", "stdin"):
            fields.pop(name, None)
        immediate = self.given.get("immediate")
        return SubmitJob(
            spec=spec.job_spec(fields),
            test_only="test-only" in self.given,
            immediate_seconds=None if immediate is None else spec.immediate_seconds(immediate),
            submit_key=submit_key(),
        )

    # -- the step

    def _run_step(self, job_id: int) -> int:
        from spritz.cli.jobs.launch.create import create
        from spritz.cli.jobs.launch.listener import Listener
        from spritz.cli.jobs.launch.run import StepRun

        context = self.context
        if "bcast" in self.given:
            self._broadcast(job_id)
        listener = Listener()
        request = self.step_request(job_id, listener)
        self.interrupts.handler = self._interrupt_wait
        if failed := self._run_site_program("prolog", self.settings.prolog, job_id):
            context.error(f"srun prolog failed rc = {failed}. Aborting step.")
            listener.close()
            return _KILLED
        created = create(self.controller, request, self.settings, context, immediate="immediate" in self.given)
        step = created.step
        if self.settings.verbose:
            from spritz.cli.jobs.launch import verbose

            verbose.tell_launch(self.context, (step, *created.others), self.settings)
        if self.filters is not None:
            self.filters.after(step.job_id, step.step_id)
        run = StepRun(
            self.reactor,
            listener,
            step,
            self.settings,
            context,
            end_step=lambda number: self._end_step(run, step, number),
            alive=lambda: self._alive((step, *created.others)),
            launch_error=lambda job_id, node: self._launch_errors.get((job_id, node), ""),
            others=created.others,
        )
        signals = self.interrupts.handler = StepSignals(run, on_resize=lambda: self._resized(run))
        self.open_streams(run, step)
        run.report_binding = self._reports_binding
        if "debugger-test" in self.given:
            run.program_of = self._program_of
        if self._job_id:
            self.controller.watch_loss(self._hold_again)
        if self.terminal is not None:
            self.terminal.make_raw()
            run.on_over = self.terminal.restore
        try:
            return run.run()
        finally:
            self._aborted = signals.forced > 0
            self._out_of_memory = run.endings.out_of_memory
            if failed := self._run_site_program("epilog", self.settings.epilog, job_id):
                context.error(f"srun epilog failed status={failed}")

    def _program_of(self, task: int) -> str:
        return next((argv[0] for mask, argv in self.multi_prog if int(mask, 16) >> task & 1), self.command[0])

    def _run_site_program(self, kind: str, program: str, job_id: int) -> int:
        if not program:
            return 0
        from spritz.cli.jobs.launch.site import run_program
        from spritz.cli.jobs.launch.variables import allocation_variables

        variables = {"SLURM_JOB_ID": str(job_id), "SLURM_JOBID": str(job_id)}
        if self._granted is not None:
            variables |= allocation_variables(self._granted, find_slurm_conf())
        return run_program(program, f"{kind}_srun", self.command, variables, self.context)

    def _broadcast(self, job_id: int) -> None:
        """--bcast: copy the program to the nodes, and run the copy. Raises SpritzError."""
        from spritz.cli.jobs.launch.bcast import Copy, broadcast, packs
        from spritz.cli.jobs.launch.foreground import find

        try:
            path = os.path.join(self.context.cwd, find(self.command[0], dict(self.context.environ)))
        except FileNotFoundError as error:
            raise SpritzError(f"Can't open `{self.command[0]}`: {error.strerror}") from error
        default = f"{self.context.cwd}/slurm_bcast_{job_id}_{os.path.basename(path)}"
        destination = os.path.join(self.context.cwd, self.given["bcast"] or default)
        copy = Copy(path, destination, force=True, preserve=True, packed=packs(self.given.get("compress")))
        self.interrupts.handler = self._interrupt_wait
        if broadcast(self.controller, self.reactor, self.interrupts, self.context, job_id, copy):
            raise AlreadyReported
        self.command[0] = destination

    def step_request(self, job_id: int, listener: Listener) -> CreateStep | CreateHetStep:
        """The request that creates the step."""
        from spritz.model.commands.step import CreateStep

        return CreateStep(job_id=job_id, spec=self.step_spec(listener), wait=True)

    def step_spec(self, listener: Listener) -> StepSpec:
        """The specification of the step, or of this part of it."""
        from spritz.cli.jobs.launch import request
        from spritz.cli.jobs.launch.streams.redirection import Streams

        self.streams = Streams(self.given)
        fields = request.size_fields(self.fields, inside=self.inside)
        if not self.inside:
            fields |= {"nodes_min": self.fields["nodes_min"], "nodes_max": self.fields["nodes_max"]}
            if self.fields.get("distribution") == "arbitrary":
                fields["node_list"] = self.fields.get("node_list", ())
        fields |= request.own_fields(self.given, self.command, self.context, inside=self.inside)
        request.check_relative(fields, self.context)
        fields["multi_prog"] = self.multi_prog
        if self.terminal is not None:
            fields |= {"pty_rows": self.terminal.rows, "pty_columns": self.terminal.columns}
        environment = request.step_environment(self.given, self.context, listener)
        return request.step_spec(fields, self.streams, self.settings, listener, environment, self.argv)

    def open_streams(self, run: StepRun, step: Step) -> None:
        """Open the client's files, whose names may contain the step's id."""
        from spritz.cli.jobs.launch.streams.redirection import open_input

        values = self.open_output_files(run, step)
        streams = self.streams
        if streams.stdin_file:
            run.use_input(open_input(streams.stdin_file, values, cwd=self.context.cwd), None)
        elif streams.reads_own:
            run.use_input(0, 0 if self.settings.pty else streams.stdin_task)

    def open_output_files(self, run: StepRun, step: Step) -> dict[str, str | int]:
        """Open this part's output files. Returns the values of the patterns in file names."""
        from spritz.cli.jobs.launch.streams.redirection import open_output

        streams, cwd = self.streams, self.context.cwd
        values: dict[str, str | int] = {
            "A": step.job_id,
            "a": 4294967294,
            "J": f"{step.job_id}.{step.step_id}",
            "j": step.job_id,
            "s": step.step_id,
            "u": _user_name() if "%" in streams.stdout_file + streams.stderr_file else "",
            "x": self.context.environ.get("SLURM_JOB_NAME") or step.spec.name,
        }

        def opened(pattern: str, stream: str) -> int:
            return open_output(
                pattern, values, stream=stream, append=streams.append, cwd=cwd, await_reader=run.await_reader
            )

        stdout, stderr = 1, 2
        if streams.stdout_file:
            stdout = opened(streams.stdout_file, "stdout")
            stderr = stdout if streams.joined else stderr
        if streams.stderr_file:
            stderr = opened(streams.stderr_file, "stderr")
        run.use_output(stdout, stderr, labelled=self.settings.label)
        return values

    def _find_terminal(self) -> None:
        from spritz.cli.jobs.launch.streams.terminal import Terminal

        try:
            self.terminal = Terminal(0)
        except OSError as error:
            self.context.error(f"ioctl(TIOCGWINSZ): {error.strerror}")
            self.context.error("Not using a pseudo-terminal, disregarding --pty option")
            self.settings.pty = False

    def _resized(self, run: StepRun) -> None:
        if self.terminal is not None:
            from spritz.stepd import protocol

            window = protocol.pack_window(*self.terminal.resized())
            for link in run.links:
                link.send(protocol.frame(protocol.WINDOW_SIZE, 0, window))

    # -- the controller meanwhile

    def _interrupt_wait(self, number: int) -> None:
        if number not in HARMLESS:
            self.controller.interrupt(number)

    def _end_step(self, run: StepRun, step: Step, number: int) -> None:
        from spritz.model.commands.step import SignalStep

        ask = SignalStep(job_id=step.job_id, step_id=step.step_id, signal=number, terminate=True)
        try:
            self.controller.call(ask, Done)
        except RemoteError:
            pass  # the step is already ending
        except ClientError:
            run.kill_tasks(0 if number else self.settings.kill_wait_seconds)

    def _alive(self, parts: tuple[Step, ...]) -> set[tuple[int, str]] | None:
        """(job id, node) wherever the step runs; None if the controller does not answer."""
        return running_on(self.controller, parts, self._launch_errors)

    def _hold_again(self) -> None:
        """The connection broke: reconnect, because the controller must know that the job's client is alive."""
        from spritz.model.queries.allocations import AllocationGranted, AwaitAllocation

        try:
            self.controller.call(AwaitAllocation(job_id=self._job_id), AllocationGranted)
        except RemoteError:
            return  # the job has ended; its supervisors will report it
        except ClientError:
            self.reactor.after(_REHOLD_SECONDS, self._hold_again)
            return
        self.controller.watch_loss(self._hold_again)


def _user_name() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
