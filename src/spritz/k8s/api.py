"""Requests to a Kubernetes API server.

lightkube brings configuration and typed resources, `credentials` authentication, `spritz.http` the transport. This adds
what an operator needs of every request: writes go out as server-side apply under one field manager, requests that can
be repeated are repeated a bounded number of times, and errors are one type with the server's reason.

A request is repeated after 429 (when the server's Retry-After has passed), 500, 502, 503 and 504, and after a
connection that failed. After such a failure it is unknown whether the server has acted, so `create` is repeated only
after an answer that says that it has not; everything else here may be done twice.

Source: Kubernetes API conventions, "HTTP Status codes" and "Response Status Kind".
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec
from lightkube import KubeConfig
from lightkube.config.kubeconfig import PROXY_CONF, SingleConfig
from lightkube.config.models import User
from lightkube.core import resource as lightkube_resource

from spritz.http.transport import Answer, Http, NoAnswer, Stream
from spritz.k8s.credentials import Login, tls_of

Resource = lightkube_resource.Resource
R = TypeVar("R", bound=Resource)
T = TypeVar("T")

#: answers after which the same request may succeed
_PASSING: Final = frozenset({429, 500, 502, 503, 504})
#: answers that say that the server has not acted
_NOT_DONE: Final = frozenset({429, 503})
#: how the server begins its answer, with the status 500, to an apply of a field with a value of another type
_MISTYPED: Final = ("failed to create typed patch object", "failed to convert new object")

MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"


class ApiFailure(Exception):
    """A request that the server refused, or that got no answer.

    `code` is the HTTP status, or 0 without an answer; `reason` is Kubernetes' word for it (`NotFound`, `Conflict`, …).
    """

    def __init__(self, code: int, reason: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        #: seconds that the server asks to wait
        self.retry_after = retry_after

    @property
    def not_found(self) -> bool:
        return self.code == 404

    @property
    def conflict(self) -> bool:
        """The object has changed since it was read, or another field manager owns a field."""
        return self.code == 409 and self.reason != "AlreadyExists"

    @property
    def already_exists(self) -> bool:
        return self.code == 409 and self.reason == "AlreadyExists"

    @property
    def expired(self) -> bool:
        """The resource version is no longer in the server's history."""
        return self.code == 410

    @property
    def invalid(self) -> bool:
        """The server will not take this object, whenever it is sent."""
        return self.code in (400, 422) or (self.code == 500 and self.message.startswith(_MISTYPED))

    @property
    def passing(self) -> bool:
        """The same request may succeed later."""
        return self.code == 0 or (self.code in _PASSING and not self.invalid)


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """How often a request is repeated, and the waits between attempts in seconds."""

    attempts: int = 5
    first: float = 0.2
    longest: float = 5.0
    #: a Retry-After beyond this is not waited for
    longest_asked: float = 30.0

    def delay(self, failures: int, retry_after: float | None, chance: float) -> float:
        """Seconds before the next attempt: between half and the whole of a doubling time. `chance` is in [0, 1)."""
        wait = min(self.longest, self.first * 2.0 ** (failures - 1)) * (0.5 + chance / 2)
        return max(wait, retry_after or 0.0)


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0


class _ListMeta(msgspec.Struct, frozen=True):
    resourceVersion: str = ""
    next: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: _ListMeta = _ListMeta()


class Page(msgspec.Struct, Generic[T]):
    """Result of a list request, with its resource version."""

    items: list[T]
    version: str


def decoder_of(resource: type[R]) -> Callable[[bytes], R]:
    """The function that makes an object of `resource` from JSON."""
    make: Any = resource
    if issubclass(make, msgspec.Struct):
        decode: Callable[[bytes], R] = msgspec.json.Decoder(make).decode
        return decode
    return lambda data: make(msgspec.json.decode(data))


