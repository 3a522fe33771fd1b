"""Objects of the operator for clusters: what is written, and what of a resource may not change."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from spritz.k8s.api import Api, ApiFailure
from spritz.k8s.custom_resources.cluster_objects import Cluster, Json, configuration, control_plane
from spritz.k8s.custom_resources.fixed_fields import changed_since_made, changes_of_cluster, changes_of_token
from spritz.k8s.custom_resources.login_sets import LoginSet, Token, login_objects
from spritz.k8s.custom_resources.node_sets import NodeSet, budget
from spritz.k8s.custom_resources.objects import Objects, is_anothers

PASSWORD = {"name": "pg", "key": "password"}
DATABASE = {"host": "pg", "user": "slurm", "passwordSecret": PASSWORD}


def cluster(**spec: Any) -> Cluster:
    about = {"name": "lab", "namespace": "ns", "uid": "u"}
    return msgspec.convert({"metadata": about, "spec": {"image": "spritz", **spec}}, Cluster)


class Server:
    """Keeps objects as Kubernetes does: quantities in their shortest form, and no field that is false or empty."""

    field_manager = "spritz"

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.writes: list[str] = []

    async def find_path(self, path: str) -> bytes | None:
        have = self.objects.get(path)
        return None if have is None else msgspec.json.encode(have)

    async def send(self, _method: str, path: str, *, body: bytes, **_: Any) -> bytes:
        self.writes.append(path)
        self.objects[path] = _kept(msgspec.json.decode(body))
        return msgspec.json.encode(self.objects[path])


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _kept(each) for name, each in value.items() if each not in (False, "", {}, [])}
    if isinstance(value, list):
        return [_kept(each) for each in value]
    return {"1000m": "1", "1024Mi": "1Gi"}.get(value, value) if isinstance(value, str) else value


def test_an_object_is_written_only_when_something_has_changed() -> None:
    about = {"name": "login", "namespace": "ns", "uid": "v"}
    login = {
        "clusterRef": "lab",
        "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}},
        "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "1024Mi"}}],
        "volumeMounts": [{"name": "cache", "mountPath": "/cache", "readOnly": False}],
    }
    nodes = {"clusterRef": "lab", "cpus": 1, "memory": "1Gi"}
    lab = cluster(controllers=2, database=DATABASE, dashboard={"hosts": ["a"]}, storage={"size": "1024Mi"})
    config = configuration(lab)

    def wanted() -> list[Json]:
        return [
            *control_plane(lab, config, config.revision),
            *login_objects(lab, msgspec.convert({"metadata": about, "spec": login}, LoginSet)),
            budget(msgspec.convert({"metadata": {**about, "name": "cpu"}, "spec": nodes}, NodeSet)),
        ]

    async def look(objects: Objects) -> None:
        for each in wanted():
            await objects.ensure(each)

    async def work() -> None:
        server = Server()
        objects = Objects(cast(Api, server), lambda event, **fields: None, lambda: 0.0)
        await look(objects)
        assert len(server.writes) == len(wanted()) == len(server.objects)
        server.writes.clear()
        await look(objects)
        assert server.writes == []
        # Somebody changes an object, and the resource is changed.
        path = "apis/apps/v1/namespaces/ns/deployments/login"
        sshd = server.objects[path]["spec"]["template"]["spec"]["containers"][1]
        sshd["resources"]["limits"]["cpu"] = "2"
        await look(objects)
        assert server.writes == [path]
        login["resources"] = {"limits": {"cpu": "3"}}
        await look(objects)
        await look(objects)
        assert server.writes == [path, path]
        # Another operator does not know what was sent, and writes once what it cannot tell from a change.
        other = Objects(cast(Api, server), lambda event, **fields: None, lambda: 0.0)
        await look(other)
        server.writes.clear()
        await look(other)
        assert server.writes == []

    asyncio.run(work())


def test_an_object_is_ours_by_its_owner_or_left_by_one_of_the_same_name() -> None:
    (wanted,) = (each for each in control_plane(cluster(), configuration(cluster()), "") if each["kind"] == "ConfigMap")
    ours, labels = wanted["metadata"]["ownerReferences"], wanted["metadata"]["labels"]
    theirs = {"kind": "Deployment", "name": "d", "uid": "d", "controller": True}

    def found(owners: list[Json], labels: dict[str, str]) -> Json:
        return {"metadata": {"name": "lab-config", "ownerReferences": owners, "labels": labels}}

    for have in (found(ours, {}), found([], labels), found([{**theirs, "controller": False}], labels)):
        assert not is_anothers(have, wanted)
    for have in (found([], {}), found([theirs], labels), found([{**ours[0], "uid": "before"}], labels)):
        assert is_anothers(have, wanted)


@pytest.mark.parametrize(
    ("code", "message", "passing"),
    [
        (422, "", False),
        (400, "", False),
        (500, "failed to create typed patch object (a/b; v1, Kind=Pod): .spec: expected map", False),
        (500, "failed to convert new object (a/b; v1, Kind=Pod): quantities must match", False),
        (500, "etcdserver: request timed out", True),
    ],
)
def test_an_object_that_the_server_will_never_take_is_not_sent_again(code: int, message: str, passing: bool) -> None:
    failure = ApiFailure(code, "", message)
    assert (failure.passing, failure.invalid) == (passing, not passing)


#: spec of a SpritzCluster, the changed one, and the field that may not change
REFUSED: list[tuple[Json, Json, str]] = [
    ({}, {"clusterName": "other"}, "spec.clusterName"),
    ({"clusterName": "other"}, {}, "spec.clusterName"),
    ({"clusterName": "one"}, {"clusterName": "two"}, "spec.clusterName"),
    ({}, {"storage": {"size": "20Gi"}}, "spec.storage.size"),
    ({"storage": {"size": "1Gi"}}, {"storage": {"size": "512Mi"}}, "spec.storage.size"),
    ({}, {"storage": {"storageClassName": "fast"}}, "spec.storage.storageClassName"),
    ({"storage": {"storageClassName": "fast"}}, {}, "spec.storage.storageClassName"),
    ({}, {"database": DATABASE}, "spec.database"),
    ({"database": DATABASE}, {}, "spec.database"),
    ({"database": DATABASE}, {"database": {**DATABASE, "name": "other"}}, "spec.database.name"),
    (
        {"database": DATABASE, "controllers": 2},
        {"database": {**DATABASE, "journal": "other"}, "controllers": 3},
        "spec.database.journal",
    ),
]
ALLOWED: list[tuple[Json, Json]] = [
    ({}, {"clusterName": "lab"}),
    ({"clusterName": "lab"}, {}),
    ({"database": DATABASE}, {"database": {**DATABASE, "host": "pg2", "user": "other", "journal": "other"}}),
    ({"controllers": 2, "database": DATABASE}, {"controllers": 3, "database": {**DATABASE, "port": 1}}),
    ({}, {"image": "newer", "maxNodes": 7, "metrics": True, "dashboard": {"hosts": ["a"]}, "extraConfig": "# a"}),
    ({"dashboard": {"hosts": ["a"]}, "topology": {"label": "rack"}}, {"healthCheck": {"program": ""}}),
]


@pytest.mark.parametrize(("old", "new", "field"), REFUSED)
def test_what_would_lose_data_is_refused(old: Json, new: Json, field: str) -> None:
    assert [name for name, _message in changes_of_cluster(cluster(**new), cluster(**old))] == [field]


@pytest.mark.parametrize(("old", "new"), ALLOWED)
def test_other_fields_may_change(old: Json, new: Json) -> None:
    assert list(changes_of_cluster(cluster(**new), cluster(**old))) == []


def test_a_token_keeps_its_cluster_and_its_secret() -> None:
    def token(**spec: Any) -> Token:
        return msgspec.convert({"metadata": {"name": "t"}, "spec": {"clusterRef": "lab", **spec}}, Token)

    assert list(changes_of_token(token(secretName="t", uses=3), token())) == []
    changed = changes_of_token(token(clusterRef="b", secretName="s"), token())
    assert [name for name, _message in changed] == ["spec.clusterRef", "spec.secretName"]


@pytest.mark.parametrize(
    ("new", "field"),
    [
        ({}, ""),
        ({"image": "newer"}, ""),
        ({"storage": {"size": "10240Mi"}}, ""),
        ({"clusterName": "other"}, "spec.clusterName"),
        ({"storage": {"size": "20Gi"}}, "spec.storage.size"),
        ({"storage": {"storageClassName": "fast"}}, "spec.storage.storageClassName"),
    ],
)
def test_a_change_that_was_stored_nevertheless_is_seen_at_the_objects(new: Json, field: str) -> None:
    config = configuration(cluster())
    made = {(each["kind"], each["metadata"]["name"]): each for each in control_plane(cluster(), config, "")}
    objects = made["ConfigMap", "lab-config"], made["StatefulSet", "lab-controller"]
    words = changed_since_made(cluster(**new), *objects)
    assert words.startswith(f"{field}: ") if field else words == ""
    assert changed_since_made(cluster(**new), None, None) == "", "nothing is made yet"
