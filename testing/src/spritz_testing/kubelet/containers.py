"""Starts containers: a command as its user and with its capabilities, in namespaces and on a root of its own.

The root is this machine's, below a layer in memory that takes what the container writes, so it is as in the image at
each start. /proc, /dev, /tmp, /run and /home are the container's own.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from spritz.timeouts import within
from spritz_testing.kubelet import image
from spritz_testing.kubernetes.errors import Object
from spritz_testing.kubernetes.rights import capabilities, identity

#: Before anything else: a layer over this machine's files, and the parts of a root that are never shared.
_ROOT: Final = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs {place}
cd {place}
mkdir upper work root
cp -a {image}/. upper/
mount -t overlay -o lowerdir=/,upperdir={place}/upper,workdir={place}/work overlay root
for each in run tmp home; do mkdir -p root/$each; mount -t tmpfs -o mode=755 tmpfs root/$each; done
chmod 1777 root/tmp
for each in run home; do if [ -d {image}/$each ]; then cp -a {image}/$each/. root/$each/; fi; done
mount -t proc proc root/proc
mount -t sysfs -o ro sysfs root/sys
mount -t tmpfs -o mode=755 tmpfs root/dev
mknod -m 666 root/dev/null c 1 3
mknod -m 666 root/dev/zero c 1 5
mknod -m 666 root/dev/full c 1 7
mknod -m 666 root/dev/random c 1 8
mknod -m 666 root/dev/urandom c 1 9
mknod -m 666 root/dev/tty c 5 0
mkdir root/dev/pts root/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts root/dev/pts
mount -t tmpfs -o mode=1777 tmpfs root/dev/shm
ln -s pts/ptmx root/dev/ptmx
ln -s /proc/self/fd root/dev/fd
ln -s /proc/self/fd/0 root/dev/stdin
ln -s /proc/self/fd/1 root/dev/stdout
ln -s /proc/self/fd/2 root/dev/stderr
"""

#: Mounts are made within the new root, where links such as /var/run lead to its own directories.
_ENTER: Final = """
cd root
mkdir .outer
pivot_root . .outer
cd /
{mounts}
umount -l .outer
rmdir .outer
hostname {hostname}
"""

#: Seconds for a container to begin, on a busy machine.
_PATIENCE: Final = 60.0


