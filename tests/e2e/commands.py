"""Our commands run as a user runs them, on a cluster of a test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.cluster import Cluster

BIN = Path(sys.executable).parent

#: What srun says after 0.3 seconds, however soon there is room: on a busy machine it takes longer.
_WAITS = re.compile(rb"srun: job \d+ (?:queued and waiting for|has been allocated) resources\n")


def environment(cluster: Cluster, **more: str) -> dict[str, str]:
    """A user's shell that knows this cluster and no other job."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "SALLOC"))}
    return {**kept, "SLURM_CONF": str(cluster.conf), "PATH": f"{BIN}:{os.environ['PATH']}", **more}


def program(name: str) -> str:
    """Ours where it is one of ours."""
    return str(BIN / name) if (BIN / name).exists() else name


def run(
    cluster: Cluster, *argv: str, stdin: str | bytes = "", timeout: float = 100.0, **env: str
) -> subprocess.CompletedProcess[bytes]:
    """One command to its end, in the cluster's work directory. That srun had to wait is left out of what it said."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [program(argv[0]), *argv[1:]],
        input=given,
        capture_output=True,
        timeout=timeout,
        cwd=cluster.work,
        env=environment(cluster, **env),
    )
    done.stderr = without_waiting(done.stderr)
    return done


def without_waiting(said: bytes) -> bytes:
    """What srun said, but that it had to wait for its allocation."""
    return _WAITS.sub(b"", said)


def start(cluster: Cluster, *argv: str, **env: str) -> subprocess.Popen[bytes]:
    """One command left running, in a session of its own.

    Its pipes are unbuffered: what readline() has read ahead, communicate() would never return.
    """
    return subprocess.Popen(
        [program(argv[0]), *argv[1:]],
        bufsize=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cluster.work,
        env=environment(cluster, **env),
        start_new_session=True,
    )


def lines(text: bytes) -> list[str]:
    """Decoded, without line ends."""
    return text.decode("utf-8", "replace").splitlines()
