"""The files that `spritz up` writes: slurm.conf and gres.conf for this machine, or for the requested virtual nodes."""

from __future__ import annotations

import os
import re
import socket
import subprocess

from spritz import installed
from spritz.cli.local.daemons import NODE
from spritz.cli.local.paths import ClusterPaths
from spritz.model.errors import SpritzError
from spritz.runtime.ports import unused_ports

_HEADER = """\
# Written by `spritz up` once; yours to edit. `spritz config check` explains every mistake,
# `scontrol reconfigure` applies changes, and `spritz up` without options keeps this file as it is.
"""


class Shape:
    """The cluster's nodes: `node_line` and `gres_lines` are written to slurm.conf and gres.conf unchanged."""

    def __init__(
        self, node_line: str, gres_lines: list[str], memory_mib_per_cpu: int, *, gpus: bool, virtual: bool
    ) -> None:
        self.node_line = node_line
        self.gres_lines = gres_lines
        #: DefMemPerCPU: memory of a job that requests none.
        self.memory_mib_per_cpu = memory_mib_per_cpu
        self.gpus = gpus
        self.virtual = virtual


def virtual_shape(count: int, cpus: int, memory_mib: int, gpus: int, gpu_type: str) -> Shape:
    """Shape of nodes node1 … nodeN (N is `count`), which share this machine and may declare more than it has."""
    nodes = "node1" if count == 1 else f"node[1-{count}]"
    words = [f"NodeName={nodes}", "NodeAddr=127.0.0.1", f"CPUs={cpus}", f"RealMemory={memory_mib}"]
    gres_lines = []
    if gpus:
        kind = f"gpu:{gpu_type}:{gpus}" if gpu_type else f"gpu:{gpus}"
        words.append(f"Gres={kind}")
        type_word = f" Type={gpu_type}" if gpu_type else ""
        gres_lines.append(f"NodeName={nodes} Name=gpu{type_word} Count={gpus}")
    words.append("State=UNKNOWN")
    return Shape(" ".join(words), gres_lines, memory_mib // cpus, gpus=bool(gpus), virtual=True)


def found_shape() -> Shape:
    """Shape of this machine as `slurmd -C` reports it. Raises SpritzError if that fails."""
    done = subprocess.run(
        installed.python(NODE, "-C"), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    line = done.stdout.splitlines()[0] if done.stdout else ""
    if done.returncode != 0 or not line.startswith("NodeName="):
        raise SpritzError(f"slurmd -C failed: {(done.stderr or done.stdout).strip()}")
    words = [word for word in line.split() if "=" in word]
    fields = dict(word.split("=", 1) for word in words)
    name = fields["NodeName"]
    keys = ("CPUs", "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory")
    kept = [f"NodeName={name}", "NodeAddr=127.0.0.1"]
    kept += [f"{key}={fields[key]}" for key in keys if key in fields]
    gres = short_types(fields.get("Gres", ""))
    gres_lines = []
    if gres:
        kept.append(f"Gres={gres}")
        gres_lines = gpu_lines(gres)
    kept.append("State=UNKNOWN")
    share = int(fields["RealMemory"]) // int(fields["CPUs"])
    return Shape(" ".join(kept), gres_lines, share, gpus=bool(gres), virtual=False)


def short_types(gres: str) -> str:
    """`gpu:nvidia_h100_80gb_hbm3:8` as `gpu:h100:8`: the name that users write in `--gpus=h100:2`.

    Models that would get the same short name keep their long names. So do parts of GPUs (MIG): their profile matters.
    """
    models = [word.split(":")[1] for word in gres.split(",") if word]
    short = {model: _short_type(model) for model in models}
    if len(set(short.values())) < len(short):
        return gres
    return ",".join(
        f"{name}:{short[model]}:{count}" for name, model, count in (word.split(":") for word in gres.split(",") if word)
    )


#: The word that names a model: `h100`, `a100`, `l40s`, `gh200`, `mi300x`; of GeForce and Quadro cards `rtx_4090`.
_MODEL = re.compile(r"(?:^|[_-])([a-z]{1,2}\d{1,4}[a-z]?|[rg]tx_\d+)(?=$|[_-])")


def _short_type(model: str) -> str:
    name = _MODEL.search(model)
    divided = re.search(r"_\d+g\.\d+gb", model)
    return name[1] if name is not None and divided is None else model


def gpu_lines(gres: str) -> list[str]:
    """Lines of gres.conf for `gpu:a100:2,gpu:t4:1`, whose order is that of the devices."""
    lines = []
    first = 0
    for word in gres.split(","):
        _, kind, count = word.split(":")
        last = first + int(count) - 1
        lines.append(f"Name=gpu Type={kind} File=/dev/nvidia[{first}-{last}]")
        first = last + 1
    return lines


def write_files(paths: ClusterPaths, shape: Shape, user: str) -> None:
    """Write slurm.conf, slurmdbd.conf and gres.conf, with ports that are free now. Keeps earlier files as NAME.old."""
    for path in (paths.slurm_conf, paths.slurmdbd_conf, paths.gres_conf):
        if os.path.exists(path):
            os.replace(path, path + ".old")
    control_port, node_port, database_port = unused_ports(3)
    host = socket.gethostname().split(".")[0] or "localhost"
    lines = [
        f"ClusterName={_name(paths, control_port, virtual=shape.virtual)}",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={control_port}",
        f"SlurmdPort={node_port}",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        f"StateSaveLocation={_path(paths.state)}",
        f"SlurmdSpoolDir={_path(paths.spool, '/%n')}",
        f"SlurmctldPidFile={_path(paths.controller_pid)}",
        f"SlurmdPidFile={_path(paths.node_pid)}",
        f"SlurmctldLogFile={_path(paths.controller_log)}",
        f"SlurmdLogFile={_path(paths.node_log)}",
        "",
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={database_port}",
        "AccountingStoreFlags=job_comment,job_env,job_extra,job_script",
        "JobAcctGatherType=jobacct_gather/linux",
        "",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        f"DefMemPerCPU={max(1, shape.memory_mib_per_cpu)}",
        "ProctrackType=proctrack/linuxproc",
        "ReturnToService=2",
        "MaxJobCount=200000",
        "MaxArraySize=100001",
    ]
    if shape.gpus:
        lines.append("GresTypes=gpu")
    if shape.virtual:
        # Nodes that share a machine must not bind their first CPUs to the same one.
        lines += ["SlurmdParameters=private_hosts", "TaskPlugin=task/none"]
    lines += ["", shape.node_line, "PartitionName=main Nodes=ALL Default=YES MaxTime=UNLIMITED State=UP", ""]
    _write(paths.slurm_conf, _HEADER + "\n".join(lines))
    _write_slurmdbd_conf(paths, user, database_port)
    if shape.gres_lines:
        _write(paths.gres_conf, _HEADER + "\n".join(shape.gres_lines) + "\n")


def _write_slurmdbd_conf(paths: ClusterPaths, user: str, port: int) -> None:
    """Write slurmdbd.conf, readable only by its user: a site may put a password into it."""
    lines = [
        "DbdAddr=127.0.0.1",
        f"DbdPort={port}",
        f"SlurmUser={user}",
        f"PidFile={_path(paths.database_pid)}",
        f"LogFile={_path(paths.database_log)}",
        "# SQLite in a file; StorageUrl=postgresql://user:password@host/database would use PostgreSQL.",
        "StorageType=accounting_storage/sqlite",
        f"StorageLoc={_path(paths.database)}",
        "",
    ]
    _write(paths.slurmdbd_conf, _HEADER + "\n".join(lines))
    os.chmod(paths.slurmdbd_conf, 0o600)


def _name(paths: ClusterPaths, port: int, *, virtual: bool) -> str:
    """The cluster's name: that of its saved state, if there is one (a new shape does not make a new cluster)."""
    try:
        with open(os.path.join(paths.state, "clustername"), encoding="utf-8") as file:
            return file.read().strip() or "spritz"
    except OSError:
        return f"spritz{port}" if virtual else "spritz"


def _path(path: str, pattern: str = "") -> str:
    """A path as slurm.conf reads it: special characters escaped, quoted if necessary; `pattern` stays as it is."""
    escaped = path.replace("%", "%%").replace("\\", "\\\\").replace("#", "\\#") + pattern
    return f'"{escaped}"' if any(sign.isspace() for sign in escaped) else escaped


def _write(path: str, text: str) -> None:
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