class Refused(Exception):
    """The container cannot be started as its manifest says. `reason`: the kubelet's word for it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Mount(msgspec.Struct, frozen=True):
    """A directory or file that a container has at a path."""

    source: Path
    target: str
    read_only: bool = False


class Place(msgspec.Struct):
    """Where the containers of a pod are."""

    directory: Path
    #: the pod's network namespace, by its path
    network: str
    hostname: str
    image: Path


def check(pod: Object) -> None:
    """Raises Refused for what would reach this machine itself."""
    spec = pod["spec"]
    wanted = [name for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    wanted += [f"hostPath {each['name']}" for each in spec.get("volumes") or () if "hostPath" in each]
    every = [*(spec.get("initContainers") or ()), *spec["containers"]]
    wanted += [f"privileged {each['name']}" for each in every if (each.get("securityContext") or {}).get("privileged")]
    if wanted:
        raise Refused("CreateContainerConfigError", f"the kubelet for tests runs no pod with {', '.join(wanted)}")


def expanded(words: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """The words of a command with the variables that they name, as $(NAME); unknown ones stay."""
    return [re.sub(r"\$\((\w+)\)", lambda match: env.get(match[1], match[0]), word) for word in words]


class Container:
    """A container that was started. `wait` returns its exit status."""

    def __init__(
        self, pod: Object, container: Object, env: Mapping[str, str], process: asyncio.subprocess.Process
    ) -> None:
        self._pod = pod
        self._container = container
        self._env = dict(env)
        self._process = process

    @classmethod
    async def start(
        cls, place: Place, pod: Object, container: Object, env: Mapping[str, str], mounts: Sequence[Mount], log: Path
    ) -> Container:
        """Start the container's command. Raises Refused."""
        become = _become(pod["spec"], container)
        command = expanded([*(container.get("command") or ()), *(container.get("args") or ())], env)
        if not command:
            raise Refused("CreateContainerError", "the image's own command is not known here")
        lines = [_ROOT.format(place=shlex.quote(str(place.directory)), image=shlex.quote(str(place.image)))]
        inside = []
        for path in image.parts():
            inside.append(_bound(Mount(path, str(path), read_only=True)))
            inside += [f"chmod o+x {shlex.quote(str(each))}" for each in path.parents if not each.stat().st_mode & 1]
        inside += [_bound(mount) for mount in mounts]
        lines.append(_ENTER.format(hostname=shlex.quote(place.hostname), mounts="\n".join(inside)))
        if (container.get("securityContext") or {}).get("readOnlyRootFilesystem"):
            lines.append("mount -o remount,ro /")
        lines.append(f"cd {shlex.quote(container.get('workingDir') or '/')}")
        lines.append(f'exec {shlex.join(become)} -- "$@"')
        place.directory.mkdir(parents=True, exist_ok=True)
        words = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net={place.network}"]
        words += ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
        with log.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                *words,
                *("sh", "-c", "\n".join(lines), "container", *command),
                env=dict(env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        return cls(pod, container, env, process)

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    async def wait(self) -> int:
        status = await self._process.wait()
        return 128 - status if status < 0 else status

    def first(self) -> int | None:
        """The number by which this machine knows the container's process 1."""
        try:
            text = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        except OSError:
            return None
        return int(text.split()[0]) if text.split() else None

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a command in the container, as `kubectl exec` does."""
        first = self.first()
        if first is None:
            return ["false"]
        become = _become(self._pod["spec"], self._container)
        enter = ["nsenter", "--target", str(first), "--mount", "--uts", "--ipc", "--net", "--pid", "--"]
        return [*enter, *become, "--", *command]

    @property
    def environment(self) -> dict[str, str]:
        return dict(self._env)

    async def run(self, *command: str, text: str = "", seconds: float = 60.0) -> tuple[int, str]:
        """Run a command in the container: its exit status, and what it printed to both outputs."""
        process = await asyncio.create_subprocess_exec(
            *self.inside(command),
            env=self._env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with within(seconds):
                out, _ = await process.communicate(text.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, out.decode(errors="replace")

    async def stop(self, seconds: float) -> None:
        """Send SIGTERM, and SIGKILL if it has not ended after `seconds`."""
        first = self.first()
        if not self.has_ended and first is not None and seconds > 0:
            _signal(first, signal.SIGTERM)
            try:
                async with within(seconds):
                    await self._process.wait()
            except TimeoutError:
                pass
        self.kill()
        await self._process.wait()

    def kill(self) -> None:
        """End all of its processes at once."""
        first = self.first()
        if not self.has_ended:
            _signal(self._process.pid if first is None else first, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _bound(mount: Mount) -> str:
    """Lines that mount a directory or file of this machine, which is at /.outer."""
    source, target = shlex.quote(f"/.outer{mount.source}"), shlex.quote(mount.target)
    if mount.source.is_dir():
        lines = [f"mkdir -p {target}"]
    else:
        lines = [f"mkdir -p {shlex.quote(os.path.dirname(mount.target))}", f"touch {target}"]
    lines.append(f"mount --bind {source} {target}")
    if mount.read_only:
        lines.append(f"mount -o remount,bind,ro {target}")
    return "\n".join(lines)


def _become(spec: Object, container: Object) -> list[str]:
    """The program that becomes the container's user. Raises Refused."""
    uid, gid, groups = identity(spec, container, image.USER)
    own = container.get("securityContext") or {}
    if {**(spec.get("securityContext") or {}), **own}.get("runAsNonRoot") and uid == 0:
        raise Refused("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")
    allowed = "".join(f",+{each.lower()}" for each in capabilities(container))
    words = ["setpriv", f"--reuid={uid}", f"--regid={gid}"]
    words += [f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"]
    words += ["--inh-caps=-all", f"--bounding-set=-all{allowed}"]
    return [*words, *(["--no-new-privs"] if own.get("allowPrivilegeEscalation") is False else [])]
