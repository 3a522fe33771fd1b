"""The pods that the operator writes: their Pod Security levels, and that their users can do what their daemons need."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from spritz.k8s.custom_resources import rights
from spritz.k8s.custom_resources.cluster_objects import (
    Cluster,
    ClusterSpec,
    Dashboard,
    Metadata,
    configuration,
    control_plane,
)
from spritz.k8s.custom_resources.login_sets import LoginSet, LoginSetSpec, login_objects
from spritz.k8s.custom_resources.node_sets import NodeSet, NodeSetSpec, pod, pod_template
from spritz_testing.kubernetes.rights import own_directory
from tests.e2e.cluster import until
from tests.kubernetes.containers import IMAGE_USER, Machine
from tests.kubernetes.strictness import PACKAGED, load
from tests.page import page_command, page_of

Json = dict[str, Any]

METADATA = Metadata(name="lab", namespace="site", uid="1-2-3")
CLUSTER = Cluster(METADATA, ClusterSpec(image="spritz", dashboard=Dashboard(["dash.example.org"], login="proxy")))
CONFIG = configuration(CLUSTER)
KEY = b"k" * 64
FILES: dict[str, dict[str, bytes]] = {
    "lab-config": {name: text.encode() for name, text in CONFIG.files.items()},
    "lab-keys": {"slurm.key": os.urandom(64), "jwt.key": KEY},
    **{name: {"token": b"t", "address": b"a"} for name in ("gpu-0-join", "lab-join")},
    "lab-host-keys": {"ssh_host_ed25519_key": b"k"},
    "users": {"alice": b"ssh-ed25519 A"},
}
NAMES = ["lab-controller-0.lab-controllers.site", "lab-accounting.site", "lab-rest.site", "lab-controller-0"]

#: Of the Pod Security Standards: what *baseline* lets containers add.
BASELINE = {
    *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
    *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
}

is_root = pytest.mark.root


def templates() -> dict[str, Json]:
    """Every pod that the operator writes for a cluster."""
    found = {
        wanted["metadata"]["name"].removeprefix("lab-"): wanted["spec"]["template"]
        for wanted in control_plane(CLUSTER, CONFIG, CONFIG.revision)
        if wanted["kind"] in ("StatefulSet", "Deployment")
    }
    node_set = NodeSet(METADATA, NodeSetSpec(cluster_ref="lab", cpus=1, memory="1Gi"))
    found["node"] = pod(CLUSTER, node_set, "gpu-0", pod_template(CLUSTER, node_set))
    login_set = LoginSet(METADATA, LoginSetSpec(cluster_ref="lab", authorized_keys="users"))
    found["login"] = login_objects(CLUSTER, login_set)[1]["spec"]["template"]
    return found


TEMPLATES = templates()
CONTAINERS = [(name, number) for name, each in TEMPLATES.items() for number in range(len(each["spec"]["containers"]))]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that others can enter, which those of pytest's are not."""
    made = Path(tempfile.mkdtemp(prefix="spritz-rights-"))
    yield made
    shutil.rmtree(made)


def above_baseline(spec: Json) -> list[str]:
    """What *baseline* refuses of a pod, as far as our pods have such fields."""
    found = [field for field in ("hostPID", "hostIPC", "hostNetwork") if spec.get(field)]
    found += [f"hostPath {each['name']}" for each in spec["volumes"] if "hostPath" in each]
    for container in spec["containers"]:
        own = container["securityContext"]
        found += ["privileged"] if own.get("privileged") else []
        found += sorted({*own.get("capabilities", {}).get("add", ())} - BASELINE)
        found += ["hostPort" for port in container.get("ports", ()) if "hostPort" in port]
    return found


def above_restricted(spec: Json) -> list[str]:
    """What *restricted* refuses besides."""
    of_pod, found = spec["securityContext"], above_baseline(spec)
    for container in spec["containers"]:
        own = {**of_pod, **container["securityContext"]}
        found += [] if own.get("runAsNonRoot") and own.get("runAsUser") else ["runAsNonRoot"]
        found += [] if own.get("seccompProfile") == {"type": "RuntimeDefault"} else ["seccompProfile"]
        found += [] if own.get("allowPrivilegeEscalation") is False else ["allowPrivilegeEscalation"]
        found += [] if own["capabilities"]["drop"] == ["ALL"] else ["capabilities.drop"]
        found += sorted({*own["capabilities"].get("add", ())} - {"NET_BIND_SERVICE"})
    return found


@pytest.mark.parametrize("name", ["controller", "accounting", "rest", "dashboard"])
def test_the_control_plane_is_restricted(name: str) -> None:
    assert above_restricted(TEMPLATES[name]["spec"]) == []


@pytest.mark.parametrize("name", ["clusters", "operator"])
def test_the_operator_is_restricted(name: str) -> None:
    (found,) = (each for each in load((PACKAGED / f"{name}.yaml").read_text()) if each["kind"] == "Deployment")
    assert above_restricted({"volumes": [], **found["spec"]["template"]["spec"]}) == []


@pytest.mark.parametrize("name", ["node", "login"])
def test_nodes_and_login_hosts_are_baseline(name: str) -> None:
    assert above_baseline(TEMPLATES[name]["spec"]) == []
    assert TEMPLATES[name]["spec"]["securityContext"]["runAsUser"] == 0  # whatever the image says


