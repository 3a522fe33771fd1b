"""The kubelet for tests (`spritz_testing.kubelet`), as far as it needs no control plane."""

from __future__ import annotations

import asyncio
import base64
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spritz.runtime.tasks import Supervisor
from spritz_testing.kubelet import image
from spritz_testing.kubelet.containers import Container, Mount, Place, Refused, check, expanded
from spritz_testing.kubelet.network import Network
from spritz_testing.kubelet.services import Services
from spritz_testing.kubelet.volumes import NotYet, Volumes, field_of

Json = dict[str, Any]

is_root = pytest.mark.root
has_containers = pytest.mark.skipif(bool(image.missing()), reason=image.missing() or "no reason")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that others can enter, which those of pytest's are not."""
    made = Path(tempfile.mkdtemp(prefix="spritz-kubelet-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def pod(**spec: Any) -> Json:
    metadata = {"name": "p", "namespace": "n", "uid": "1", "labels": {"app": "a", "example.org/b": "c"}}
    return {"metadata": metadata, "spec": {"containers": [], **spec}}


def volumes(place: Path, objects: dict[str, Json]) -> Volumes:
    async def find(plural: str, name: str) -> Json | None:
        return objects.get(f"{plural}/{name}")

    async def token(audience: str, seconds: int) -> str:
        return f"token for {audience} of {seconds} s"

    return Volumes(place / "volumes", place / "claims", find, token)


@is_root
def test_files_of_a_volume_change_all_at_once(place: Path) -> None:
    """By a link to a directory that is replaced; modes and groups are the kubelet's."""
    secret = {"data": {"a": base64.b64encode(b"1").decode(), "b": base64.b64encode(b"2").decode()}}
    objects: dict[str, Json] = {"secrets/s": secret}
    given = pod(
        volumes=[{"name": "v", "secret": {"secretName": "s", "defaultMode": 0o400}}], securityContext={"fsGroup": 65532}
    )

    async def scene() -> None:
        made = volumes(place, objects)
        await made.lay_out(given)
        file = made.places["v"] / "a"
        assert (file.is_symlink(), file.read_bytes()) == (True, b"1")
        assert (file.stat().st_mode & 0o777, file.stat().st_gid) == (0o440, 65532)
        first = (made.places["v"] / "..data").readlink()
        await made.refresh(given)
        assert (made.places["v"] / "..data").readlink() == first  # nothing has changed
        objects["secrets/s"] = {"data": {"a": base64.b64encode(b"3").decode()}}
        await made.refresh(given)
        assert (file.read_bytes(), (made.places["v"] / "b").is_symlink()) == (b"3", False)

    asyncio.run(scene())


@is_root
def test_projected_volumes_have_tokens_and_fields_and_wait_for_what_is_missing(place: Path) -> None:
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "api"}}
    fields = {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}
    sources = [token, fields, {"configMap": {"name": "c", "items": [{"key": "k", "path": "deep/er"}]}}]
    given = pod(volumes=[{"name": "v", "projected": {"sources": sources}}])
    objects: dict[str, Json] = {}

    async def scene() -> None:
        made = volumes(place, objects)
        with pytest.raises(NotYet, match='configmap "c" not found'):
            await made.lay_out(given)
        objects["configmaps/c"] = {"data": {"k": "text"}}
        await made.lay_out(given)
        there = made.places["v"]
        assert (there / "token").read_text() == "token for api of 600 s"
        assert ((there / "ns").read_text(), (there / "deep/er").read_text()) == ("n", "text")

    asyncio.run(scene())


def test_fields_of_a_pod_are_texts() -> None:
    assert field_of(pod(), "metadata.labels['example.org/b']") == "c"
    assert field_of(pod(), "metadata.labels") == 'app="a"\nexample.org/b="c"\n'
    assert field_of(pod(nodeName="m"), "spec.nodeName") == "m"


def test_commands_name_variables() -> None:
    assert expanded(["-N", "$(NAME).x", "$(OTHER)"], {"NAME": "a"}) == ["-N", "a.x", "$(OTHER)"]


@pytest.mark.parametrize(
    "spec",
    [
        {"hostPID": True},
        {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
        {"containers": [{"name": "c", "securityContext": {"privileged": True}}]},
    ],
)
def test_what_reaches_this_machine_is_refused(spec: Json) -> None:
    with pytest.raises(Refused, match="runs no pod with"):
        check(pod(**spec))


def test_services_have_names_and_the_pods_of_headless_ones_too() -> None:
    services = Services(Network(), Supervisor(), "https://10.0.0.1:6443")
    services.set_service(("n", "web"), {"spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 80}]}})
    services.set_service(("n", "db"), {"spec": {"clusterIP": "None"}})
    endpoints = [
        {"addresses": ["10.200.0.5"], "hostname": "db-0", "conditions": {"ready": True}},
        {"addresses": ["10.200.0.6"], "hostname": "db-1", "conditions": {"ready": False}},
    ]
    labels = {"kubernetes.io/service-name": "db"}
    services.set_slice(("n", "db-x"), {"metadata": {"labels": labels}, "endpoints": endpoints})
    assert services.hosts("n").splitlines() == [
        "10.200.0.5 db-0.db.n.svc.cluster.local db-0.db.n.svc db-0.db.n db-0.db",
        "10.200.0.5 db.n.svc.cluster.local db.n.svc db.n db",
        "10.96.0.9 web.n.svc.cluster.local web.n.svc web.n web",
    ]
    assert "web.n.svc web.n\n" in services.hosts("other")


@is_root
@has_containers
def test_a_container_is_its_user_on_a_root_of_its_own(place: Path) -> None:
    """It sees the image's users and programs, its volumes and its network, and writes nothing of this machine."""
    image.lay_out(place / "image", {"alice": 2001})
    (place / "hosts").write_text("127.0.0.1 localhost\n")
    (place / "volume").mkdir()
    (place / "volume/file").write_text("inside\n")
    limited = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    script = "id -u; id -un alice; cat /run/volume/file; grep CapBnd /proc/self/status; echo $NAME; exec sleep 600"
    container = {"name": "c", "command": ["sh", "-c", script], "securityContext": limited}
    given = pod(securityContext={"runAsUser": image.USER, "runAsGroup": image.USER, "runAsNonRoot": True})

    async def scene() -> None:
        async with Network() as network:
            path, address = await network.add()
            env = {**image.environment(), "NAME": "of the manifest"}
            mounts = [Mount(place / "hosts", "/etc/hosts"), Mount(place / "volume", "/run/volume", read_only=True)]
            log = place / "log"
            where = Place(place / "root", path, "p", place / "image")
            running = await Container.start(where, given, container, env, mounts, log)
            try:
                while "of the manifest" not in log.read_text():
                    assert not running.has_ended, log.read_text()
                    await asyncio.sleep(0.05)
                wanted = [str(image.USER), "alice", "inside", "CapBnd:\t0000000000000000", "of the manifest"]
                assert log.read_text().splitlines() == wanted
                assert address in (await running.run("ip", "address"))[1]
                assert (await running.run("spritz", "--version"))[0] == 0
                status, text = await running.run("sh", "-c", "echo x > /run/volume/file")
                assert (status != 0, "Read-only" in text) == (True, True)
            finally:
                await running.stop(0.1)
            assert running.has_ended
            root = {"name": "c", "command": ["true"], "securityContext": {"runAsUser": 0}}
            with pytest.raises(Refused, match="runAsNonRoot"):
                await Container.start(where, given, root, env, mounts, log)

    asyncio.run(scene())
