"""Machines on a network, made of namespaces: each has an address, a host name, /run, /tmp and /etc/hosts of its own.

    with Lan() as lan:
        a, b = lan.machine("a"), lan.machine("b")
        a.run("spritz", "up", "--listen")
        b.start("slurmd", "-D")                 # ends with the machine
        lan.cut(b)                              # its cable; `lan.mend(b)`
        b.drop("10.77.0.1")                     # what goes there is lost without a word; `b.admit()`

The bridge stands in a namespace of its own, so that nothing of it shows on the machine that runs the tests. Files are
shared as over NFS, but for /run, /tmp, /etc/slurm and what is below `Machine.own`. Homes of users are shared too.
Abstract Unix sockets belong to network namespaces, as on real machines. Leaving the block kills every process that is
in one of the namespaces, and with the last one the namespace and its links are gone. Files stay until the run ends.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import pytest

from tests.e2e.cluster import until

#: Network of the machines; those behind a router have one each, 10.78.N.0/24.
NETWORK = "10.77.0"

#: Of every command that must end.
PATIENCE_SECONDS = 100.0

_SCRIPTS = sysconfig.get_path("scripts")

#: What `unshare` does in a machine before it waits: its directories, then word that it is ready.
_PREPARE = """
set -e
hostname "$NAME"
ip link set lo up
mkdir -p "$OWN/run" "$OWN/tmp" "$OWN/slurm"
chmod 1777 "$OWN/tmp"
echo "$KEPT" | while read -r path; do
    if [ -n "$path" ]; then mkdir -p "$OWN$path"; mount --bind "$path" "$OWN$path"; fi