def failure_of(code: int, body: bytes, headers: Mapping[str, str]) -> ApiFailure:
    """The error for an answer of the server, or of a proxy, whose body is not a Status."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.DecodeError:
        status = _Status(message=body[:200].decode(errors="replace"))
    try:
        retry_after: float | None = float(headers.get("retry-after", ""))
    except ValueError:
        retry_after = None
    return ApiFailure(code, status.reason, status.message or f"HTTP status {code}", retry_after=retry_after)


class Api:
    """A client of the API server. Close it, or use it in `async with`.

    `guard` is called before every write and raises to stop it: a leader that has lost its lease writes no more.
    """

    def __init__(
        self,
        config: SingleConfig,
        *,
        timeout: float = 10.0,
        field_manager: str = "spritz-operator",
        retries: Retries | None = None,
        guard: Callable[[], None] | None = None,
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        user = config.user or User()
        tls = tls_of(config.cluster, user, config.abs_file)
        #: the namespace that the configuration names
        self.namespace = config.namespace
        self.http = Http(config.cluster.server, tls=tls, timeout=timeout)
        self.field_manager = field_manager
        self.guard = guard
        self._login = Login(user)
        self._retries = retries or Retries()
        self._chance = chance
        self._sleep = sleep
        #: requests sent, by method, repeats included
        self.sent: dict[str, int] = {}
        #: requests that were sent again
        self.repeated = 0

    @classmethod
    def connect(cls, kubeconfig: Path | str | None = None, **options: Any) -> Api:
        """The API server that `kubeconfig` names, or else the pod's own, $KUBECONFIG's or ~/.kube/config's.

        `timeout`, in seconds, is for connecting and for each read of an answer.
        """
        config = KubeConfig.from_file(str(kubeconfig)) if kubeconfig is not None else KubeConfig.from_env()
        configuration: SingleConfig = config.get(default=PROXY_CONF)  # type: ignore[assignment]  # None only without a default
        return cls(configuration, **options)

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.http.close()

    # Reading

    async def get(self, resource: type[R], name: str, namespace: str | None = None) -> R:
        """The object; raises ApiFailure (404) if there is none."""
        body = await self.send("GET", self.path(resource, namespace, name))
        return decoder_of(resource)(body)

    async def find(self, resource: type[R], name: str, namespace: str | None = None) -> R | None:
        """The object, or None if there is none."""
        body = await self.find_path(self.path(resource, namespace, name))
        return decoder_of(resource)(body) if body is not None else None

    async def find_path(self, path: str) -> bytes | None:
        """The object at the path as JSON, or None if there is none."""
        try:
            return await self.send("GET", path)
        except ApiFailure as failure:
            if failure.not_found:
                return None
            raise

    async def list(
        self,
        resource: type[R],
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        page: int = 500,
    ) -> Page[R]:
        """All objects, of all namespaces if none is given, in pages that show one resource version."""
        return await self.list_as(decoder_of(resource), resource, namespace, labels=labels, fields=fields, page=page)

    async def list_as(
        self,
        decode: Callable[[bytes], T],
        resource: type[Resource],
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        page: int = 500,
    ) -> Page[T]:
        """`list`, with each object's JSON given to `decode`."""
        parameters = {"labelSelector": labels, "fieldSelector": fields, "limit": str(page) if page else None}
        path = self.path(resource, namespace)
        items: list[T] = []
        while True:
            try:
                part = msgspec.json.decode(await self.send("GET", path, parameters=parameters), type=_List)
            except ApiFailure as failure:
                if not (failure.expired and parameters.get("continue")):
                    raise
                # The server has dropped this version while pages were read: read all again in one answer.
                parameters |= {"limit": None, "continue": None}
                items = []
                continue
            items += [decode(bytes(item)) for item in part.items or ()]
            if not part.metadata.next:
                return Page(items, part.metadata.resourceVersion)
            parameters["continue"] = part.metadata.next

    async def version_of(self, resource: type[Resource], namespace: str | None = None) -> str:
        """The server's present resource version."""
        part = await self.send("GET", self.path(resource, namespace), parameters={"limit": "1"})
        return msgspec.json.decode(part, type=_List).metadata.resourceVersion

    # Writing

    async def apply(self, obj: R, *, force: bool = True, status: bool = False) -> R:
        """Server-side apply: the operator manages the fields of `obj`; fields that it applied before and not now go.

        `obj` needs apiVersion, kind, name and namespace, and neither managedFields nor a resource version. With
        `force`, fields of other managers become ours too.
        """
        resource = type(obj)
        name, namespace = _name_of(obj)
        body = await self.send(
            "PATCH",
            self.path(resource, namespace, name, "status" if status else None),
            parameters={"fieldManager": self.field_manager, "force": "true" if force else None},
            body=_encode(obj),
            content_type=APPLY,
        )
        return decoder_of(resource)(body)

    async def create(self, obj: R) -> R:
        """Create the object. Raises ApiFailure; `already_exists` may be due to an earlier attempt without an answer."""
        resource = type(obj)
        _name, namespace = _name_of(obj)
        body = await self.send(
            "POST",
            self.path(resource, namespace),
            parameters={"fieldManager": self.field_manager},
            body=_encode(obj),
            repeatable=False,
        )
        return decoder_of(resource)(body)

    async def replace(self, obj: R, *, status: bool = False) -> R:
        """Update the whole object, or its status. Raises ApiFailure (409) if it has changed since it was read."""
        resource = type(obj)
        name, namespace = _name_of(obj)
        body = await self.send(
            "PUT",
            self.path(resource, namespace, name, "status" if status else None),
            parameters={"fieldManager": self.field_manager},
            body=_encode(obj),
        )
        return decoder_of(resource)(body)

    async def patch(
        self,
        resource: type[R],
        name: str,
        namespace: str | None,
        change: Any,
        *,
        content_type: str = MERGE,
        subresource: str | None = None,
    ) -> R:
        """A merge patch, or another by `content_type`. For one field of an object that is not ours, such as a taint."""
        body = await self.send(
            "PATCH",
            self.path(resource, namespace, name, subresource),
            parameters={"fieldManager": self.field_manager},
            body=msgspec.json.encode(change),
            content_type=content_type,
        )
        return decoder_of(resource)(body)

    async def delete(
        self,
        resource: type[Resource],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace: int | None = None,
        propagation: str | None = None,
    ) -> bool:
        """Delete the object, if it is (still) the one with that uid; False if there is none.

        `grace` is in seconds. `propagation` is Background, Foreground or Orphan. An object exists until its grace
        period and finalizers are over.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if propagation is not None:
            options["propagationPolicy"] = propagation
        try:
            await self.send("DELETE", self.path(resource, namespace, name), body=msgspec.json.encode(options))
        except ApiFailure as failure:
            # With a uid as precondition, a conflict means that another object has the name now.
            if failure.not_found or (failure.conflict and uid is not None):
                return False
            raise
        return True

    async def bind(
        self, name: str, namespace: str, node: str, *, uid: str | None = None, annotations: dict[str, str] | None = None
    ) -> None:
        """Bind the pod to the node, with these annotations. Raises ApiFailure (409) if it is bound to another, has gone
        or is being deleted.
        """
        metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        if uid is not None:
            metadata["uid"] = uid
        if annotations:
            metadata["annotations"] = annotations
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"api/v1/namespaces/{namespace}/pods/{name}"
        before = self.repeated
        try:
            await self.send("POST", f"{path}/binding", body=msgspec.json.encode(binding))
        except ApiFailure as failure:
            if not failure.conflict or self.repeated == before:
                raise
            # The first attempt, whose answer was lost, may have bound it.
            pod = msgspec.json.decode(await self.send("GET", path))
            if pod["spec"].get("nodeName") != node or uid not in (None, pod["metadata"]["uid"]):
                raise

    async def evict(self, name: str, namespace: str, *, uid: str | None = None, grace: int | None = None) -> bool:
        """Ask for the pod's eviction; False if it has gone.

        Raises ApiFailure (429) while a PodDisruptionBudget forbids it: that is not repeated, since it may last.
        """
        options: dict[str, Any] = {}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        path = f"api/v1/namespaces/{namespace}/pods/{name}/eviction"
        try:
            await self.send("POST", path, body=msgspec.json.encode(eviction), wait_for_429=False)
        except ApiFailure as failure:
            if failure.not_found or (failure.conflict and uid is not None):
                return False
            raise
        return True

    # Underneath

    def path(
        self, resource: type[Resource], namespace: str | None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The path below the server's address: of all namespaces if neither a namespace nor a name is given."""
        info = lightkube_resource.api_info(resource)
        definition = info.parent or info.resource
        parts = ["apis", definition.group] if definition.group else ["api"]
        parts.append(definition.version)
        if issubclass(resource, (lightkube_resource.NamespacedResource, lightkube_resource.NamespacedSubResource)):
            if namespace is None and name is not None:
                raise ValueError(f"a {definition.kind} has a namespace; none was given for {name!r}")
            if namespace is not None:
                parts += ["namespaces", namespace]
        parts.append(info.plural)
        parts += [part for part in (name, subresource) if part is not None]
        return "/".join(parts)

    async def send(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str | None] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        repeatable: bool = True,
        wait_for_429: bool = True,
    ) -> bytes:
        """Send one request, repeat it as `Retries` allows, and return the answer's body. Raises ApiFailure."""
        failures = 0
        while True:
            if method != "GET" and self.guard is not None:
                self.guard()
            try:
                return await self._send_once(method, path, parameters, body, content_type)
            except ApiFailure as failure:
                failures += 1
                may_repeat = failure.passing and (repeatable or failure.code in _NOT_DONE)
                if failure.code == 429 and not wait_for_429:
                    may_repeat = False
                too_long = (failure.retry_after or 0.0) > self._retries.longest_asked
                if not may_repeat or too_long or failures >= self._retries.attempts:
                    raise
                self.repeated += 1
                await self._sleep(self._retries.delay(failures, failure.retry_after, self._chance()))

    async def _send_once(
        self, method: str, path: str, parameters: Mapping[str, str | None] | None, body: bytes | None, content_type: str
    ) -> bytes:
        answer = await self.exchange(method, path, parameters, body, {"Content-Type": content_type})
        if answer.status >= 400:
            raise failure_of(answer.status, answer.body, answer.headers)
        return answer.body

    async def exchange(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, str | None] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request once and return the answer with any status. Raises ApiFailure without an answer."""
        given = {key: value for key, value in (parameters or {}).items() if value is not None}
        refused = False
        while True:
            self.sent[method] = self.sent.get(method, 0) + 1
            login = await self._authorization(refused)
            try:
                answer = await self.http.send(
                    method, path, parameters=given, body=body, headers={**login, **(headers or {})}
                )
            except NoAnswer as error:
                raise unanswered(error) from error
            if answer.status != 401 or refused or not self._login.is_renewable:
                return answer
            refused = True

    @asynccontextmanager
    async def stream(
        self, path: str, parameters: Mapping[str, str | None] | None = None, *, silence: float
    ) -> AsyncIterator[Stream]:
        """A GET whose answer is read as it comes. Raises ApiFailure; reading raises NoAnswer."""
        given = {key: value for key, value in (parameters or {}).items() if value is not None}
        self.sent["GET"] = self.sent.get("GET", 0) + 1
        try:
            async with self.http.stream(
                path, parameters=given, headers=await self._authorization(), silence=silence
            ) as response:
                if response.status >= 400:
                    if response.status == 401:
                        await self._authorization(refused=True)
                    raise failure_of(response.status, await response.read(), response.headers)
                yield response
        except NoAnswer as error:
            raise unanswered(error) from error

    async def _authorization(self, refused: bool = False) -> dict[str, str]:
        """`refused`: the server has just refused the last. Raises ConfigError."""
        header = await self._login.header(refused=refused)
        return {"Authorization": header} if header else {}


def unanswered(error: NoAnswer) -> ApiFailure:
    """The error for a request without a complete answer."""
    return ApiFailure(0, "NoAnswer", str(error))


def _encode(obj: Any) -> bytes:
    info = lightkube_resource.api_info(type(obj))
    if not obj.apiVersion:
        obj.apiVersion = info.resource.api_version
    if not obj.kind:
        obj.kind = info.resource.kind
    return msgspec.json.encode(obj)


def _name_of(obj: Any) -> tuple[str | None, str | None]:
    metadata = obj.metadata
    return (metadata.name, metadata.namespace) if metadata is not None else (None, None)
