"""A server's own start. The launcher starts one behind the first call; root's is started by hand or by its unit.

Source: docs/decisions/0040.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from socket import AF_UNIX, SOCK_STREAM, SOL_SOCKET, socket

from spritz import installed
from spritz.cli.server.request import PROTOCOL
from spritz.cli.server.sources import Sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

BACKLOG = 4096
#: Without a call for so long a job's server gives its memory back to the job.
JOB_IDLE_SECONDS = "60"
#: where the server of all users listens
SYSTEM_DIRECTORY = "/run/spritz"
#: socket(7), since Linux 5.14
_SO_NETNS_COOKIE = 71
_KEPT = ("HOME", "PATH", "LC_ALL", "LANG", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH")


def entry() -> None:
    """`--directory DIR --name NAME --lock DESCRIPTOR --installed FILE [--idle SECONDS] [--job yes]`, from the launcher
    alone.

    FILE may be relative to where the caller is: nothing else of that place is for the server.
    """
    words = sys.argv[1:]
    given = dict(zip(words[::2], words[1::2], strict=True))
    script = sys.argv[0] = os.path.abspath(given["--installed"])
    os.chdir("/")
    lock = int(given["--lock"])
    os.set_inheritable(lock, False)
    directory = open_directory(given["--directory"], others=False)
    in_job = "--job" in given
    if in_job:
        remove_left_over(directory)
    idle = given.get("--idle", "") or (JOB_IDLE_SECONDS if in_job else "")
    _serve(directory, given["--name"], lock, script, system=False, idle=idle, in_job=in_job)


def entry_system() -> None:
    """The server of all users, in the foreground, until it is stopped or something else is installed."""
    if os.geteuid() != 0:
        sys.exit("spritz-command: error: only root can serve all users")
    from fcntl import LOCK_EX, LOCK_NB, flock

    os.makedirs(SYSTEM_DIRECTORY, 0o755, exist_ok=True)
    directory = open_directory(SYSTEM_DIRECTORY, others=True)
    script = os.path.abspath(sys.argv[0]) if "/" in sys.argv[0] else installed.command("spritz-command")
    name = socket_name(script)
    lock = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        flock(lock, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        sys.exit(f"spritz-command: error: a server has {SYSTEM_DIRECTORY}/{name} already")
    os.umask(0o077)
    os.chdir("/")
    # Its surroundings are nobody's: every call brings its own.
    for variable in list(os.environ):
        if variable not in _KEPT:
            del os.environ[variable]
    _serve(directory, name, lock, script, system=True, idle="inf", in_job=False)


def remove_left_over(directory: int) -> None:
    """Sockets and locks of which no server holds the lock: jobs end, and their servers are killed with them."""
    from fcntl import LOCK_EX, LOCK_NB, flock

    for name in os.listdir(directory):
        if not name.endswith(".lock"):
            continue
        try:
            lock = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        except OSError:
            continue
        try:
            flock(lock, LOCK_EX | LOCK_NB)
            for left in (name.removesuffix(".lock"), name):
                os.unlink(left, dir_fd=directory)
        except OSError:
            pass  # it is held, or another server was faster
        finally:
            os.close(lock)


def _serve(directory: int, name: str, lock: int, script: str, *, system: bool, idle: str, in_job: bool) -> None:
    # Before the first import of what it is to hold.
    sources = Sources()
    is_installed = installation_check(script)

    from spritz.cli.server import warm
    from spritz.cli.server.keeper import IDLE_SECONDS, Keeper
    from spritz.cli.server.users import UsersKeeper

    commands = warm.commands()
    sources.complete(warm.loaded_files())
    _name_process()
    path = f"/proc/self/fd/{directory}/{name}"
    listener = listen(path, mode=0o666 if system else 0o600)
    is_there = socket_check(directory, name)
    (UsersKeeper if system else Keeper)(
        listener,
        directory,
        name,
        lock,
        commands,
        sources,
        is_current=lambda: is_installed() and is_there(),
        idle_seconds=float(idle or IDLE_SECONDS),
        tells_stops=not in_job,
    ).run()
    os._exit(0)


def socket_name(script: str, python_path: str = "") -> str:
    """What the launcher beside that script calls its socket: `launcher/place.c` has the same."""
    info = os.stat(script)
    seconds, nanoseconds = divmod(info.st_mtime_ns, 10**9)
    stamp = f"{info.st_dev:x}:{info.st_ino:x}:{seconds:x}.{nanoseconds:x}"
    mixed = PROTOCOL + b"\0" + stamp.encode() + python_path.encode()
    mixed += _surroundings()
    found = 0xCBF29CE484222325
    for byte in mixed:
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"commands-{found:016x}"


def _surroundings() -> bytes:
    """Root directory, mounts, network and host name of this process; `mix_surroundings` of the launcher."""
    root = _identity("/")
    with socket(AF_UNIX, SOCK_STREAM) as probe:
        try:
            network = probe.getsockopt(SOL_SOCKET, _SO_NETNS_COOKIE, 8)
        except OSError:
            return root + b"".join(_identity(f"/proc/self/ns/{kind}") for kind in ("mnt", "net", "pid", "user", "uts"))
    return root + network + struct.pack("=Q", _root_mount()) + os.uname().nodename.encode()


def _identity(path: str) -> bytes:
    info = os.stat(path)
    return struct.pack("=QQ", info.st_dev, info.st_ino)


def _root_mount() -> int:
    """The number of the mount that `/` is on, as statx(2) has it; proc_pid_fdinfo(5)."""
    root = os.open("/", os.O_PATH)
    try:
        with open(f"/proc/self/fdinfo/{root}", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("mnt_id:"))
    finally:
        os.close(root)


def open_directory(path: str, *, others: bool) -> int:
    """A descriptor of the directory for the socket. Raises PermissionError if it is not ours alone.

    With `others` they may look into it.
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    info = os.fstat(directory)
    if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & (0o022 if others else 0o077):
        raise PermissionError(1, "not a directory of this user alone", path)
    return directory


def listen(path: str, *, mode: int) -> socket:
    """A listening socket of that name; whoever holds the lock may take the place of a dead one."""
    # Nobody is to meet one that does not listen yet, or that others may not use.
    beginning = f"{path}.new"
    try:
        os.unlink(beginning)
    except FileNotFoundError:
        pass
    listener = socket(AF_UNIX, SOCK_STREAM)
    listener.bind(beginning)
    os.chmod(beginning, mode)
    listener.listen(BACKLOG)
    os.rename(beginning, path)
    return listener


def installation_check(path: str) -> Callable[[], bool]:
    """Whether that file is still the one that it is now."""

    def identity() -> tuple[int, int, int] | None:
        try:
            info = os.stat(path)
        except OSError:
            return None
        return info.st_dev, info.st_ino, info.st_mtime_ns

    first = identity()
    return lambda: identity() == first


def socket_check(directory: int, name: str) -> Callable[[], bool]:
    """Whether the socket under that name is still the one that it is now: another server may have taken its place."""

    def identity() -> tuple[int, int] | None:
        try:
            info = os.stat(name, dir_fd=directory)
        except OSError:
            return None
        return info.st_dev, info.st_ino

    first = identity()
    return lambda: identity() == first


def _name_process() -> None:
    """What ps and top show."""
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write("spritz-commands")
    except OSError:
        pass
