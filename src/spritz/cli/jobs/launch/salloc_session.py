"""A run of salloc from its options to its exit status: get the allocation, run the command, release the allocation.

Source: salloc(1); texts of Slurm 22.05.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from spritz.cli.jobs.launch import allocation
from spritz.cli.jobs.launch.controller import Controller
from spritz.cli.jobs.launch.interrupts import Interrupts
from spritz.cli.jobs.submit import request_context, spec
from spritz.client.command.sync import submit_key
from spritz.client.errors import ClientError, RemoteError
from spritz.client.locate import WORKING_CLUSTER, find_slurm_conf, locate_controller, read_keys, working_cluster
from spritz.model.commands.job import SubmitHetJob, SubmitJob
from spritz.model.errors import SpritzError
from spritz.notation import signals
from spritz.stepd.reactor import Reactor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spritz.cli.call.context import Context
    from spritz.cli.jobs.filters.chain import Filters
    from spritz.cli.jobs.launch.foreground import Command
    from spritz.cli.jobs.submit.values import Values
    from spritz.client.locate import ControllerConfig
    from spritz.model.queries.allocations import AllocationGranted
    from spritz.model.queries.jobs import JobEndedReply

_KEYS = frozenset(("launchparameters", "interactivestepoptions", "sallocdefaultcommand"))
_INTERACTIVE_STEP = "--interactive --preserve-env --pty $SHELL"
#: Seconds of waiting after which the bell rings.
_BELL_SECONDS = 10.0
_LOOK_AGAIN_SECONDS = 1.0


class Holding:
    """Holds an allocation while a command runs."""

    def __init__(self, options: Values, command: list[str], argv: list[str], context: Context) -> None:
        self.given = options
        self.command = command
        self.argv = argv
        self.context = context
        self.quiet = "quiet" in options
        self.reactor = Reactor()
        self.controller = Controller(self.reactor)
        self.interrupts = Interrupts(self.reactor, lambda number: None)
        #: options of each component of a heterogeneous job (empty: not heterogeneous)
        self.components: list[Values] = []
        #: --clusters: candidates; the job goes to the cluster that starts it first
        self.clusters: list[ControllerConfig] = []
        #: CliFilterPlugins, which get the job id
        self.filters: Filters | None = None
        self._login: dict[str, str] = {}
        #: commands of the allocation may have to speak to another cluster than slurm.conf's
        self._elsewhere = False
        self._status = 1
        self._finished = False
        self._revoked = False
        self._running: Command | None = None
        self._default = not command

    def inform(self, text: str) -> None:
        """Print a message of salloc's, unless --quiet."""
        if not self.quiet:
            self.context.info(text)

    def run(self) -> int:
        """Do all of salloc's work; return its exit status. Raises SpritzError."""
        self._login = self._login_environment()
        contained = self._contained()
        if contained and not _has_interactive_step(read_keys(_KEYS)):
            raise SpritzError(f"--{contained[0][0]} requires LaunchParameters=use_interactive_step")
        if self.command and any(option != "container" for option, _ in contained):
            raise SpritzError(f"--{contained[0][0]}: salloc runs its command here: give the option to srun")
        request = self._request()
        if self.clusters:
            from spritz.cli.jobs.submit.first_cluster import placed

            request, _ = placed(self.clusters, request, self.context)
            self.controller.look_again()
        if "chdir" in self.given:
            self._change_directory()
        began = time.monotonic()
        try:
            granted = allocation.obtain(
                self.controller, self.interrupts, request, self.context, allocation.SALLOC, quiet=self.quiet
            )
        except allocation.Revoked:
            self.inform("Job aborted due to signal")
            return 1
        self._elsewhere = bool(self.clusters) or locate_controller() != locate_controller(find_slurm_conf())
        where = f" on cluster {granted.settings.cluster_name}" if self._elsewhere and granted.job.federation else ""
        self.inform(f"Granted job allocation {granted.job.id}{where}")
        if self.filters is not None:
            for offset in range(len(self.components) or 1):
                self.filters.after(granted.job.id, offset=offset)
        self._ring(time.monotonic() - began)
        if "no-shell" in self.given:
            return 0
        if "uid" in self.given:
            request_context.become(granted.job.spec.uid, granted.job.spec.gid)
        try:
            return self._run_command(granted)
        finally:
            self.controller.close()

    def _change_directory(self) -> None:
        """Apply --chdir, before any request. Raises SpritzError."""
        directory = os.path.join(self.context.cwd, self.given["chdir"])
        try:
            os.chdir(directory)
        except OSError as error:
            raise SpritzError(f"chdir({self.given['chdir']}): {error.strerror}") from error

    def _request(self) -> SubmitJob | SubmitHetJob:
        if not self.components:
            return self._one(self.given)

        return SubmitHetJob(components=tuple(self._one(given) for given in self.components))

    def _one(self, given: Values) -> SubmitJob:
        context = self.context
        fields: dict[str, object] = {
            "name": "no-shell" if "no-shell" in given else "interactive",
            # Without a shell no process holds the allocation, which stays until it is cancelled.
            "interactive": "no-shell" not in given,
            "command": self.command[0] if self.command else "",
            "submit_line": " ".join(["salloc", *self.argv]),
            "submit_host": os.uname().nodename,
            "submit_session": context.session,
            "work_dir": context.cwd,
            "umask": request_context.umask(),
        }
        fields = spec.fields_of(given, spec.source_of(context), defaults=fields)
        warning = spec.fewer_nodes(fields)
        if warning:
            self.inform(warning)
        immediate = given.get("immediate")
        return SubmitJob(
            spec=spec.job_spec(fields),
            immediate_seconds=None if immediate is None else spec.immediate_seconds(immediate),
            submit_key=submit_key(),
        )

    def _ring(self, waited_seconds: float) -> None:
        wanted = "bell" in self.given or (waited_seconds > _BELL_SECONDS and "no-bell" not in self.given)
        if wanted and self.context.stdout.isatty():
            self.context.stdout.write("\a")

    # -- the command

    def _run_command(self, granted: AllocationGranted) -> int:
        job_id = granted.job.id
        self._start(granted)
        if self._running is not None:
            self.interrupts.handler = self._forward
            self.interrupts.on_child = self._running.reap
            self._watch_end(job_id)
            self._running.reap()
            while not self._finished:
                self.reactor.run()
        if not self._revoked:
            self.inform(f"Relinquishing job allocation {job_id}")
            allocation.give_back(self.controller, job_id, self._status << 8)
        return self._status

    def _start(self, granted: AllocationGranted) -> None:
        from spritz.cli.jobs.launch.foreground import Command
        from spritz.cli.jobs.launch.variables import allocation_variables

        environment = {**self.context.environ, **self._login}
        environment |= allocation_variables(granted, find_slurm_conf())
        if "hint" in self.given:
            environment["SLURM_HINT"] = self.given["hint"]
        if self._elsewhere:
            environment[WORKING_CLUSTER] = working_cluster(locate_controller())
        if granted.components:
            from spritz.model.job import het

            environment |= het.variables(granted.components, twice=True)
        if self.given.get("container"):
            environment.setdefault("SLURM_CONTAINER", self.given["container"])
        argv = self.command or default_command(environment, self._contained())
        try:
            self._running = Command(argv, environment, granted.job.spec.work_dir, self._command_ended)
        except FileNotFoundError:
            self.context.error(f'_fork_command: Unable to find command "{argv[0]}"')
        except (OSError, ValueError) as error:
            self.context.error(f'Unable to run "{argv[0]}": {error}')

    def _contained(self) -> list[tuple[str, str]]:
        """(option, value) of the container for the interactive step."""
        names = (name for name in self.given if name == "container" or name.startswith(("container-", "no-container-")))
        return [(name, self.given[name]) for name in names]

    def _login_environment(self) -> dict[str, str]:
        """--get-user-env: the variables of the user's login shell, in place of salloc's own."""
        if "get-user-env" not in self.given:
            return {}
        timeout, mode = request_context.user_env_option(self.given["get-user-env"])
        return request_context.login_environment(self.given.get("uid"), mode=mode, seconds=timeout)

    def _command_ended(self, status: int) -> None:
        self._status = status
        self._finished = True
        self.reactor.stop()

    def _forward(self, number: int) -> None:
        if self._running is not None and number not in allocation.HARMLESS:
            self._running.send(number)

    # -- the allocation meanwhile

    def _watch_end(self, job_id: int) -> None:
        """Subscribe to the allocation's end while the command runs."""
        from spritz.model.queries.jobs import AwaitEnd, JobEndedReply

        try:
            self.controller.listen(
                AwaitEnd(job_id=job_id), JobEndedReply, self._allocation_ended, lambda: self._hold_again(job_id)
            )
        except ClientError:
            self._hold_again(job_id)

    def _hold_again(self, job_id: int) -> None:
        """The connection broke: reconnect, because the controller must know that the job's client is alive."""
        from spritz.model.queries.allocations import AllocationGranted, AwaitAllocation

        try:
            self.controller.call(AwaitAllocation(job_id=job_id), AllocationGranted)
        except RemoteError:
            self._allocation_ended(None)
        except ClientError:
            self.reactor.after(_LOOK_AGAIN_SECONDS, lambda: self._hold_again(job_id))
        else:
            self._watch_end(job_id)

    def _allocation_ended(self, reply: JobEndedReply | None) -> None:
        if self._finished or self._revoked:
            return
        self._revoked = True
        job = f" {reply.job_id}" if reply is not None else ""
        self.inform(f"Job allocation{job} has been revoked.")
        # End the default shell: it has no use without the allocation.
        number = kill_signal(self.given) or (signal.SIGHUP if self._default else 0)
        if number and self._running is not None:
            self._running.send(number)
            self._running.send(signal.SIGCONT)


