"""The cluster that the golden cases run on, and what a case may know of it: names, user, paths."""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spritz.runtime.ports import unused_ports

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Shape:
    """A kind of cluster. `name` is a part of its files' names: slurm.NAME.conf.

    `own_hosts`: each node has a UTS namespace with its own host name, for which root is needed. `setup`: commands of
    sacctmgr, without its name, that make the accounts.
    """

    name: str = ""
    nodes: tuple[str, ...] = ("node1", "node2", "node3", "node4")
    accounting: bool = False
    own_hosts: bool = False
    setup: tuple[str, ...] = ()


PLAIN = Shape()
ACCOUNTED = Shape(accounting=True)
#: What a site has: nodes with host names of their own, users, accounts, QOS and limits.
SITE = Shape(
    name="site",
    nodes=tuple(f"node{number}" for number in range(1, 9)),
    accounting=True,
    own_hosts=True,
    setup=(
        "add qos low Priority=1",
        "add qos high Priority=100 Preempt=low",
        "add qos short MaxWall=2:00:00 GrpJobs=4",
        "add account physics,chem",
        "add account theory parent=physics",
        "modify account physics set GrpTRES=cpu=48",
        "add user root account=physics",
        "add user alice account=physics qos+=high,low",
        "add user alice account=chem",
        "add user bob account=chem qos=normal,low,short MaxJobs=3",
        "modify user root set qos+=high,low,short",
    ),
)


@dataclass(frozen=True)
class Cluster:
    """A running cluster: its commands, its slurm.conf, and the words that `! needs` may ask for."""

    binaries: Path
    conf: Path
    has: frozenset[str]


def known_values(conf: Path) -> dict[str, str]:
    """Placeholders with a value from the start: `{user}`, `{uid}`, `{group}`, `{gid}`, `{host}`, `{conf}`."""
    user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(os.getgid())
    return {
        "user": user.pw_name,
        "uid": str(user.pw_uid),
        "group": group.gr_name,
        "gid": str(group.gr_gid),
        "host": socket.gethostname().split(".")[0],
        "conf": str(conf),
    }


