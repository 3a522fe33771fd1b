"""The fake API server: HTTP, authentication, routes, discovery, faults.

    async with KubeServer() as server:
        api = Api.connect(server.kubeconfig)

The state is `server.cluster`; tests may read it, and change it with `server.cluster.put`.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import ipaddress
import ssl
import tempfile
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from spritz.runtime.clock import Clock, SystemClock
from spritz.runtime.tasks import Supervisor
from spritz_testing.kubernetes import access, errors, faults, tables
from spritz_testing.kubernetes.access import ADMIN, ANONYMOUS, AccessAttributes, User
from spritz_testing.kubernetes.bodies import applied_body, body_of, delete_options
from spritz_testing.kubernetes.cluster import Cluster, Request
from spritz_testing.kubernetes.controllers import Controllers
from spritz_testing.kubernetes.discovery import PLAIN, REVIEWS, discovery
from spritz_testing.kubernetes.errors import Object, Refusal, bad_request
from spritz_testing.kubernetes.http import Connection, Incoming
from spritz_testing.kubernetes.kinds import Kind
from spritz_testing.kubernetes.patches import json_patch, merge
from spritz_testing.kubernetes.pods import bind, evict
from spritz_testing.kubernetes.store import Backup
from spritz_testing.kubernetes.watching import Stored, Watcher

ADMIN_TOKEN: Final = "admin"

_VERBS: Final = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "HEAD": "get"}


class Logged(msgspec.Struct, frozen=True):
    """An answered request, kept for tests to look at."""

    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int


class KubeServer:
    """A Kubernetes API server for tests, on a port of the loopback interface."""

    def __init__(
        self,
        *,
        port: int = 0,
        tls: bool = True,
        history: int = 20_000,
        bookmark_seconds: float = 60.0,
        clock: Clock | None = None,
        directory: Path | None = None,
        controllers: bool = True,
    ) -> None:
        self.cluster = Cluster(history=history, clock=clock)
        self.cluster.tokens.fixed[ADMIN_TOKEN] = ADMIN
        self.faults = faults.Faults()
        self.bookmark_seconds = bookmark_seconds
        #: answered requests, the newest last
        self.log: deque[Logged] = deque(maxlen=100_000)
        self._port = port
        self._tls = tls
        self._clock = clock or SystemClock()
        self._directory = directory
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._tasks = Supervisor(self._failed)
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._partitioned = False
        self._certificate = b""
        self._with_controllers = controllers
        #: failures of the server itself, which a test checks at its end
        self.failures: list[str] = []
        #: (namespace, pod, container) → text of its log; the node emulator sets it
        self.pod_log: Any = None

    def _failed(self, name: str, error: Exception) -> None:
        self.failures.append(f"{name}: {error!r}")

    async def __aenter__(self) -> KubeServer:
        await self._tasks.__aenter__()
        if self._directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="spritz-kubernetes-")
            self._directory = Path(self._temporary.name)
        context = self._context() if self._tls else None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._answer, self._tasks, self._connections, lambda: self._partitioned),
            "127.0.0.1",
            self._port,
            ssl=context,
        )
        self._port = self._server.sockets[0].getsockname()[1]
        if self._with_controllers:
            self.controllers = Controllers(self.cluster, self._tasks)
            self.controllers.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for connection in list(self._connections):
            connection.abort()
        self._tasks.cancel_all()
        await self.cluster.webhooks.close()
        await self._tasks.__aexit__(kind, error, trace)
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = self._directory = None

    # Access

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def kubeconfig(self) -> Path:
        """Path of a kubeconfig for the cluster's administrator."""
        return self.kubeconfig_for(ADMIN_TOKEN, "admin")

    def kubeconfig_for(self, token: str, name: str, namespace: str = "default") -> Path:
        """Path of a kubeconfig with that token."""
        assert self._directory is not None
        path = self._directory / f"{name}.kubeconfig"
        if not path.exists():
            cluster: Object = {"server": self.url}
            if self._tls:
                cluster["certificate-authority-data"] = base64.b64encode(self._certificate).decode()
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "clusters": [{"name": "test", "cluster": cluster}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": name, "namespace": namespace}}],
                "users": [{"name": name, "user": {"token": token}}],
            }
            path.write_text(yaml.safe_dump(config))
        return path

    def user(self, name: str, groups: tuple[str, ...] = (), namespace: str = "default") -> Path:
        """The kubeconfig of a user, whose permissions are those of RBAC objects."""
        token = f"token-of-{name}"
        self.cluster.tokens.fixed[token] = User(name, groups)
        return self.kubeconfig_for(token, name.replace(":", "-"), namespace)

    def service_account(self, namespace: str, name: str) -> Path:
        """The kubeconfig of a service account, which need not exist yet."""
        token = f"token-of-{namespace}-{name}"
        self.cluster.tokens.fixed[token] = access.service_account(namespace, name)
        return self.kubeconfig_for(token, f"{namespace}-{name}", namespace)

    @property
    def certificate(self) -> bytes:
        """The authority that clients trust, in PEM."""
        return self._certificate

    def _context(self) -> ssl.SSLContext:
        assert self._directory is not None
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
        moment = datetime.datetime.fromtimestamp(self._clock.now(), datetime.UTC)
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(moment - datetime.timedelta(days=1))
            .not_valid_after(moment + datetime.timedelta(days=30))
            .add_extension(names, critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=True,
                    crl_sign=False,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        self._certificate = certificate.public_bytes(serialization.Encoding.PEM)
        both = self._directory / "server.pem"
        both.touch(mode=0o600)
        both.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + self._certificate
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(both)
        return context

    # Faults of the whole server

    def partition(self, on: bool = True) -> None:
        """Cut all connections, and refuse new ones, until `partition(False)`."""
        self._partitioned = on
        if on:
            for connection in list(self._connections):
                connection.abort()

    def drop_watches(self, resource: str | None = None, *, abruptly: bool = False) -> int:
        """End the watches of a resource, or all, like a server that restarts, or `abruptly` within a chunk."""
        watchers = [watcher for watcher in self.cluster.watchers() if resource in (None, watcher.kind.plural)]
        for watcher in watchers:
            watcher.end()
        if abruptly:
            for connection in [connection for connection in self._connections if connection.on_lost is not None]:
                connection.abort()
        return len(watchers)

    def expire_watches(self) -> None:
        """Delete the history, and end all watches: those that resume get 410."""
        self.cluster.compact()
        self.cluster.version += 1  # so that even a watch that is up to date is too old
        self.cluster.compact()
        self.drop_watches()

    def restore(self, backup: Backup) -> None:
        """Return to a backup of `cluster.backup`, and end all watches, as a server whose etcd was restored."""
        self.cluster.restore(backup)
        self.drop_watches()

    def writes(self) -> int:
        """Number of writing requests so far."""
        return sum(request.verb not in ("get", "list", "watch") for request in self.log)

    # Requests

    async def _answer(self, incoming: Incoming, connection: Connection) -> None:
        asked, user = AccessAttributes("get", path=incoming.path), ANONYMOUS
        code = 200
        try:
            user = self._authenticate(incoming)
            route = self._route(incoming)
            asked = route.asked
            lose = False
            for fault in self.faults.take(asked, user):
                if fault.action == faults.DELAY:
                    await asyncio.sleep(fault.seconds)
                elif fault.action == faults.ERROR:
                    raise _injected(fault)
                elif fault.action == faults.DROP:
                    connection.abort()
                    return
                else:
                    lose = True
            if not self.cluster.rules.allowed(user, asked):
                raise self._denied(asked, user)
            if asked.verb == "watch":
                await self._watch(route, incoming, connection)
                return
            code, body, warnings = await self._act(route, incoming, user)
            if lose:
                connection.abort()
                return
            headers = {"Audit-Id": "0"}
            if warnings:
                quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in warnings)
                headers["Warning"] = ", ".join(f'299 - "{text}"' for text in quoted)
            kind = "text/plain" if asked.path in PLAIN or asked.subresource == "log" else "application/json"
            connection.reply(code, body, content_type=kind, headers=headers)
        except errors.NoSuchGroup as refusal:
            code = refusal.code
            connection.reply(code, refusal.TEXT.encode(), content_type="text/plain; charset=utf-8")
        except Refusal as refusal:
            code = refusal.code
            more = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after is not None else None
            connection.reply(code, msgspec.json.encode(refusal.status()), headers=more)
        except Exception as error:
            code = 500
            self.failures.append(f"{incoming.method} {incoming.path}: {error!r}")
            broken = Refusal(500, "InternalError", f"Internal error occurred: {error!r}")
            connection.reply(500, msgspec.json.encode(broken.status()))
            raise
        finally:
            self.log.append(
                Logged(
                    user.name,
                    asked.verb,
                    asked.resource or asked.path,
                    asked.subresource,
                    asked.namespace,
                    asked.name,
                    code,
                )
            )

    def _denied(self, asked: AccessAttributes, user: User) -> Refusal:
        if asked.path:
            return Refusal(403, "Forbidden", f"forbidden: {asked.refusal(user)}")
        return errors.forbidden(asked.resource, asked.group, asked.name, asked.refusal(user))

    def _authenticate(self, incoming: Incoming) -> User:
        header = incoming.headers.get("authorization", "")
        if not header:
            return ANONYMOUS
        scheme, _space, token = header.partition(" ")
        if scheme.lower() != "bearer":
            raise errors.unauthorized()
        user, _audiences = self.cluster.tokens.user(token)
        asked = incoming.headers.get("impersonate-user")
        if asked is not None:
            if not self.cluster.rules.allowed(user, AccessAttributes("impersonate", "", "users", "", asked)):
                raise self._denied(AccessAttributes("impersonate", "", "users", "", asked), user)
            return User(
                asked, [incoming.headers["impersonate-group"]] if "impersonate-group" in incoming.headers else []
            )
        return user

    def _route(self, incoming: Incoming) -> _Route:
        """The route of the request. Raises Refusal (404)."""
        parts = [part for part in incoming.path.split("/") if part]
        if len(parts) >= 3 and parts[0] == "api":
            group, version, parts = "", parts[1], parts[2:]
        elif len(parts) >= 4 and parts[0] == "apis":
            group, version, parts = parts[1], parts[2], parts[3:]
        else:
            return _Route(None, AccessAttributes(_VERBS.get(incoming.method, "get"), path=incoming.path))
        namespace = ""
        if (
            parts[0] == "namespaces"
            and len(parts) >= 3
            and not (group == "" and len(parts) == 3 and parts[2] in ("status", "finalize"))
        ):
            namespace, parts = parts[1], parts[2:]
        plural, name = parts[0], parts[1] if len(parts) > 1 else ""
        subresource = parts[2] if len(parts) > 2 else ""
        kind = self.cluster.kind(group, version, plural)
        if kind is None and not any((group, plural) == (known, name_of) for known, name_of, _kind in REVIEWS):
            served = any((known.group, known.version) == (group, version) for known in self.cluster.kinds())
            raise errors.no_such_path() if served else errors.NoSuchGroup(404, "NotFound", "404 page not found")
        if kind is not None and (
            len(parts) > 3 or (name and kind.namespaced and not namespace) or (namespace and not kind.namespaced)
        ):
            raise errors.no_such_path()
        verb = _VERBS.get(incoming.method)
        if verb is None:
            raise Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        if verb == "get" and not name:
            verb = "watch" if incoming.query.get("watch") in ("true", "1") else "list"
        elif verb == "get" and incoming.query.get("watch") in ("true", "1") and not subresource:
            verb = "watch"
        elif verb == "delete" and not name:
            verb = "deletecollection"
        return _Route(kind, AccessAttributes(verb, group, plural, namespace, name, subresource))

    async def _act(self, route: _Route, incoming: Incoming, user: User) -> tuple[int, bytes, list[str]]:
        kind, asked = route.kind, route.asked
        if kind is None:
            if asked.path:
                return 200, discovery(self.cluster, incoming.path), []
            return 201, msgspec.json.encode(self._review(asked, body_of(incoming), user)), []
        query = incoming.query
        request = Request(
            user,
            query.get("fieldManager") or (incoming.headers.get("user-agent", "") or "unknown").split("/")[0][:128],
            dry_run=query.get("dryRun") == "All",
            field_validation=query.get("fieldValidation") or "Warn",
        )
        wants_table = tables.wanted(incoming.headers.get("accept", ""))
        if asked.verb == "list":
            return 200, self._list(kind, asked.namespace, query, wants_table), []
        if asked.subresource:
            code, obj = await self._subresource(kind, asked, incoming, request)
            return code, obj if isinstance(obj, bytes) else msgspec.json.encode(obj), request.warnings
        if asked.verb == "get":
            return 200, self._get(kind, asked, wants_table), []
        code, result = await self._write(kind, asked, incoming, request)
        if (
            kind.custom
            and result.get("apiVersion") != kind.api_version
            and "items" not in result
            and result.get("kind") == kind.kind
        ):
            result = result | {"apiVersion": kind.api_version}
        return code, msgspec.json.encode(result), request.warnings

    def _get(self, kind: Kind, asked: AccessAttributes, wants_table: bool) -> bytes:
        stored = self.cluster.stored(kind, asked.namespace, asked.name)
        if not wants_table:
            return _encoded(kind, stored)
        version = stored.obj["metadata"]["resourceVersion"]
        return msgspec.json.encode(tables.of(kind, [stored.obj], version, self.cluster.now()))

    async def _write(
        self, kind: Kind, asked: AccessAttributes, incoming: Incoming, request: Request
    ) -> tuple[int, Object]:
        """Status and answer of a request that changes objects."""
        cluster, query = self.cluster, incoming.query
        if asked.verb == "create":
            if asked.name:
                raise Refusal(
                    405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
                )
            return 201, await cluster.create(kind, asked.namespace, body_of(incoming), request)
        if asked.verb == "update":
            body = body_of(incoming)
            return 200, await cluster.update(kind, asked.namespace, asked.name, lambda _old: body, request)
        if asked.verb == "patch":
            return await self._patch(kind, asked, incoming, request)
        if asked.verb == "delete":
            options = delete_options(incoming)
            if options.get("dryRun"):
                request.dry_run = True
            result, gone = await cluster.delete(kind, asked.namespace, asked.name, options, request)
            if not gone:
                return 200, result
            details: Object = {"name": asked.name, "kind": kind.plural, "uid": result["metadata"]["uid"]}
            if kind.group:
                details["group"] = kind.group
            status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
            return 200, status
        if asked.verb == "deletecollection":
            deleted = await cluster.delete_collection(
                kind,
                asked.namespace,
                query.get("labelSelector", ""),
                query.get("fieldSelector", ""),
                delete_options(incoming),
                request,
            )
            metadata = {"resourceVersion": str(cluster.version)}
            listed = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata}
            return 200, {**listed, "items": deleted}
        return 200, {}

    async def _patch(
        self, kind: Kind, asked: AccessAttributes, incoming: Incoming, request: Request, subresource: str = ""
    ) -> tuple[int, Object]:
        content_type = incoming.headers.get("content-type", "").split(";")[0].strip()
        force = incoming.query.get("force") in ("true", "1")
        if content_type.startswith("application/apply-patch"):
            if not incoming.query.get("fieldManager"):
                cause = errors.required("fieldManager", "is required for apply patch")
                raise errors.invalid_object("PatchOptions", "meta.k8s.io", "", [cause])
            content_type = "application/apply-patch+yaml"
            body = applied_body(incoming)
        else:
            body = body_of(incoming)
        result, made = await self.cluster.patch(
            kind, asked.namespace, asked.name, body, content_type, request, subresource=subresource, force=force
        )
        return 201 if made else 200, result

    def _list(self, kind: Kind, namespace: str, query: dict[str, str], wants_table: bool) -> bytes:
        version_text = query.get("resourceVersion", "")
        if version_text and version_text != "0" and not query.get("continue"):
            if not version_text.isdecimal():
                raise bad_request(f'invalid resource version "{version_text}"')
            if int(version_text) > self.cluster.version:
                raise _too_large(int(version_text), self.cluster.version)
            if query.get("resourceVersionMatch") == "Exact" and int(version_text) < self.cluster.compacted:
                raise errors.gone(f"The provided resource version {version_text} is too old")
        limit = query.get("limit", "0")
        version, listed, token, more = self.cluster.list(
            kind,
            namespace,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
            limit=int(limit) if limit.isdecimal() else 0,
            token=query.get("continue", ""),
        )
        if wants_table:
            return msgspec.json.encode(
                tables.of(kind, [stored.obj for stored in listed], str(version), self.cluster.now(), token)
            )
        metadata: Object = {"resourceVersion": str(version)}
        if token:
            metadata["continue"] = token
        if more:
            metadata["remainingItemCount"] = more
        head = msgspec.json.encode({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata})
        return head[:-1] + b',"items":[' + b",".join(_encoded(kind, stored) for stored in listed) + b"]}"

    async def _subresource(
        self, kind: Kind, asked: AccessAttributes, incoming: Incoming, request: Request
    ) -> tuple[int, Object | bytes]:
        cluster, name = self.cluster, asked.subresource
        if name not in kind.subresources:
            raise errors.no_such_path()
        if name == "status":
            if asked.verb == "get":
                return 200, _encoded(kind, cluster.stored(kind, asked.namespace, asked.name))
            if asked.verb == "patch":
                return await self._patch(kind, asked, incoming, request, "status")
            body = body_of(incoming)
            return 200, await cluster.update(
                kind, asked.namespace, asked.name, lambda _old: body, request, subresource="status"
            )
        if name == "scale":
            return 200, await self._scale(kind, asked, incoming, request)
        if name == "binding":
            await bind(cluster, asked.namespace, asked.name, body_of(incoming), request)
            return 201, _success()
        if name == "eviction":
            await evict(cluster, asked.namespace, asked.name, body_of(incoming), request)
            return 201, _success()
        if name == "token":
            return 201, self._token(asked, body_of(incoming))
        if name == "log":
            cluster.get(kind, asked.namespace, asked.name)
            if self.pod_log is None:
                raise Refusal(500, "InternalError", "no kubelet runs the pod")
            text: bytes = self.pod_log(asked.namespace, asked.name, incoming.query.get("container", ""))
            return 200, text
        if name == "finalize":
            body = body_of(incoming)
            return 200, await cluster.modify(
                kind, "", asked.name, lambda old: old | {"spec": body.get("spec") or {}}, request.manager
            )
        raise Refusal(501, "NotImplemented", f"the test server has no {kind.plural}/{name}")

    async def _scale(self, kind: Kind, asked: AccessAttributes, incoming: Incoming, request: Request) -> Object:
        paths = kind.scale_paths or {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
        cluster = self.cluster
        field = paths["specReplicasPath"].strip(".").split(".")
        obj = cluster.get(kind, asked.namespace, asked.name)
        if asked.verb != "get":
            scale = _scale_of(kind, obj, paths)
            if asked.verb == "patch":
                patch = body_of(incoming)
                scale = json_patch(scale, patch) if isinstance(patch, list) else merge(scale, patch)
            else:
                scale = body_of(incoming)
            replicas = (scale.get("spec") or {}).get("replicas", 0)
            if not isinstance(replicas, int) or replicas < 0:
                raise errors.invalid_object(
                    "Scale",
                    "autoscaling",
                    asked.name,
                    [errors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")],
                )
            version = (scale.get("metadata") or {}).get("resourceVersion")

            def change(old: Object) -> Object:
                holder = old
                for part in field[:-1]:
                    holder = holder.setdefault(part, {})
                holder[field[-1]] = replicas
                if version:
                    old["metadata"]["resourceVersion"] = version
                return old

            obj = await cluster.update(kind, asked.namespace, asked.name, change, request, subresource="scale")
        return _scale_of(kind, obj, paths)

    def _token(self, asked: AccessAttributes, body: Object) -> Object:
        account = self.cluster.get(self.cluster.plural("serviceaccounts"), asked.namespace, asked.name)
        spec = body.get("spec") or {}
        seconds = max(int(spec.get("expirationSeconds") or 3600), 1)
        audiences = spec.get("audiences") or ["https://kubernetes.default.svc"]
        token, ends = self.cluster.tokens.issue(
            asked.namespace, account, seconds, audiences, spec.get("boundObjectRef")
        )
        end = datetime.datetime.fromtimestamp(ends, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": asked.name,
                "namespace": asked.namespace,
                "creationTimestamp": self.cluster.timestamp(),
            },
            "spec": {"audiences": audiences, "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": end},
        }

    def _review(self, asked: AccessAttributes, body: Object, user: User) -> Object:
        spec = body.get("spec") or {}
        kind = next(kind for group, plural, kind in REVIEWS if (group, plural) == (asked.group, asked.resource))
        result: Object = {"kind": kind, "apiVersion": f"{asked.group}/v1", "metadata": {}, "spec": spec}
        if asked.resource == "tokenreviews":
            try:
                about, audiences = self.cluster.tokens.user(spec.get("token", ""))
            except Refusal:
                return result | {"status": {"user": {}, "error": "[invalid bearer token]"}}
            wanted = spec.get("audiences") or []
            if wanted and audiences and not set(wanted) & set(audiences):
                return result | {"status": {"user": {}, "error": "token audiences do not match"}}
            return result | {"status": {"authenticated": True, "user": about.info(), "audiences": wanted or audiences}}
        if asked.resource == "selfsubjectreviews":
            return result | {"status": {"userInfo": user.info()}}
        if asked.resource == "selfsubjectrulesreviews":
            rules = list(self.cluster.rules.rules_of(user, spec.get("namespace", "")))
            return result | {
                "status": {
                    "resourceRules": [rule for rule in rules if rule.get("resources")],
                    "nonResourceRules": [],
                    "incomplete": False,
                }
            }
        who = user
        if asked.resource == "subjectaccessreviews":
            who = User(spec.get("user", ""), spec.get("groups") or [])
        about_resource, about_path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if about_resource:
            wanted_access = AccessAttributes(
                about_resource.get("verb", ""),
                about_resource.get("group", ""),
                about_resource.get("resource", ""),
                about_resource.get("namespace", ""),
                about_resource.get("name", ""),
                about_resource.get("subresource", ""),
            )
        else:
            wanted_access = AccessAttributes(
                (about_path or {}).get("verb", ""), path=(about_path or {}).get("path", "")
            )
        return result | {"status": {"allowed": self.cluster.rules.allowed(who, wanted_access)}}

    # Watches

    async def _watch(self, route: _Route, incoming: Incoming, connection: Connection) -> None:
        kind, asked, query = route.kind, route.asked, incoming.query
        if kind is None:
            raise errors.no_such_path()
        fields = query.get("fieldSelector", "")
        if asked.name:
            fields = f"metadata.name={asked.name}" + (f",{fields}" if fields else "")
        version_text = query.get("resourceVersion", "")
        if version_text and not version_text.isdecimal():
            raise bad_request(f'invalid resource version "{version_text}"')
        version = int(version_text or 0)
        initial = query.get("sendInitialEvents") == "true"
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            cause = errors.forbidden_field(
                "resourceVersionMatch", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            )
            raise errors.invalid_object("ListOptions", "meta.k8s.io", "", [cause])
        if version > self.cluster.version:
            raise _too_large(version, self.cluster.version)
        woken = asyncio.Event()
        try:
            watcher = self.cluster.watch(
                kind,
                asked.namespace,
                None if initial else version,
                woken.set,
                labels=query.get("labelSelector", ""),
                fields=fields,
            )
        except Refusal as refusal:
            if refusal.code != 410:
                raise
            connection.begin()
            event = {"type": "ERROR", "object": refusal.status()}
            await connection.chunk(msgspec.json.encode(event) + b"\n")
            connection.finish()
            return
        bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        if initial and bookmarks:
            watcher.bookmark(initial=True)
        connection.on_lost = woken.set
        connection.begin()
        try:
            await self._follow(watcher, connection, woken, float(query.get("timeoutSeconds") or 3600), bookmarks)
        finally:
            connection.on_lost = None
            self.cluster.unwatch(watcher)
        connection.finish()

    async def _follow(
        self, watcher: Watcher, connection: Connection, woken: asyncio.Event, seconds: float, bookmarks: bool
    ) -> None:
        """Send a watch's events until the time is over, the resource is gone or the client has left."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        next_bookmark = loop.time() + self.bookmark_seconds
        timer: asyncio.TimerHandle | None = None
        try:
            while not connection.lost:
                if watcher.pending:
                    data = b"".join(watcher.pending)
                    watcher.pending.clear()
                    await connection.chunk(data)
                    continue
                if watcher.closed or loop.time() >= ends:
                    break
                if bookmarks and loop.time() >= next_bookmark:
                    next_bookmark = loop.time() + self.bookmark_seconds
                    watcher.sent = self.cluster.version
                    watcher.bookmark()
                    continue
                woken.clear()
                timer = loop.call_at(min(ends, next_bookmark) if bookmarks else ends, woken.set)
                await woken.wait()
                timer.cancel()
        finally:
            if timer is not None:
                timer.cancel()


class _Route:
    __slots__ = ("asked", "kind")

    def __init__(self, kind: Kind | None, asked: AccessAttributes) -> None:
        self.kind = kind
        self.asked = asked


def _encoded(kind: Kind, stored: Stored) -> bytes:
    if stored.obj.get("apiVersion") == kind.api_version:
        return stored.data
    return msgspec.json.encode(stored.obj | {"apiVersion": kind.api_version})


def _success() -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _scale_of(kind: Kind, obj: Object, paths: Object) -> Object:
    def at(path: str | None) -> Any:
        value: Any = obj
        for part in (path or "").strip(".").split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    selector = at(paths.get("labelSelectorPath"))
    if not kind.custom:
        labels = ((obj.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    status: Object = {"replicas": at(paths["statusReplicasPath"]) or 0}
    if selector:
        status["selector"] = selector
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: obj["metadata"][field] for field in kept if field in obj["metadata"]},
        "spec": {"replicas": at(paths["specReplicasPath"]) or 0},
        "status": status,
    }


def _too_large(wanted: int, present: int) -> Refusal:
    text = f"Timeout: Too large resource version: {wanted}, current: {present}"
    details = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    return Refusal(504, "Timeout", text, details=details, retry_after=1)


def _injected(fault: faults.Fault) -> Refusal:
    reasons = {
        401: ("Unauthorized", "Unauthorized"),
        403: ("Forbidden", "forbidden by a fault of the test"),
        404: ("NotFound", "the server could not find the requested resource"),
        409: ("Conflict", "a conflict that the test asked for"),
        410: ("Expired", "too old resource version"),
        429: ("TooManyRequests", "Too many requests, please try again later."),
        500: ("InternalError", "Internal error occurred: etcdserver: leader changed"),
        503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
    }
    reason, message = reasons.get(fault.code, ("Unknown", "a fault of the test"))
    return Refusal(fault.code, reason, message, retry_after=fault.retry_after)