def test_a_dashboard_that_asks_pam_is_root() -> None:
    spec = ClusterSpec(image="spritz", dashboard=Dashboard(["dash.example.org"], login="pam"))
    made = control_plane(Cluster(METADATA, spec), CONFIG, CONFIG.revision)
    (found,) = (each for each in made if each["kind"] == "Deployment" and each["metadata"]["name"] == "lab-dashboard")
    assert found["spec"]["template"]["spec"]["securityContext"]["runAsUser"] == 0
    assert above_baseline(found["spec"]["template"]["spec"]) == []


def test_the_image_is_of_slurm_user() -> None:
    text = (PACKAGED / "Containerfile").read_text()
    assert f"USER {rights.SLURM_USER}\n" in text
    assert rights.SLURM_USER == IMAGE_USER


@is_root
@pytest.mark.parametrize(("name", "number"), CONTAINERS, ids=lambda each: str(each))
def test_each_container_reads_its_files_and_writes_its_directories(name: str, number: int, place: Path) -> None:
    template = TEMPLATES[name]
    container = template["spec"]["containers"][number]
    with Machine(place, FILES, NAMES) as machine:
        places = machine.volumes(name, template)
        assert places
        for mount in container["volumeMounts"]:
            there = places[mount["name"]]
            # Not by the paths in the container: some, as below /run, are in places of this machine.
            command = f"cat {there}/* > /dev/null" if mount.get("readOnly") else f"touch {there}/new"
            if mount.get("readOnly") and not any(there.iterdir()):
                continue
            done = machine.run(name, template, "sh", "-c", command, number=number)
            assert (done.returncode, done.stderr) == (0, ""), mount


@is_root
def test_a_pod_that_says_nothing_cannot_read_its_keys(place: Path) -> None:
    """What these tests are against: as the image's user, with files of mode 0400."""
    template = {"spec": {**TEMPLATES["controller"]["spec"], "securityContext": {}}}
    with Machine(place, FILES, NAMES) as machine:
        there = machine.volumes("controller", template)["etc"]
        assert "Permission denied" in machine.run("controller", template, "cat", f"{there}/slurm.key").stderr


@is_root
def test_what_daemons_keep_to_themselves_stays_theirs_when_a_pod_starts_again(place: Path) -> None:
    """The kubelet would let the group write it (fsGroupChangePolicy Always), and slurmctld would refuse to start."""
    spec, claim = TEMPLATES["controller"]["spec"], {"name": "state", "persistentVolumeClaim": {}}
    own_directory(spec, claim, place)
    kept = place / "state"
    kept.mkdir(0o700)
    own_directory(spec, claim, place)
    assert kept.stat().st_mode & 0o777 == 0o700


@is_root
def test_the_relay_of_the_dashboard_starts(place: Path) -> None:
    """Without it no command of the dashboard reaches slurmctld."""
    with Machine(place, FILES, []) as machine:  # sackd is for machines without a controller
        machine.start("lab-dashboard-1", TEMPLATES["dashboard"], 1)
        log = machine.log("lab-dashboard-1")
        until(lambda: "daemon.started" in log.read_text(), log.read_text, 30)


@is_root
def test_the_daemons_start_and_answer(place: Path) -> None:
    """slurmdbd, slurmctld and slurmrestd as the pods have them; each probe says so, and so do calls of the operator."""
    with Machine(place, FILES, NAMES) as machine:

        def page(url: str, *headers: str) -> tuple[int, str]:
            """Status and text."""
            return page_of(machine.run("rest", TEMPLATES["rest"], *page_command(url, *headers)).stdout)

        def logs() -> str:
            return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in place.glob("*.log"))

        probe = TEMPLATES["accounting"]["spec"]["containers"][0]["readinessProbe"]["exec"]["command"]
        names = {"accounting": "lab-accounting-0", "controller": "lab-controller-0", "rest": "lab-rest-1"}
        machine.start(names["accounting"], TEMPLATES["accounting"])
        until(lambda: machine.run(names["accounting"], TEMPLATES["accounting"], *probe).returncode == 0, logs, 30)
        machine.start(names["rest"], TEMPLATES["rest"])
        until(lambda: page("http://127.0.0.1:6820/livez")[0] == 200, logs, 30)
        assert page("http://127.0.0.1:6820/readyz")[0] == 503
        machine.start(names["controller"], TEMPLATES["controller"])
        until(lambda: page("https://127.0.0.1:6817/readyz") == (200, "ok\n"), logs, 30)
        until(lambda: page("http://127.0.0.1:6820/readyz") == (200, "ok\n"), logs, 30)
        claims = {"iat": int(time.time()), "exp": int(time.time()) + 600, "sun": "root"}
        header = f"X-SLURM-USER-TOKEN: {jwt.encode(claims, KEY, algorithm='HS256')}"
        for path in ("/slurm/v0.0.42/nodes", "/slurmdb/v0.0.42/clusters"):
            assert page(f"http://127.0.0.1:6820{path}", header)[0] == 200, logs()
        # It starts again on what it has written, after the kubelet has been there again.
        machine.stop()
        machine.start(names["controller"], TEMPLATES["controller"])
        until(lambda: page("https://127.0.0.1:6817/readyz") == (200, "ok\n"), logs, 30)
