"""Starting a task: what happens in the forked child until it is the user's program.

Source: srun(1), sbatch(1), setresuid(2), slurm.conf(5) TaskProlog.
Nothing of the user's is touched before the child is the user, completely and irrevocably.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import stat
import termios
from typing import NoReturn

from spritz.notation.octets import octets
from spritz.stepd.reactor import close_in_child
from spritz.stepd.resources.usage import expose_to_oom_killer
from spritz.stepd.spec import Identity, SupervisorSpec, TaskSpec
from spritz.stepd.tasks import namespaces

#: Where standard streams of a task come from and go to: descriptors of the parent.
Streams = tuple[int, int, int]


def start_task(
    spec: SupervisorSpec, task: TaskSpec, environment: dict[bytes, bytes], streams: Streams, kept: int = -1
) -> int:
    """Fork the task; its process id. The working directory is the caller's own. `kept`: one more descriptor for it.

    Raises OSError if no process can be made.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        if kept >= 0:
            os.set_inheritable(kept, True)
        _become_task(spec, task, environment, streams)
    except BaseException as error:  # the child must never return into the supervisor's loop
        say(f"slurmstepd: error: task {task.task_id} could not be started: {error}")
    finally:
        os._exit(1)


def _become_task(spec: SupervisorSpec, task: TaskSpec, environment: dict[bytes, bytes], streams: Streams) -> NoReturn:
    close_in_child()
    os.setsid()
    if spec.pty and os.isatty(streams[0]):
        fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
    for descriptor, source in enumerate(streams):
        os.dup2(source, descriptor, inheritable=True)
    expose_to_oom_killer()
    if spec.hosts_file:
        namespaces.enter(spec.hosts_file, spec.node)
    if spec.private_dirs:
        directory = os.getcwd()
        namespaces.cover(spec.private_dirs, shared=spec.private_shared)
    if task.cpus:
        bind(task.cpus)
    if spec.nice:
        os.nice(spec.nice)
    apply_limits(spec.limits)
    become(spec.identity)
    if spec.private_dirs:
        _return_to(directory)
    os.umask(spec.umask)
    environment[b"SLURM_TASK_PID"] = b"%d" % os.getpid()
    for program in spec.task_prologs:
        run_task_prolog(program, environment)
    execute(task.argv, environment)


def _return_to(directory: str) -> None:
    """The working directory was found among the machine's directories: it may lie below one that is covered now."""
    try:
        os.chdir(directory)
    except OSError as error:
        say(f"slurmstepd: error: couldn't chdir to `{directory}': {error.strerror}: going to /tmp instead")
        os.chdir("/tmp")  # where Slurm goes


def bind(cpus: tuple[int, ...]) -> None:
    """Run on these CPUs only. A machine that does not let us goes on unbound, as Slurm's task/affinity does."""
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        say(f"slurmstepd: error: sched_setaffinity: {error.strerror}")


def apply_limits(limits: tuple[tuple[str, int], ...]) -> None:
    """Set soft limits as they were where the job was submitted; hard ones are raised only where that is allowed."""
    for name, soft in limits:
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is None:
            continue
        wanted = resource.RLIM_INFINITY if soft < 0 else soft
        _, hard = resource.getrlimit(number)
        beyond = hard != resource.RLIM_INFINITY and (wanted == resource.RLIM_INFINITY or wanted > hard)
        try:
            resource.setrlimit(number, (wanted, wanted if beyond else hard))
        except (OSError, ValueError):
            say(limit_refused(name, soft))


def limit_refused(name: str, soft: int) -> str:
    """The message about a limit that cannot be set."""
    value = "'unlimited'" if soft < 0 else f"{soft} bytes"
    return f"slurmstepd: error: Can't propagate RLIMIT_{name} of {value} from submit host"


def may_become(identity: Identity) -> bool:
    """Whether this process has the rights to become this user, as `become` checks before it changes anything."""
    try:
        _need_numbers(identity)
        _need_right(identity)
    except PermissionError:
        return False
    return True


def become(identity: Identity) -> None:
    """Be that user for good. Raises OSError if we may not, and PermissionError if there is a way back."""
    _need_numbers(identity)
    _need_right(identity)
    if os.geteuid() != 0:
        return
    os.setgroups(identity.groups)
    os.setresgid(identity.gid, identity.gid, identity.gid)
    os.setresuid(identity.uid, identity.uid, identity.uid)
    if identity.uid == 0:
        return
    try:
        os.setuid(0)
    except OSError:
        return
    raise PermissionError(errno.EPERM, "privileges could not be dropped")


def _need_numbers(identity: Identity) -> None:
    """-1 would mean "as it is" to the kernel: root's."""
    if identity.uid < 0 or identity.gid < 0 or any(group < 0 for group in identity.groups):
        raise PermissionError(errno.EPERM, f"not a user: uid {identity.uid}, gid {identity.gid}")