def ask(binaries: Path, conf: Path, *argv: str) -> str:
    """Standard output of one command of the cluster; empty where it fails."""
    env = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"{binaries}:{os.environ['PATH']}"}
    try:
        done = subprocess.run(
            [str(binaries / argv[0]), *argv[1:]], env=env, capture_output=True, text=True, timeout=100
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""


def connect(binaries: Path, conf: Path) -> Cluster:
    """What this cluster and this caller have."""
    found = {"slurm-22.05" if "22.05" in ask(binaries, conf, "sbatch", "--version") else "slurm-25.05"}
    if "Gres=gpu:2" in ask(binaries, conf, "scontrol", "show", "node", "node1"):
        found.add("gpus")
    if "long" in ask(binaries, conf, "sinfo", "-h", "-o", "%R").split():
        found.add("long")
    if "a" in ask(binaries, conf, "sinfo", "-h", "-o", "%f").split():
        found.add("features")
    if "pmi2" in ask(binaries, conf, "srun", "--mpi=list").split():
        found.add("pmi2")
    if os.getuid() == 0:
        found.add("root")
    found |= {name for name in ("alice", "bob") if _can_use(name, binaries)}
    return Cluster(binaries, conf, frozenset(found))


def _can_use(name: str, binaries: Path) -> bool:
    """Whether there is such a user, we may become him, and he may run the commands."""
    try:
        user = pwd.getpwnam(name)
        done = subprocess.run(
            [str(binaries / "sbatch"), "--version"], user=user.pw_uid, extra_groups=[], capture_output=True, timeout=100
        )
    except (KeyError, PermissionError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def write_conf(directory: Path, shape: Shape, *, database: bool = True) -> Path:
    """Render slurm.conf and gres.conf for a cluster under `directory`; returns the path of slurm.conf.

    With accounting and `database`, a slurmdbd.conf of ours on SQLite as well.
    """
    ports = unused_ports(1 + len(shape.nodes))
    values = {
        "directory": str(directory),
        "host": socket.gethostname().split(".")[0],
        "user": pwd.getpwuid(os.getuid()).pw_name,
        "port": str(ports[0]),
        **{f"port{i}": str(port) for i, port in enumerate(ports[1:], 1)},
    }
    for name in ("slurm", "gres"):
        source = f"{name}.{shape.name}.conf" if shape.name else f"{name}.conf"
        text = (HERE / source).read_text(encoding="utf-8")
        for key, value in values.items():
            text = text.replace(f"{{{key}}}", value)
        (directory / f"{name}.conf").write_text(text, encoding="utf-8")
    if shape.accounting and database:
        _write_dbd(directory)
    for name in ("state", "dev", *(f"spool/{node}" for node in shape.nodes)):
        (directory / name).mkdir(parents=True)
    for minor, device in enumerate(("nvidia0", "nvidia1")):
        _make_device(directory / "dev" / device, minor)
    return directory / "slurm.conf"


def _make_device(path: Path, minor: int) -> None:
    """A device file with the numbers of a GPU's, where that may be: real Slurm takes no other for a GPU."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(195, minor))
    except PermissionError:
        path.touch()


def _write_dbd(directory: Path) -> None:
    port, user = unused_ports(1)[0], pwd.getpwuid(os.getuid()).pw_name
    conf = directory / "slurm.conf"
    text = conf.read_text(encoding="utf-8").replace(
        "AccountingStorageType=accounting_storage/none",
        "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
        f"AccountingStoragePort={port}",
    )
    conf.write_text(text, encoding="utf-8")
    dbd = directory / "slurmdbd.conf"
    dbd.write_text(
        f"DbdPort={port}\nSlurmUser={user}\nPidFile={directory}/slurmdbd.pid\nLogFile={directory}/slurmdbd.log\n"
        f"StorageType=accounting_storage/sqlite\nStorageLoc={directory}/acct.db\n",
        encoding="utf-8",
    )
    dbd.chmod(0o600)


def node_command(shape: Shape, slurmd: str, node: str) -> list[str]:
    """How the daemon of a node is started."""
    command = [slurmd, "-D", "-N", node]
    if shape.own_hosts:
        command = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', node, *command]
    return command


def set_up(binaries: Path, conf: Path, shape: Shape) -> None:
    """Make the accounts of the shape. Raises RuntimeError with what a command that failed said."""
    env = {**os.environ, "SLURM_CONF": str(conf)}
    for words in shape.setup:
        done = subprocess.run(
            [str(binaries / "sacctmgr"), "-i", *words.split()], env=env, capture_output=True, text=True, timeout=100
        )
        if done.returncode:
            raise RuntimeError(f"sacctmgr {words}: {done.stdout}{done.stderr}")


@contextmanager
def started(binaries: Path, directory: Path, shape: Shape) -> Iterator[Cluster]:
    """Run a cluster's daemons in the foreground under `directory` until the block ends.

    Raises RuntimeError with the daemons' last words when the nodes are not idle within 30 s.
    """
    conf = write_conf(directory, shape)
    env = {**os.environ, "SLURM_CONF": str(conf)}
    commands = {"slurmctld": [str(binaries / "slurmctld"), "-D"]}
    commands |= {f"slurmd-{node}": node_command(shape, str(binaries / "slurmd"), node) for node in shape.nodes}
    if shape.accounting:
        commands = {"slurmdbd": [str(binaries / "slurmdbd"), "-D"], **commands}
    daemons = []
    for name, argv in commands.items():
        log = (directory / f"{name}.out").open("wb")
        daemons.append(
            subprocess.Popen(
                argv,
                env=env,
                stdout=log,
                stderr=log,
                cwd=directory,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        )
        log.close()
    try:
        _wait_until_idle(binaries, conf, directory, daemons, len(shape.nodes))
        if shape.accounting:
            _wait_until_registered(binaries, conf)
            set_up(binaries, conf, shape)
        yield connect(binaries, conf)
    finally:
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in daemons:
            try:
                daemon.wait(100)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _wait_until_registered(binaries: Path, conf: Path) -> None:
    """Until slurmdbd knows the controller, and the controller which accounts there are."""
    deadline = time.monotonic() + 100
    while not ask(binaries, conf, "sacctmgr", "-nP", "show", "cluster", "format=controlhost").strip():
        if time.monotonic() > deadline:
            raise RuntimeError("the controller did not register with slurmdbd")
        time.sleep(0.1)


def _die_with_parent() -> None:
    # prctl(PR_SET_PDEATHSIG): a test run that is killed leaves no cluster behind.
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _wait_until_idle(
    binaries: Path, conf: Path, directory: Path, daemons: list[subprocess.Popen[bytes]], nodes: int
) -> None:
    deadline = time.monotonic() + 100
    while True:
        states = ask(binaries, conf, "sinfo", "-h", "-N", "-p", "debug", "-o", "%t").split()
        if states == ["idle"] * nodes:
            return
        dead = [daemon.args for daemon in daemons if daemon.poll() is not None]
        if dead or time.monotonic() > deadline:
            said = "\n".join(f"{path.name}: {path.read_text()[-800:]}" for path in sorted(directory.glob("*.out")))
            raise RuntimeError(f"the cluster did not start: nodes {states}, ended daemons {dead}\n{said}")
        time.sleep(0.1)