done
if [ "$SHARED" != /tmp ]; then mount --rbind "$OWN/tmp" /tmp; fi
mount --bind "$OWN/run" /run
mount --bind "$HOSTS" /etc/hosts
if [ -d /etc/slurm ]; then mount --bind "$OWN/slurm" /etc/slurm; fi
echo ready
exec sleep infinity
"""


def kept_below_tmp(*paths: str | Path) -> list[str]:
    """The directories, of these and of what is installed, that a /tmp of its own would hide from a machine.

    Those within another one are left out. Symbolic links are followed.
    """
    root = Path(__file__).resolve().parents[2]
    wanted = sorted({os.path.realpath(path) for path in (*paths, root, sys.prefix, sys.base_prefix, sys.exec_prefix)})
    kept: list[str] = []
    for path in wanted:
        if path.startswith("/tmp/") and not any(path.startswith(f"{outer}/") for outer in kept):
            kept.append(path)
    return kept


def missing() -> str:
    """Why there can be no machines here; "" if there can."""
    if os.geteuid() != 0:
        return "needs root: machines are namespaces"
    for program in ("unshare", "nsenter", "ip", "mount"):
        if shutil.which(program) is None:
            return f"needs {program}"
    probe = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "ip", "link", "add", "probe", "type", "bridge"],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if probe.returncode == 0 else f"no namespaces here: {probe.stderr.strip()}"


def need_nft() -> None:
    """Skip the test where packets cannot be filtered or translated."""
    if shutil.which("nft") is None:
        pytest.skip("needs nft (Debian: nftables)")


class Namespace:
    """A process that holds a network, a host name and mounts."""

    def __init__(self, name: str, script: str, environ: dict[str, str]) -> None:
        self.name = name
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "--propagation", "private", "sh", "-c", script],
            env={"PATH": os.environ["PATH"], "NAME": name} | environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None, "it was piped"
        line = self._holder.stdout.readline()
        assert line == "ready\n", f"namespace {name} did not begin: {line}"
        self.pid = self._holder.pid
        self._network = os.readlink(f"/proc/{self.pid}/ns/net")

    def enter(self, *command: str) -> list[str]:
        """The command line that runs a command inside, as root."""
        return ["nsenter", "--target", str(self.pid), "--net", "--uts", "--mount", "--", *command]

    def do(self, *command: str) -> str:
        """Run a command inside that must succeed; what it printed."""
        done = subprocess.run(self.enter(*command), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{self.name}: {command}: {done.stderr}{done.stdout}"
        return done.stdout

    def processes(self) -> list[int]:
        """Everything that runs in its network."""
        found = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and os.readlink(f"/proc/{name}/ns/net") == self._network:
                    found.append(int(name))
            except OSError:
                continue
        return found

    def kill(self, *, holder: bool) -> None:
        """End what runs inside, at once; with the `holder` the namespace itself."""
        while left := [pid for pid in self.processes() if holder or pid != self.pid]:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            if holder:
                self._holder.wait()
            time.sleep(0.005)
        if holder and self._holder.stdout is not None:
            self._holder.stdout.close()


class Machine(Namespace):
    """One machine. `address` is where others reach it ("" behind a router); `own` is a directory of its own."""

    def __init__(self, name: str, address: str, own: Path, hosts: Path, shared: Path) -> None:
        own.mkdir()
        own.chmod(0o755)
        kept = "\n".join(kept_below_tmp(shared))
        given = {"OWN": str(own), "HOSTS": str(hosts), "SHARED": os.path.realpath(shared), "KEPT": kept}
        super().__init__(name, _PREPARE, given)
        self.address = address
        self.own = own
        #: environment of every command here, in addition to HOME and USER
        self.environ = {
            "PATH": f"{_SCRIPTS}:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "SPRITZ_NO_SERVER": "1",
            "STATE_DIRECTORY": str(own / "lib"),
        }
        self._children: list[subprocess.Popen[bytes]] = []

    def command(self, *command: str, user: str = "root") -> list[str]:
        """The command line that runs a command here as a user."""
        if user == "root":
            return self.enter(*command)
        entry = pwd.getpwnam(user)
        return self.enter("setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--init-groups", *command)

    def environment(self, user: str = "root", **more: str) -> dict[str, str]:
        """Of a user's commands here."""
        home = pwd.getpwnam(user).pw_dir if user != "root" else str(self.own)
        return self.environ | {"HOME": home, "USER": user, "LOGNAME": user} | more

    def run(
        self,
        *command: str,
        user: str = "root",
        timeout: float = PATIENCE_SECONDS,
        stdin: str | None = None,
        **environ: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, as this user. `environ`: further variables."""
        given: dict[str, object] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        return subprocess.run(  # type: ignore[call-overload, no-any-return]  # options by name
            self.command(*command, user=user),
            env=self.environment(user, **environ),
            cwd="/tmp",
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            **given,
        )

    def out(self, *command: str, user: str = "root", **environ: str) -> str:
        """What a command prints that must succeed."""
        done = self.run(*command, user=user, timeout=PATIENCE_SECONDS, stdin=None, **environ)
        assert done.returncode == 0, f"{self.name}: {command}: {done.returncode}\n{done.stderr}{done.stdout}"
        return done.stdout

    def start(self, *command: str, user: str = "root", log: str = "", **environ: str) -> subprocess.Popen[bytes]:
        """Start a process that stays; its output goes to `own`/`log`. It ends with the machine."""
        with open(self.own / (log or f"{Path(command[0]).name}.out"), "ab") as output:
            child = subprocess.Popen(
                self.command(*command, user=user),
                env=self.environment(user, **environ),
                cwd="/tmp",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._children.append(child)
        return child

    def crash(self) -> None:
        """Everything that runs here is gone at once, as when the power fails; the disk and the address stay."""
        self.kill(holder=False)
        for path in ("run", "tmp"):
            for left in (self.own / path).iterdir():
                if not os.path.ismount(left) and left.is_file():
                    left.unlink()
        self._reap()

    def drop(self, address: str) -> None:
        """Packets to and from there are lost from now on, as by a firewall. Needs nft."""
        need_nft()
        self.do("nft", "add table inet spritz")
        for hook, field in (("input", "saddr"), ("output", "daddr")):
            self.do("nft", f"add chain inet spritz {hook} {{ type filter hook {hook} priority 0 ; }}")
            self.do("nft", f"add rule inet spritz {hook} ip {field} {address} drop")

    def admit(self) -> None:
        """End of `drop`."""
        self.do("nft", "delete table inet spritz")

    def close(self) -> None:
        """End it."""
        self.kill(holder=True)
        self._reap()

    def _reap(self) -> None:
        for child in self._children:
            child.kill()  # it may have been about to enter, and was not found inside
            child.wait()
        self._children.clear()


class Talk:
    """A command that runs on a machine, with its input in the test's hands; it ends with the machine."""

    def __init__(self, machine: Machine, conf: str, name: str, command: tuple[str, ...]) -> None:
        self._output = machine.own / f"{name}.said"
        with self._output.open("wb") as output:
            self.child = subprocess.Popen(
                machine.command(*command),
                env=machine.environment(SLURM_CONF=conf),
                cwd="/tmp",
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )

    def said(self) -> str:
        """Its output so far."""
        return self._output.read_text()

    def write(self, text: str) -> None:
        """To its input."""
        assert self.child.stdin is not None
        self.child.stdin.write(text.encode())
        self.child.stdin.flush()

    def status(self, seconds: float) -> int:
        """End its input, and wait for its exit status."""
        assert self.child.stdin is not None
        self.child.stdin.close()
        return self.child.wait(seconds)

    def close(self) -> None:
        """End it, if it has not ended."""
        self.child.kill()
        self.child.wait()
        assert self.child.stdin is not None
        with suppress(BrokenPipeError):
            self.child.stdin.close()


class Lan:
    """The network, and its machines. `shared` is a directory that all of them see."""

    def __init__(self) -> None:
        reason = missing()
        if reason:
            pytest.skip(reason)
        self.shared = Path(tempfile.gettempdir())
        self.root = Path(tempfile.mkdtemp(prefix="lan-"))
        self.root.chmod(0o755)
        self.machines: dict[str, Machine] = {}
        self._routers: list[Namespace] = []
        self._hosts = self.root / "hosts"
        self._hosts.write_text("127.0.0.1 localhost\n::1 localhost\n")
        self._switch = Namespace(
            "switch", "ip link add br0 type bridge && ip link set br0 up && echo ready && exec sleep infinity", {}
        )

    def __enter__(self) -> Lan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            sys.stderr.write(self.logs())
        for machine in self.machines.values():
            machine.close()
        for namespace in (*self._routers, self._switch):
            namespace.kill(holder=True)

    def machine(self, name: str, *, behind_nat: bool = False) -> Machine:
        """A machine more. `behind_nat`: it reaches the others, and none of them reaches it (needs nft)."""
        number = len(self.machines) + 1
        address = "" if behind_nat else f"{NETWORK}.{number}"
        if not behind_nat:
            with self._hosts.open("a") as hosts:
                hosts.write(f"{address} {name}\n")
        machine = Machine(name, address, self.root / name, self._hosts, self.shared)
        self.machines[name] = machine
        if behind_nat:
            self._route(machine, number)
        else:
            self._plug(machine, f"{name[:8]}p", f"{address}/24")
        return machine

    def cut(self, machine: Machine) -> None:
        """Pull the cable: what is sent is lost, and no connection hears of it."""
        self._switch.do("ip", "link", "set", f"{machine.name[:8]}p", "nomaster")

    def mend(self, machine: Machine) -> None:
        """Plug it in again."""
        self._switch.do("ip", "link", "set", f"{machine.name[:8]}p", "master", "br0")

    def logs(self) -> str:
        """The ends of all logs that the machines wrote."""
        texts = []
        for path in sorted(self.root.rglob("*")):
            if path.is_file() and path.suffix in (".log", ".out"):
                text = path.read_text(errors="replace")
                texts.append(f"--- {path.relative_to(self.root)}\n{text[-6000:]}\n")
        return "".join(texts)

    def _plug(self, namespace: Namespace, port: str, address: str) -> None:
        switch = self._switch
        switch.do("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(namespace.pid))
        switch.do("ip", "link", "set", port, "master", "br0", "up")
        namespace.do("ip", "address", "add", address, "dev", "eth0")
        namespace.do("ip", "link", "set", "eth0", "up")

    def _route(self, machine: Machine, number: int) -> None:
        need_nft()
        router = Namespace(f"{machine.name}-router", "echo ready && exec sleep infinity", {})
        self._routers.append(router)
        self._plug(router, f"{machine.name[:8]}p", f"{NETWORK}.{number}/24")
        router.do("ip", "link", "add", "inner", "type", "veth", "peer", "name", "eth0", "netns", str(machine.pid))
        router.do("ip", "address", "add", f"10.78.{number}.1/24", "dev", "inner")
        router.do("ip", "link", "set", "inner", "up")
        machine.do("ip", "address", "add", f"10.78.{number}.2/24", "dev", "eth0")
        machine.do("ip", "link", "set", "eth0", "up")
        machine.do("ip", "route", "add", "default", "via", f"10.78.{number}.1")
        router.do("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        router.do("nft", "add table ip nat")
        router.do("nft", "add chain ip nat post { type nat hook postrouting priority 100 ; }")
        router.do("nft", "add rule ip nat post oifname eth0 masquerade")


def eventually(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Poll until it is true."""
    until(condition, what, seconds)
