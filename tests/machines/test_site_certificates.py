"""The site's own certificates (TLSType=tls/s2n), and their renewal while the cluster runs."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from spritz.client.trust.membership import Joined, write_joined
from spritz.runtime import tls
from spritz.runtime.authority import CERTIFICATE_DAYS, Authority, ends_at, own_keys
from spritz.wire.credential import derive
from tests.machines.lan import Lan, Machine, eventually

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.xdist_group("machines")]

CONF = """\
ClusterName=certified
SlurmctldHost=alpha
SlurmctldPort=26867
SlurmdPort=26868
SlurmUser=root
AuthType=auth/slurm
TLSType=tls/s2n
TLSParameters=ca_cert_file=/run/site/ca.pem,ctld_cert_file=/run/site/own.pem,ctld_cert_key_file=/run/site/own_key.pem,\
slurmd_cert_file=/run/site/own.pem,slurmd_cert_key_file=/run/site/own_key.pem,\
sackd_cert_file=/run/site/own.pem,sackd_cert_key_file=/run/site/own_key.pem
StateSaveLocation=/run/ctl
SlurmdSpoolDir=/run/spool
SlurmctldPidFile=/run/ctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/run/ctld.log
MetricsType=metrics/openmetrics
SlurmdLogFile=/run/slurmd.log
ProctrackType=proctrack/linuxproc
NodeName=beta,delta CPUs=1
PartitionName=main Nodes=ALL Default=YES
"""

ROLES = {"alpha": tls.CONTROLLER, "beta": tls.NODE, "gamma": tls.LOGIN, "delta": tls.NODE}


def certify(directory: Path, authority: Authority, role: str, host: str) -> None:
    """The files of one machine, as a site's authority makes them."""
    keys = own_keys([authority], tls.Machine("certified", role, host), time.time())
    directory.mkdir(exist_ok=True)
    for name, text in (("ca.pem", keys.authorities), ("own.pem", keys.certificate), ("own_key.pem", keys.key)):
        (directory / name).write_text(text)
        (directory / name).chmod(0o600)


@pytest.fixture
def authority() -> Authority:
    return Authority(os.urandom(32))


@pytest.fixture
def site(authority: Authority) -> Iterator[Lan]:
    with Lan() as lan:
        etc = lan.root / "etc"
        etc.mkdir()
        (etc / "slurm.conf").write_text(CONF)
        (etc / "slurm.key").write_bytes(os.urandom(64))
        (etc / "slurm.key").chmod(0o600)
        for host, role in ROLES.items():
            machine = lan.machine(host)
            # delta's is of an authority that is none of this site's.
            certify(machine.own / "run/site", Authority(os.urandom(32)) if host == "delta" else authority, role, host)
        for host, daemon in (("alpha", "slurmctld"), ("beta", "slurmd"), ("gamma", "sackd")):
            lan.machines[host].out(daemon, SLURM_CONF=str(etc / "slurm.conf"))
        yield lan


def test_the_sites_authority_identifies_machines(site: Lan) -> None:
    conf = str(site.root / "etc/slurm.conf")
    gamma, delta, alpha = (site.machines[name] for name in ("gamma", "delta", "alpha"))
    assert gamma.out("srun", "-w", "beta", "hostname", SLURM_CONF=conf) == "beta\n"
    delta.out("slurmd", SLURM_CONF=conf)
    refusal = next(
        line for line in (delta.own / "run/slurmd.log").read_text().splitlines() if "connection.failed" in line
    )
    assert "self-signed certificate" in refusal
    refused = delta.run("sackd", SLURM_CONF=conf)
    assert refused.returncode == 1
    assert "the subject is /O=certified/OU=node/CN=delta" in refused.stderr
    assert "unk" in alpha.out("sinfo", "-h", "-n", "delta", "-o", "%t", SLURM_CONF=conf)
    refused = alpha.run("spritz", "token", "create", SLURM_CONF=conf)
    assert refused.returncode == 1
    assert "the site makes the machines' certificates" in refused.stderr


