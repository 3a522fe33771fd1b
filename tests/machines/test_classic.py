"""The classic way: the same key on every machine and no tokens; and what strangers on the network get."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines.classic import PORT, Classic
from tests.machines.lan import Lan, eventually

pytestmark = [pytest.mark.root, pytest.mark.xdist_group("machines")]


@pytest.fixture(scope="module")
def site() -> Iterator[Classic]:
    """alpha with slurmctld; every machine has /etc/slurm's files at the same path."""
    with Lan() as lan:
        made = Classic(
            lan,
            "SlurmctldParameters=enable_configless",
            "NodeName=beta,gamma CPUs=1",
            "NodeName=delta CPUs=1 RealMemory=900000000",
        )
        made.start("beta", "slurmd")
        for name in ("gamma", "delta", "eve"):
            lan.machine(name)
        yield made


def test_the_same_files_on_every_machine(site: Classic) -> None:
    beta = site["beta"]
    assert site.run("srun", "-w", "beta", "hostname") == "beta\n"
    assert beta.run("srun", "-w", "beta", "cat", stdin="x", SLURM_CONF=str(site.conf)).stdout == "x"


def test_a_node_and_a_login_host_without_files(site: Classic) -> None:
    """`--conf-server`: the key alone is there."""
    gamma, eve = site["gamma"], site["eve"]
    for machine in (gamma, eve):
        directory = machine.own / "lib/conf"
        directory.mkdir(parents=True)
        shutil.copy2(site.conf.with_name("slurm.key"), directory / "slurm.key")
    gamma.out("slurmd", "--conf-server", f"alpha:{PORT}")
    eve.out("sackd", "--conf-server", f"alpha:{PORT}")
    assert eve.out("srun", "-w", "gamma", "hostname") == "gamma\n"
    fetched = gamma.own / "lib/conf/slurm.conf"
    assert fetched.read_text() == site.conf.read_text()
    # Started again without the option, it still follows the controller's files, and not those in /run/slurm/conf.
    pid = int((gamma.own / "slurmd.pid").read_text())
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "it has ended")
    assert "using the configuration fetched before" in gamma.run("slurmd").stderr
    text = site.conf.read_text()
    for changed in (text + "# changed\n", text):
        site.conf.write_text(changed)
        site.run("scontrol", "reconfigure")
        eventually(lambda: fetched.read_text() == changed, "it has the change")  # noqa: B023


def test_hardware_that_does_not_match_is_told(site: Classic) -> None:
    site.start("delta", "slurmd")

    def shown() -> str:
        return site.run("scontrol", "show", "node", "delta")

    eventually(lambda: "Low RealMemory" in shown(), "the reason is told")
    assert "INVAL" in shown() or "DRAIN" in shown()
    # As soon as the file is right, and as soon as it is wrong again, without a restart.
    path = site.conf
    wrong = path.read_text()
    for text, is_told in ((wrong.replace("RealMemory=900000000", "RealMemory=100"), False), (wrong, True)):
        path.write_text(text)
        site.run("scontrol", "reconfigure")
        eventually(lambda: ("Low RealMemory" in shown()) == is_told, f"the reason is told: {is_told}")  # noqa: B023


def test_a_machine_without_the_key_is_refused(site: Classic) -> None:
    delta = site["delta"]
    assert "no key of the cluster" in delta.run("slurmd", "--conf-server", f"alpha:{PORT}").stderr
    other = delta.own / "lib/conf"
    other.mkdir(parents=True, exist_ok=True)
    (other / "slurm.key").write_bytes(os.urandom(64))
    (other / "slurm.key").chmod(0o600)
    done = delta.run("slurmd", "--conf-server", f"alpha:{PORT}")
    assert "self-signed certificate" in done.stderr
    (other / "slurm.key").chmod(0o644)
    assert "others than its owner may use the key" in delta.run("slurmd", "--conf-server", f"alpha:{PORT}").stderr


_PROBE = """
import socket, sys, time
sent = {
    "hello": b"\\0\\0\\0\\x2a" + b"x" * 42,
    "http": b"GET / HTTP/1.1\\r\\n\\r\\n",
    "tls": b"\\x16\\x03\\x01\\xff\\xff" + b"\\x01" * 70000,
    "garbage": bytes(range(256)) * 300,
    "nothing": b"",
}
kept = []
for _ in range(40):
    for data in sent.values():
        one = socket.create_connection(("alpha", int(sys.argv[1])), 5)
        one.settimeout(5)
        kept.append(one)
        try:
            one.sendall(data)
        except OSError:
            pass
time.sleep(0.1)
for one in kept[:5]:
    try:
        print(len(one.recv(65536)))
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.mark.slow
def test_strangers_learn_nothing_and_shut_no_user_out(site: Classic) -> None:
    """Silent peers, garbage and huge handshakes, two hundred at once; the cluster answers meanwhile and afterwards."""
    alpha, beta, eve = site["alpha"], site["beta"], site["eve"]
    probe = eve.start("/usr/bin/python3", "-c", _PROBE, str(PORT), log="probe.out")
    assert "main" in beta.out("sinfo", "-h", SLURM_CONF=str(site.conf))
    assert probe.wait(60) == 0
    assert site.run("srun", "-w", "beta", "hostname") == "beta\n"
    assert "connection.refused" in (alpha.own / "ctld.log").read_text()


def _dns_answer(port: int) -> bytes:
    """An SRV record for _slurmctld._tcp.example, as a name server answers."""
    target = b"\x05alpha\x00"
    return b"\xc0\x0c" + struct.pack("!HHIH", 33, 1, 60, 6 + len(target)) + struct.pack("!HHH", 0, 0, port) + target


def test_controllers_are_found_by_dns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Thread

    from spritz.runtime import srv

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def answer() -> None:
            server.recvfrom(4096)  # lost, and asked again
            query, peer = server.recvfrom(4096)
            header = query[:2] + struct.pack("!HHHHH", 0x8180, 1, 1, 0, 0)
            server.sendto(header + query[12:] + _dns_answer(PORT), peer)

        thread = Thread(target=answer)
        thread.start()
        monkeypatch.setattr(srv, "PORT", server.getsockname()[1])
        monkeypatch.setattr(srv, "_TIMEOUT_SECONDS", 0.5)
        resolv = tmp_path / "resolv.conf"
        resolv.write_text("search example\nnameserver 127.0.0.1\n")
        assert srv.service_servers("_slurmctld._tcp", str(resolv)) == [("alpha", PORT)]
        thread.join()
        with pytest.raises(srv.NoService, match=r"_slurmctld\._tcp\.example at 127\.0\.0\.1: timed out"):
            srv.service_servers("_slurmctld._tcp", str(resolv))


def test_what_is_no_dns_answer_is_none() -> None:
    from spritz.runtime import srv

    for answer in (b"", b"\0" * 12, b"\0\1\x81\x80\0\1\0\1\0\0\0\0\xc0\x0c\0\0\0\0"):
        try:
            assert srv._read(answer, 1) == []
        except (ValueError, struct.error, IndexError):
            pass
