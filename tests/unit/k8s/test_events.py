"""Events as `kubectl get events` lists them."""

from __future__ import annotations

import datetime

import msgspec

from spritz.k8s.events import event_request


def test_an_event_has_the_times_and_the_count_that_kubectl_shows() -> None:
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "ns", "uid": "u"}
    path, body = event_request(about, "ns", "Waiting", "in line", of=1, component="spritz", warning=False)
    event = msgspec.json.decode(body)
    assert path == "api/v1/namespaces/ns/events"
    assert event["firstTimestamp"] == event["lastTimestamp"]
    assert datetime.datetime.fromisoformat(event["lastTimestamp"]).tzinfo is not None
    assert event["count"] == 1
    assert event["reportingComponent"] == event["source"]["component"] == "spritz"