#: The certificate that a port shows.
SHOWN = """\
import socket, ssl, sys
context = ssl.create_default_context(cafile="/run/site/ca.pem")
context.check_hostname = False
with context.wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30)) as connection:
    print(ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True)))
"""


def test_a_new_certificate_is_shown_after_reconfigure(site: Lan, authority: Authority) -> None:
    conf = str(site.root / "etc/slurm.conf")
    machines = site.machines

    def shown(host: str, port: int) -> str:
        return machines["gamma"].out(sys.executable, "-c", SHOWN, host, str(port))

    before = {host: shown(host, port) for host, port in (("alpha", 26867), ("beta", 26868))}
    for host in before:
        certify(machines[host].own / "run/site", authority, ROLES[host], host)
    assert machines["alpha"].run("scontrol", "reconfigure", SLURM_CONF=conf).stderr == ""
    assert shown("alpha", 26867) != before["alpha"]
    eventually(lambda: shown("beta", 26868) != before["beta"], "the node shows another")
    assert machines["gamma"].out("srun", "-w", "beta", "hostname", SLURM_CONF=conf) == "beta\n"

    (machines["alpha"].own / "run/site/own_key.pem").write_text("no key\n")
    kept = shown("alpha", 26867)
    refused = machines["alpha"].run("scontrol", "reconfigure", SLURM_CONF=conf)
    assert "the certificate was not renewed" in refused.stderr
    assert shown("alpha", 26867) == kept


#: A scraper with no certificate of its own, which trusts the site's authority.
SCRAPE = """\
import ssl, urllib.request
context = ssl.create_default_context(cafile="/run/site/ca.pem")
context.check_hostname = False
with urllib.request.urlopen("https://alpha:26867/metrics", context=context, timeout=30) as answer:
    print(answer.status, answer.read().decode())
"""


def test_metrics_are_scraped_over_tls(site: Lan) -> None:
    page = site.machines["gamma"].out(sys.executable, "-c", SCRAPE)
    assert page.startswith("200 ")
    assert 'slurm_node_cpus{node="beta"} 1.0' in page.splitlines()
    # delta's authority is not that of slurmctld.
    refused = site.machines["delta"].run(sys.executable, "-c", SCRAPE)
    assert refused.returncode == 1
    assert "certificate verify failed" in refused.stderr


def test_a_certificate_is_renewed_while_jobs_run(lan: Lan, alpha: Machine, beta: Machine) -> None:
    """Of the cluster's own: half of its time has passed, and the node's daemon has the next one at its next look."""
    key = next(alpha.own.rglob("slurm.key")).read_bytes()
    kept = next(beta.own.rglob("machine.json"))
    joined = msgspec.json.decode(kept.read_bytes(), type=Joined)
    aged = own_keys(
        [Authority(derive(key, "authority"))],
        tls.Machine(joined.cluster, joined.role, joined.host),
        time.time() - (CERTIFICATE_DAYS / 2 + 1) * 86400,
    )
    write_joined(str(kept.parent), structs.replace(joined, certificate=aged.certificate, key=aged.key))
    words = (
        "sbatch",
        "--parsable",
        "-o",
        "/dev/null",
        "-w",
        "beta",
        "--wrap",
        "while ! test -e /run/go; do sleep 0.1; done",
    )
    job = alpha.out(*words).strip()
    eventually(lambda: alpha.out("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING\n", "the job runs")
    pid = int(next(beta.own.rglob("slurmd*.pid")).read_text())
    os.kill(pid, signal.SIGKILL)  # its next look is at its start
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "it has ended")
    beta.out("spritz", "join")

    def certificate() -> str:
        return msgspec.json.decode(kept.read_bytes(), type=Joined).certificate

    eventually(lambda: certificate() != aged.certificate, "there is another certificate")
    assert ends_at(certificate()) > time.time() + (CERTIFICATE_DAYS - 1) * 86400
    assert alpha.out("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING\n", "it did not notice"
    (beta.own / "run/go").touch()
    eventually(lambda: alpha.out("squeue", "-h", "-j", job) == "", "its end is reported")
    assert beta.out("srun", "-w", "beta", "hostname") == "beta\n"
