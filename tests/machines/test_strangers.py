"""A machine without a key sends what it likes to slurmctld, slurmd and slurmdbd: nothing crashes, hangs or grows.

Seeded, as tests/fuzz is: SPRITZ_FUZZ_SEED and SPRITZ_FUZZ_ROUNDS (`make fuzz`). Each round makes connections that
are plain, by TLS for requests, and by TLS for streams, and sends on each garbage, frames of garbage, envelopes with
odd bodies, or nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines.lan import Lan, eventually

pytestmark = [pytest.mark.root, pytest.mark.xdist_group("machines")]

PORTS = {"slurmctld": 26857, "slurmd": 26858, "slurmdbd": 26859}
SEED = os.environ.get("SPRITZ_FUZZ_SEED", "1")
ROUNDS = os.environ.get("SPRITZ_FUZZ_ROUNDS", "4")

#: MiB by which a daemon may have grown when the stranger has gone: what it may hold for strangers, and slack.
GROWTH_MIB_MAX = 48

CONF = """\
ClusterName=odd
SlurmctldHost=alpha
SlurmctldPort={slurmctld}
SlurmdPort={slurmd}
SlurmUser=root
AuthType=auth/slurm
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=alpha
AccountingStoragePort={slurmdbd}
StateSaveLocation=/run/ctl
SlurmdSpoolDir=/run/spool
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/run/slurmctld.log
SlurmdLogFile=/run/slurmd.log
ProctrackType=proctrack/linuxproc
NodeName=alpha CPUs=1
PartitionName=main Nodes=ALL Default=YES
"""

DATABASE = """\
DbdPort={slurmdbd}
SlurmUser=root
StorageUrl=sqlite:////run/acct.db
LogFile=/run/slurmdbd.log
PidFile=/run/slurmdbd.pid
"""

_STRANGER = """
import random, socket, ssl, sys
from msgspec import Raw, msgpack
from spritz.runtime.tls import CALLS, STREAMS
from spritz.wire.envelope import Request, encode
from spritz.wire.versions import hello

seed, rounds, *ports = map(int, sys.argv[1:])
draw = random.Random(seed)

def context(protocol):
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.check_hostname, found.verify_mode = False, ssl.CERT_NONE
    found.set_alpn_protocols([protocol])
    return found

def odd(depth=0):
    kinds = [lambda: draw.randbytes(draw.randrange(200)), lambda: draw.getrandbits(70) >> 7,
             lambda: "x" * draw.randrange(200), lambda: None, lambda: -draw.getrandbits(60), lambda: draw.random()]
    if depth < 3:
        kinds += [lambda: [odd(depth + 1) for _ in range(draw.randrange(5))],
                  lambda: {draw.choice(["token", "host", "role", "public_key", "x"]): odd(depth + 1) for _ in range(4)}]
    return draw.choice(kinds)()

def said():
    way = draw.randrange(7)
    if way == 0:
        return draw.randbytes(draw.randrange(1, 70000))
    if way == 1:
        payloads = [draw.randbytes(draw.randrange(1, 5000)) for _ in range(9)]
        return b"".join(len(one).to_bytes(4, "big") + one for one in payloads)
    if way == 2:
        return draw.choice([b"", b"\\0", b"\\0\\0\\0\\x40", b"\\xff" * 8, b"GET / HTTP/1.1\\r\\n\\r\\n"])
    if way == 3:
        return bytes(range(256)) * draw.randrange(1, 500)
    kinds = ("FetchAuthority JoinCluster Ping RenewCertificate FetchConfiguration SubmitJob ListJobs TakeOver"
             " RegisterNode RegisterCluster StoreEvents Nonsense UseToken LaunchBatch SignedLaunch StopDaemon").split()
    frames = [encode(hello(draw.choice(["command", "slurmd", "slurmctld", ""])))] if way > 4 else []
    for number in range(1, 12):
        frames.append(encode(Request(id=number, kind=draw.choice(kinds), body=Raw(msgpack.encode(odd())))))
    return b"".join(frames)

kept = []
for _ in range(rounds):
    for port in ports:
        for protocol in ("", CALLS, STREAMS):
            for _ in range(5):
                try:
                    one = socket.create_connection(("alpha", port), 5)
                    one.settimeout(0.3)
                    if protocol:
                        one = context(protocol).wrap_socket(one)
                    one.sendall(said())
                    if draw.random() < 0.5:
                        one.recv(65536)
                except OSError:
                    pass
                if draw.random() < 0.5:
                    kept.append(one)
                else:
                    one.close()
print("held", len(kept))
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Lan]:
    """alpha with all daemons; eve has no key."""
    with Lan() as lan:
        etc = lan.root / "etc"
        etc.mkdir()
        (etc / "slurm.conf").write_text(CONF.format(**PORTS))
        (etc / "slurmdbd.conf").write_text(DATABASE.format(**PORTS))
        (etc / "slurm.key").write_bytes(os.urandom(64))
        for secret in ("slurm.key", "slurmdbd.conf"):
            (etc / secret).chmod(0o600)
        alpha = lan.machine("alpha")
        lan.machine("eve")
        for daemon in ("slurmdbd", "slurmctld", "slurmd"):
            alpha.out(daemon, SLURM_CONF=str(etc / "slurm.conf"))
        yield lan


def test_odd_bytes_do_no_harm(site: Lan) -> None:
    alpha, eve = site.machines["alpha"], site.machines["eve"]
    conf = str(site.root / "etc/slurm.conf")
    pids = {name: int((alpha.own / f"run/{name}.pid").read_text()) for name in PORTS}
    assert alpha.out("srun", "hostname", SLURM_CONF=conf) == "alpha\n"
    before = {name: _memory_mib(pid) for name, pid in pids.items()}
    stranger = subprocess.Popen(
        eve.command(sys.executable, "-c", _STRANGER, SEED, ROUNDS, *map(str, PORTS.values())),
        env=eve.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert stranger.stdin is not None
    assert stranger.stdout is not None
    with stranger:
        assert stranger.stdout.readline().startswith("held "), f"seed {SEED}"
        # Meanwhile half of its connections are there, silent.
        assert alpha.out("srun", "hostname", SLURM_CONF=conf) == "alpha\n"
        assert "root" in alpha.out("sacctmgr", "-n", "show", "user", SLURM_CONF=conf)
        stranger.stdin.close()
    assert stranger.returncode == 0
    for name, pid in pids.items():
        log = (alpha.own / f"run/{name}.log").read_text()
        assert "Traceback" not in log, f"{name}, seed {SEED}"
        assert _memory_mib(pid) - before[name] < GROWTH_MIB_MAX, f"{name}, seed {SEED}"
    assert "connection.refused" in (alpha.own / "run/slurmctld.log").read_text()
    eventually(lambda: alpha.out("srun", "hostname", SLURM_CONF=conf) == "alpha\n", "jobs run")


def _memory_mib(pid: int) -> float:
    """Raises FileNotFoundError for a process that has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)