def default_command(environment: dict[str, str], contained: Sequence[tuple[str, str]] = ()) -> list[str]:
    """salloc's default command: the site's command, an interactive step, or the user's shell.

    Source: slurm.conf(5) SallocDefaultCommand, InteractiveStepOptions, LaunchParameters=use_interactive_step.
    """
    configured = read_keys(_KEYS)
    site = configured.get("sallocdefaultcommand", "")
    if site:
        return ["/bin/sh", "-c", site]
    environment.setdefault("SHELL", _login_shell())
    if _has_interactive_step(configured):
        options = configured.get("interactivestepoptions") or _INTERACTIVE_STEP
        if contained:
            import shlex  # rarely needed

            words = [f"--{name}={value}" if value else f"--{name}" for name, value in contained]
            options = f"{shlex.join(words)} {options}"
        return ["/bin/sh", "-c", f"exec {own_srun()} {options}"]
    return [environment["SHELL"]]


def _has_interactive_step(configured: Mapping[str, str]) -> bool:
    return "use_interactive_step" in configured.get("launchparameters", "").lower()


def _login_shell() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    except KeyError:
        return "/bin/sh"


def kill_signal(options: Values) -> int:
    """The signal of -K; 0 without -K. Raises SpritzError."""
    if "kill-command" not in options:
        return 0
    value = options["kill-command"]
    try:
        return signals.parse_signal(value) if value else signal.SIGTERM
    except signals.SignalError as error:
        raise SpritzError("Invalid --kill-command specification", exit_code=255) from error


def own_srun() -> str:
    """Path of the srun that belongs to this salloc."""
    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "srun")
    return path if os.access(path, os.X_OK) else "srun"