def _need_right(identity: Identity) -> None:
    """Only root acts for others."""
    if os.geteuid() not in (0, identity.uid):
        raise PermissionError(errno.EPERM, f"slurmd runs as user {os.geteuid()} and cannot run jobs of {identity.uid}")


class AsUser:
    """Be the user within a `with` block, as far as files are concerned; a process of one user stays as it is."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._switch = os.geteuid() == 0 and identity.uid != 0
        self._groups: list[int] = []

    def __enter__(self) -> None:
        _need_numbers(self._identity)
        _need_right(self._identity)
        if self._switch:
            self._groups = os.getgroups()
            os.setgroups(self._identity.groups)
            os.setegid(self._identity.gid)
            os.seteuid(self._identity.uid)

    def __exit__(self, *error: object) -> None:
        if self._switch:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(self._groups)


def run_task_prolog(program: str, environment: dict[bytes, bytes]) -> None:
    """Run it as the user; `export NAME=value`, `unset NAME` and `print text` on its output have effect.

    Where it fails the task is not started, and ends with its status.

    Source: slurm.conf(5) TaskProlog.
    """
    reader, writer = os.pipe()
    name = octets(program)
    prolog_environment = environment | {b"SLURM_SCRIPT_CONTEXT": b"prolog_task"}
    try:
        pid = os.posix_spawn(name, [name], prolog_environment, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)])
    except OSError as error:
        os.close(reader)
        os.close(writer)
        say(f"slurmstepd: error: run_command: task_prolog can not be executed ({program}) {error.strerror}")
        _end_for_prolog(1)
    os.close(writer)
    with open(reader, "rb") as output:
        output_bytes = output.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        _end_for_prolog(max(status, 1))
    printed = apply_task_prolog(output_bytes, environment)
    if printed:
        os.write(1, printed)


def _end_for_prolog(status: int) -> NoReturn:
    say(f"slurmstepd: error: TaskProlog failed status={status}")
    os._exit(status)


def apply_task_prolog(output: bytes, environment: dict[bytes, bytes]) -> bytes:
    """Change `environment` as the lines say; what is to be printed on the task's standard output."""
    printed = b""
    for line in output.split(b"\n"):
        verb, _, argument = line.lstrip().partition(b" ")
        argument = argument.lstrip()
        if verb == b"print":
            printed += argument + b"\n"
        elif verb == b"unset":
            environment.pop(argument.strip(), None)
        elif verb == b"export":
            name, equals, value = argument.partition(b"=")
            if equals:
                environment[name.strip()] = value.strip()
    return printed


def find_program(name: str, environment: dict[bytes, bytes]) -> bytes:
    """Path of a program as a shell finds it in the task's PATH; `name` itself where it finds none, or has none.

    Source: srun(1) --export=NONE: a program must be named by its path then.
    """
    wanted = octets(name)
    if b"/" in wanted:
        return os.path.join(os.getcwdb(), wanted)
    for directory in path_of(environment):
        path = os.path.join(directory or b".", wanted)
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode) and os.access(path, os.X_OK):
            return path
    return wanted


def path_of(environment: dict[bytes, bytes]) -> list[bytes]:
    """The directories in which programs are looked for."""
    return environment[b"PATH"].split(b":") if b"PATH" in environment else []


def execute(argv: tuple[str, ...], environment: dict[bytes, bytes]) -> NoReturn:
    """Become the program. If that fails say so as Slurm does, and exit with the error's number."""
    if not argv:
        say("slurmstepd: error: execve(): no command for this task")
        os._exit(errno.EINVAL)
    program = find_program(argv[0], environment)
    try:
        os.execve(program, [octets(argument) for argument in argv], environment)
    except OSError as error:
        say(execve_failed(program, error.errno or 1))
        os._exit(error.errno or 1)
    except ValueError as error:  # a NUL byte in an argument or variable
        say(f"slurmstepd: error: execve(): {os.fsdecode(program)}: {error}")
        os._exit(errno.EINVAL)


def execve_failed(program: bytes, error: int) -> str:
    """The message about a program that cannot be executed; `error` is the error's number."""
    what = _missing_interpreter(program) if error == errno.ENOENT else ""
    return f"slurmstepd: error: execve(): {what or os.fsdecode(program)}: {os.strerror(error)}"


def _missing_interpreter(program: bytes) -> str:
    """`bad interpreter(/nosuch)` if the file is there and its `#!` line names a program that is not; else ""."""
    try:
        # Another file may be there by now: a FIFO without a writer.
        with open(os.open(program, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            line = file.readline(256)
    except OSError:
        return ""
    words = line[2:].split(None, 1) if line.startswith(b"#!") else []
    return f"bad interpreter({os.fsdecode(words[0])})" if words else ""


def say(text: str, descriptor: int = 2) -> None:
    """A line on the task's standard error."""
    try:
        os.write(descriptor, octets(text) + b"\n")
    except OSError:
        pass  # nowhere to say it: the exit status still tells
