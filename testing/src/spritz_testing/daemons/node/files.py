"""The disks of a simulated machine, in memory: what node daemons and step supervisors keep there, and what is lost.

Stands for the parts of `os`, `open` and `shutil` that `spritz.node` and `stepd.record` use. Power loss leaves what a
journaling file system leaves (ext4, data=ordered): names change in the order of the calls, and the last of them are
lost together; a file that was not synced has its old content, the new one, or the beginning of that. `fsync` of any
file makes all names before it durable. File systems in memory (/run, /dev/shm, /tmp) are empty after it.

Source: fsync(2); https://docs.kernel.org/filesystems/ext4/journal.html.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections import deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any

from spritz_testing.daemons.system import threads
from spritz_testing.daemons.system.world import ProcessKilled

if TYPE_CHECKING:
    from spritz_testing.daemons.system.world import Host

#: Seconds after which the kernel has written changes of names, and the content of files.
_NAMES_SECONDS = 5.0
_CONTENT_SECONDS = 30.0

#: File systems in memory, and their numbers; all else is on the disk.
_MEMORY = {"run": 2, "dev": 3, "tmp": 4}
_DISK = 1
_DIRECTORY, _FILE = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o600
_SOCKET = stat.S_IFSOCK | 0o777

#: First number of a simulated descriptor.
_FIRST_DESCRIPTOR = 10_000


class Inode:
    """A file, a directory or a socket. `durable`: content that was synced."""

    __slots__ = ("data", "device", "durable", "entries", "links", "listener", "mode", "mtime", "written_at")

    def __init__(self, mode: int, device: int, now: float) -> None:
        self.mode = mode
        self.device = device
        self.mtime = now
        self.data = bytearray()
        self.durable = b""
        #: when the content was first changed after the last sync
        self.written_at = 0.0
        self.entries: dict[str, Inode] = {}
        self.links = 1
        #: of a socket: who accepts connections
        self.listener: Any = None

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


class _Open:
    __slots__ = ("at", "inode")

    def __init__(self, inode: Inode) -> None:
        self.inode = inode
        self.at = 0


def _apply(names: Iterable[tuple[Inode, str, Inode | None]]) -> None:
    for parent, name, inode in names:
        if inode is None:
            parent.entries.pop(name, None)
        else:
            parent.entries[name] = inode


class Files:
    """All file systems of one host, with the faults of its disk."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.world = host.world
        #: errno of every write to the disk; 0: it works. ENOSPC lets names be removed; others do not
        self.error = 0
        #: seconds that each write, sync or change of a name takes
        self.slow_seconds = 0.0
        self._random = host.world.random(f"disk {host.name}")
        self._root = Inode(_DIRECTORY, _DISK, host.wall())
        self._simulation = str(host.world.root)
        self._open: dict[int, _Open] = {}
        self._last_descriptor = _FIRST_DESCRIPTOR
        #: changes of names that are not durable yet: (when, what undoes it)
        self._journal: deque[tuple[float, Callable[[], None]]] = deque()
        #: files with content that is not durable, by id
        self._dirty: dict[int, Inode] = {}
        self._make_memory()

    def _make_memory(self) -> None:
        for name, device in _MEMORY.items():
            self._root.entries[name] = Inode(_DIRECTORY, device, self.host.wall())
        self._root.entries["dev"].entries["shm"] = Inode(_DIRECTORY, _MEMORY["dev"], self.host.wall())

    # Faults

    def lose_power(self) -> None:
        """What was not durable may be gone, and what was in memory is."""
        self._open.clear()
        self._forget_old_changes()
        for _ in range(self._random.randint(0, len(self._journal))):
            self._journal.pop()[1]()
        self._journal.clear()
        for inode in self._dirty.values():
            if inode.written_at > self.world.now - _CONTENT_SECONDS:
                inode.data[:] = self._surviving(inode)
            inode.durable = bytes(inode.data)
        self._dirty.clear()
        self._make_memory()

    def sync(self) -> None:
        """Everything becomes durable, as when the machine goes down in order."""
        for inode in list(self._dirty.values()):
            self._sync(inode)
        self._journal.clear()

    def _surviving(self, inode: Inode) -> bytes:
        """The content of a file that was not synced: the old, the new, or the beginning of what was appended."""
        fate = self._random.random()
        if fate < 0.35:
            return inode.durable
        if fate < 0.7:
            return bytes(inode.data)
        return bytes(inode.data[: self._random.randint(min(len(inode.durable), len(inode.data)), len(inode.data))])

    def _forget_old_changes(self) -> None:
        while self._journal and self._journal[0][0] < self.world.now - _NAMES_SECONDS:
            self._journal.popleft()

    def _may_write(self, inode: Inode, path: str = "", *, removes: bool = False) -> None:
        """Raises OSError where the disk refuses a change; slow disks take their time.

        Raises ProcessKilled for code of a dead process: what it does when its wait breaks off would not have happened.
        """
        if self.world.current is not None and not self.world.current.is_alive:
            raise ProcessKilled
        if inode.device != _DISK:
            return
        if self.slow_seconds:
            threads.sleep(self.slow_seconds)
        number = self.error
        if not number and not removes and self.world.faults("spool full"):
            number = errno.ENOSPC
        if number and not (removes and number == errno.ENOSPC):
            raise OSError(number, os.strerror(number), path or None)

    # Names

    def find(self, path: str) -> Inode:
        """Raises FileNotFoundError, NotADirectoryError."""
        inode = self._root
        for name in self._names(path):
            if not inode.is_directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            child = inode.entries.get(name)
            if child is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            inode = child
        return inode

    def _names(self, path: str) -> list[str]:
        """Components. What is below the directory of the simulation is on this host's disk, wherever that is."""
        path = os.fspath(path)
        if path.startswith(self._simulation):
            path = path[len(self._simulation) :]
        return [name for name in posixpath.normpath(path).split("/") if name and name != "."]

    def _place(self, path: str) -> tuple[Inode, str]:
        """The directory that holds a name, and the name."""
        directory, _, name = path.rpartition("/")
        parent = self.find(directory or "/")
        if not parent.is_directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return parent, name

    def _set(self, *changes: tuple[Inode, str, Inode | None]) -> None:
        """Change names, all or none: (directory, name, what it is from now on). Until that is durable, a power loss may
        undo it.
        """
        before = [(parent, name, parent.entries.get(name)) for parent, name, _ in changes]
        _apply(changes)
        for parent, _, _ in changes:
            parent.mtime = self.host.wall()
        if changes[0][0].device == _DISK:
            self._journal.append((self.world.now, lambda: _apply(before)))
            self._forget_old_changes()

    def _new(self, path: str, mode: int) -> Inode:
        parent, name = self._place(path)
        if name in parent.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._may_write(parent, path)
        inode = Inode(mode, parent.device, self.host.wall())
        self._set((parent, name, inode))
        return inode

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._new(path.rstrip("/"), _DIRECTORY)

    def makedirs(self, path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        names = self._names(path)
        for count in range(1, len(names) + 1):
            part = "/" + "/".join(names[:count])
            try:
                self.mkdir(part)
            except FileExistsError:
                if count == len(names) and not exist_ok:
                    raise

    def bind(self, path: str, listener: Any) -> None:
        """Name a listening socket. Raises FileExistsError if the name is taken."""
        self._new(path, _SOCKET).listener = listener

    def link(self, source: str, target: str) -> None:
        inode = self.find(source)
        parent, name = self._place(target)
        if name in parent.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        if parent.device != inode.device:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), target)
        self._may_write(parent, target)
        inode.links += 1
        self._set((parent, name, inode))

    def unlink(self, path: str) -> None:
        parent, name = self._place(path)
        inode = parent.entries.get(name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if inode.is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._may_write(parent, path, removes=True)
        inode.links -= 1
        self._set((parent, name, None))

    def rmdir(self, path: str) -> None:
        parent, name = self._place(path)
        inode = parent.entries.get(name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not inode.is_directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if inode.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._may_write(parent, path, removes=True)
        self._set((parent, name, None))

    def rmtree(self, path: str, ignore_errors: bool = False) -> None:
        """As shutil's, with `ignore_errors`."""
        try:
            for name, inode in list(self.find(path).entries.items()):
                below = f"{path}/{name}"
                if inode.is_directory:
                    self.rmtree(below, ignore_errors)
                else:
                    self.unlink(below)
            self.rmdir(path)
        except OSError:
            if not ignore_errors:
                raise

    def rename(self, source: str, target: str) -> None:
        parent, name = self._place(source)
        inode = parent.entries.get(name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        to, new = self._place(target)
        if to.device != parent.device:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), target)
        there = to.entries.get(new)
        if there is not None and there.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        self._may_write(parent, target)
        if there is not None:
            there.links -= 1
        if not inode.is_directory and id(inode) in self._dirty and there is not None:
            self._sync(inode)  # ext4 writes what replaces another file (auto_da_alloc)
        self._set((to, new, inode), (parent, name, None))

    def listdir(self, path: str) -> list[str]:
        inode = self.find(path)
        if not inode.is_directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        names = list(inode.entries)
        self._random.shuffle(names)
        return names

    def stat(self, path: str | int, **_: Any) -> SimpleNamespace:
        inode = self._open[path].inode if isinstance(path, int) else self.find(path)
        return SimpleNamespace(
            st_mode=inode.mode,
            st_dev=inode.device,
            st_mtime=inode.mtime,
            st_size=len(inode.data),
            st_nlink=inode.links,
            st_uid=threads.world().running.uid,
            st_ino=id(inode),
        )

    def statvfs(self, path: str) -> SimpleNamespace:
        self.find(path)
        return SimpleNamespace(f_flag=0, f_blocks=1 << 20, f_frsize=4096)

    # Descriptors

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT:
            try:
                inode = self._new(path, _FILE)
            except FileExistsError:
                if flags & os.O_EXCL:
                    raise
                inode = self.find(path)
        else:
            inode = self.find(path)
        if stat.S_ISSOCK(inode.mode):
            raise OSError(errno.ENXIO, os.strerror(errno.ENXIO), path)
        if flags & os.O_TRUNC and inode.data:
            self._truncate(inode, 0)
        self._last_descriptor += 1
        self._open[self._last_descriptor] = _Open(inode)
        return self._last_descriptor

    def close(self, descriptor: int) -> None:
        if self._open.pop(descriptor, None) is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def inode(self, descriptor: int) -> Inode:
        return self._opened(descriptor).inode

    def _opened(self, descriptor: int) -> _Open:
        found = self._open.get(descriptor)
        if found is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return found

    def read(self, descriptor: int, size: int) -> bytes:
        found = self._opened(descriptor)
        data = bytes(found.inode.data[found.at : found.at + size])
        found.at += len(data)
        return data

    def write(self, descriptor: int, data: Any) -> int:
        found = self._opened(descriptor)
        count = self.pwrite(descriptor, data, found.at)
        found.at += count
        return count

    def pwrite(self, descriptor: int, data: Any, at: int) -> int:
        inode = self._opened(descriptor).inode
        self._may_write(inode)
        self._touch(inode)
        inode.data[at : at + len(data)] = data
        return len(data)

    def _touch(self, inode: Inode) -> None:
        inode.mtime = self.host.wall()
        if id(inode) not in self._dirty and inode.device == _DISK:
            inode.written_at = self.world.now
            self._dirty[id(inode)] = inode
            if len(self._dirty) > 256:
                self._write_back()

    def _write_back(self) -> None:
        for inode in list(self._dirty.values()):
            if inode.written_at < self.world.now - _CONTENT_SECONDS:
                self._sync(inode)

    def _sync(self, inode: Inode) -> None:
        inode.durable = bytes(inode.data)
        self._dirty.pop(id(inode), None)

    def truncate(self, path: str, length: int) -> None:
        inode = self.find(path)
        self._may_write(inode, path)
        self._truncate(inode, length)

    def _truncate(self, inode: Inode, length: int) -> None:
        """The length is changed as a name is: in order with these."""
        before, content = inode.durable, bytes(inode.data)
        inode.data[length:] = b"\0" * max(0, length - len(inode.data))
        inode.durable = inode.durable[:length]
        inode.mtime = self.host.wall()

        def undo() -> None:
            inode.durable = before
            inode.data[:] = content

        if inode.device == _DISK:
            self._journal.append((self.world.now, undo))

    def fsync(self, descriptor: int) -> None:
        """Content of the file, and all names so far, become durable."""
        inode = self._opened(descriptor).inode
        if inode.device != _DISK:
            return
        if self.slow_seconds:
            threads.sleep(self.slow_seconds)
        if self.error or self.world.faults("fsync fails"):
            number = self.error or errno.EIO
            raise OSError(number, os.strerror(number))
        self._sync(inode)
        self._journal.clear()

    def fchmod(self, descriptor: int, mode: int) -> None:
        self._opened(descriptor)


class _File:
    """As what `open` gives, for small files."""

    def __init__(self, files: Files, path: str, mode: str) -> None:
        self._files = files
        self._is_text = "b" not in mode
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if "w" in mode else os.O_RDONLY
        self._descriptor = files.open(path, flags)

    def read(self) -> Any:
        data = self._files.read(self._descriptor, 1 << 30)
        return data.decode() if self._is_text else data

    def write(self, text: Any) -> int:
        return self._files.write(self._descriptor, text.encode() if self._is_text else text)

    def flush(self) -> None:
        pass

    def fileno(self) -> int:
        return self._descriptor

    def __enter__(self) -> _File:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close(self._descriptor)


# What stands for `open`, `os.path`, `os` and `shutil`, on the host whose process runs.


def here() -> Files:
    """The files of the host whose process runs."""
    files: Files = threads.world().running.host.machine.files
    return files


def open_here(path: str, mode: str = "r", buffering: int = -1, **_: Any) -> _File:
    return _File(here(), path, mode)


def _exists(path: str) -> bool:
    try:
        here().find(path)
    except OSError:
        return False
    return True


def _is_directory(path: str) -> bool:
    try:
        return here().find(path).is_directory
    except OSError:
        return False


class _Path:
    """Stands for the module `os.path`."""

    exists = staticmethod(_exists)
    isdir = staticmethod(_is_directory)
    realpath = staticmethod(posixpath.normpath)
    abspath = staticmethod(posixpath.normpath)

    def __getattr__(self, name: str) -> Any:
        return getattr(posixpath, name)


#: functions of `os` that `Files` has
_ON_FILES = frozenset(
    {"mkdir", "makedirs", "rmdir", "unlink", "rename", "link", "listdir", "stat", "statvfs", "open", "close", "read"}
    | {"write", "pwrite", "truncate", "fsync", "fchmod"}
)


class Os:
    """Stands for the module `os`. What is not here is the real module's."""

    path = _Path()

    def __getattr__(self, name: str) -> Any:
        return getattr(here(), name) if name in _ON_FILES else getattr(os, name)

    @staticmethod
    def lstat(path: str) -> SimpleNamespace:
        return here().stat(path)

    @staticmethod
    def fstat(descriptor: int) -> SimpleNamespace:
        return here().stat(descriptor)

    @staticmethod
    def replace(source: str, target: str) -> None:
        here().rename(source, target)

    @staticmethod
    def geteuid() -> int:
        return threads.world().running.uid

    @staticmethod
    def getpid() -> int:
        return threads.world().running.pid

    @staticmethod
    def getpriority(which: int, who: int) -> int:
        return 0

    @staticmethod
    def getloadavg() -> tuple[float, float, float]:
        return (0.0, 0.0, 0.0)

    @staticmethod
    def sched_getaffinity(pid: int) -> set[int]:
        return {0}  # the rest is the jobs': a daemon that starts few steps at a time lets others wait

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin"}


class Shutil:
    """Stands for the module `shutil`."""

    @staticmethod
    def rmtree(path: str, ignore_errors: bool = False) -> None:
        here().rmtree(path, ignore_errors)
