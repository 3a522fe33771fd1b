"""Admission of pods: assigns pods to this scheduler, and refuses those that cannot become a job.

In a namespace with the label `spritz.dev/schedule=true`, pods without a scheduler's name get this scheduler, so their
manifests need no change. Pods of a DaemonSet stay with the default scheduler, since each has its node already.

A pod that cannot be a job is refused here, with the field's path and a remedy, so that its owner need not search for an
event. Pods that were stored while no operator answered are refused by such an event.

Source: Kubernetes, "Dynamic Admission Control" (AdmissionReview v1).
"""

from __future__ import annotations

import base64
import difflib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from spritz.k8s.pods import (
    GANG,
    GANG_SIZE,
    GPUS,
    JOB,
    PREFIX,
    SLOT,
    Pod,
    Unfit,
    annotation,
    check_gang,
    gang_size,
    maker_of,
    options_of,
    shape_of,
    workload_of,
)
from spritz.k8s.policy import Policy
from spritz.k8s.scheduling import pod_fields

Json = dict[str, Any]

#: Annotations that pods may have, and those that the operator writes.
_SAID: Final = frozenset(
    {GANG, GANG_SIZE}
    | {
        PREFIX + name
        for name in ("account", "gpu-type", "licenses", "partition", "priority", "qos", "reservation", "time-limit")
    }
)
_WRITTEN: Final = frozenset({JOB, SLOT, GPUS})

#: The scheduler's name that the server sets for pods without one.
_DEFAULT: Final = "default-scheduler"


class Cause(msgspec.Struct, frozen=True):
    """A mistake in one field of a pod. `reason` is a CauseType of the Kubernetes API."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


def pod_answers(scheduler: str, policy: Policy) -> dict[str, Callable[[Json], Awaitable[Json]]]:
    """By the path of the webhook."""

    async def mutate(review: Json) -> Json:
        return answer("/mutate", review, scheduler, policy)

    async def validate(review: Json) -> Json:
        return answer("/validate", review, scheduler, policy)

    return {"/mutate": mutate, "/validate": validate}


def answer(path: str, review: Json, scheduler: str, policy: Policy) -> Json:
    """The answer to an AdmissionReview that came to `/mutate` or `/validate`. Raises KeyError for any other path."""
    request = review["request"]
    response: Json = {"uid": request["uid"], "allowed": True}
    try:
        pod = msgspec.convert(request["object"], Pod)
    except msgspec.ValidationError:
        pod = None  # the server itself refuses it
    if pod is not None:
        if not pod.metadata.namespace:
            metadata = msgspec.structs.replace(pod.metadata, namespace=request.get("namespace") or "")
            pod = msgspec.structs.replace(pod, metadata=metadata)
        response |= {"/mutate": _mutated, "/validate": _validated}[path](pod, scheduler, policy)
        if path == "/validate" and response["allowed"] and pod.spec.scheduler_name == scheduler:
            warnings = [*pod_fields.wishes(pod), *pod_fields.unknown(request["object"].get("spec") or {})]
            if warnings:
                response["warnings"] = warnings
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _mutated(pod: Pod, scheduler: str, _policy: Policy) -> Json:
    from_daemon_set = any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references or ())
    if pod.spec.scheduler_name not in ("", _DEFAULT) or pod.is_placed or from_daemon_set:
        return {}
    patch = [{"op": "add", "path": "/spec/schedulerName", "value": scheduler}]
    return {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}


def _validated(pod: Pod, scheduler: str, policy: Policy) -> Json:
    mistakes = causes(pod, policy) if pod.spec.scheduler_name == scheduler else []
    return refusal("Pod", mistakes) if mistakes else {}


def refusal(kind: str, found: list[Cause]) -> Json:
    """What a response says that refuses an object of this kind."""
    message = "; ".join(f"{cause.field}: {cause.message}" for cause in found)
    details = {"kind": kind, "causes": msgspec.to_builtins(found)}
    status = {"status": "Failure", "code": 422, "reason": "Invalid", "message": message, "details": details}
    return {"allowed": False, "status": status}


def causes(pod: Pod, policy: Policy) -> list[Cause]:
    """All reasons why the pod cannot be a job."""
    mistakes = []
    for name in sorted(pod.metadata.annotations or {}):
        if not name.startswith(PREFIX) or name in _SAID:
            continue
        if name in _WRITTEN:
            mistakes.append(Cause(annotation(name), "is written by the operator when the pod is placed: leave it out"))
        else:
            near = difflib.get_close_matches(name, _SAID, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(_SAID))}"
            mistakes.append(Cause(annotation(name), f"there is no such annotation; {hint}"))
    mistakes += [Cause(unfit.field, str(unfit)) for unfit in pod_fields.demands(pod)]
    mistakes += [Cause(unfit.field, str(unfit)) for unfit in policy.refusals(pod)]
    for check in (policy.user, shape_of, options_of, _gang):
        try:
            check(pod)
        except Unfit as unfit:
            mistakes.append(Cause(unfit.field, str(unfit)))
    return mistakes


def _gang(pod: Pod) -> None:
    check_gang(pod)
    maker = maker_of(pod)
    if maker is not None and maker.kind not in ("LeaderWorkerSet", "JobSet"):
        return
    if workload_of(pod).startswith("gang/"):
        gang_size([pod])
    elif pod.metadata.note(GANG_SIZE):
        raise Unfit(f"a gang needs a name: set {GANG} to the same value on each of its pods", annotation(GANG_SIZE))
