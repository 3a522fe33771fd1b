"""The operator's webhooks: HTTPS for the API server, and certificates that every replica shares.

Every replica serves, whether it leads or not. The certificate is in a Secret that the first replica makes; a replica
that finds it too old replaces it, and of two that do one is refused by the version and takes the other's. Replicas look
once a minute, and write the authority into the webhook configurations of the chart.
"""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from spritz.http.serving import Server
from spritz.k8s.admission import certificates
from spritz.k8s.admission.pods import Json
from spritz.k8s.api import APPLY, Api, ApiFailure

#: Seconds between checks of the certificate, and after a failed check.
_AGAIN, _SOON = 60.0, 2.0

#: Largest review in bytes: an object has at most 1.5 MiB, and a review holds it twice.
_BODY_MAX: Final = 4 << 20

_ADMISSION: Final = "admissionregistration.k8s.io/v1"
_KINDS: Final = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}


#: From an AdmissionReview to one with the answer. Raises KeyError for a review that is not for it, and ApiFailure.
Answer = Callable[[Json], Awaitable[Json]]


class Webhooks:
    """`run` returns when it is cancelled. `answers`: by path. `names`: of the Services and configurations that lead
    here; the first is the Secret's too. `is_alive`: what `/livez` says of the operator.
    """

    def __init__(
        self,
        api: Api,
        log: Callable[..., None],
        answers: Mapping[str, Answer],
        *,
        names: Sequence[str],
        namespace: str = "",
        host: str = "0.0.0.0",  # the API server comes from elsewhere
        port: int = 9443,
        is_alive: Callable[[], bool] = lambda: True,
        now: Callable[[], float] = time.time,  # noqa: TID251  # the clock for certificates
    ) -> None:
        self._api = api
        self._log = log
        self._answers = answers
        self._names = names
        self._name = names[0]
        self._namespace = namespace or api.namespace
        self._host = host
        self.port = port
        self._is_alive = is_alive
        self._now = now
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._served = b""
        #: the certificate is there, and the port is open
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Get certificates and serve until cancelled."""
        while not await self._look():  # noqa: ASYNC110  # what it waits for is the API server
            await asyncio.sleep(_SOON)
        listener = socket.create_server((self._host, self.port), backlog=128)
        self.port = listener.getsockname()[1]
        server = Server(self._app, tls=self._context, interface="asgi3", lifespan="off", timeout_graceful_shutdown=1)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listener]), name="webhooks.serve")
            self.ready.set()
            try:
                while True:  # noqa: ASYNC110  # until cancelled
                    await asyncio.sleep(_AGAIN if await self._look() else _SOON)
            finally:
                await server.shutdown(sockets=[listener])

    # The certificate

    async def _look(self) -> bool:
        """Ensure a valid certificate that the API server trusts. False if that is not yet done."""
        try:
            files = await self._files()
            if files[certificates.CERTIFICATE] != self._served:
                self._load(files)
            for name in self._names:
                for kind, plural in _KINDS.items():
                    await self._trust(kind, plural, name, files[certificates.AUTHORITY])
        except ApiFailure as failure:
            self._log("webhooks.failed", error=failure.message)
            return False
        return True

    async def _files(self) -> dict[str, bytes]:
        """The certificate of the Secret, which is created or replaced if necessary. Raises ApiFailure."""
        path = f"api/v1/namespaces/{self._namespace}/secrets"
        secret: Json = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": self._name, "namespace": self._namespace},
        }
        present: dict[str, bytes] = {}
        method, place = "POST", path
        stored = await self._api.find_path(f"{path}/{self._name}")
        if stored is not None:
            secret = msgspec.json.decode(stored)
            present = {name: base64.b64decode(text) for name, text in (secret.get("data") or {}).items()}
            method, place = "PUT", f"{path}/{self._name}"
        services = [f"{name}.{self._namespace}.svc" for name in self._names]
        hosts = [*services, *(f"{service}.cluster.local" for service in services)]
        wanted = certificates.current(present, hosts, self._now())
        if wanted == present:
            return present
        secret["data"] = {name: base64.b64encode(data).decode() for name, data in wanted.items()}
        # If another replica is quicker, this is a conflict, and the next check takes the other's certificate.
        await self._api.send(method, place, body=msgspec.json.encode(secret), repeatable=False)
        self._log("webhooks.certificate", secret=f"{self._namespace}/{self._name}")
        return wanted

    def _load(self, files: dict[str, bytes]) -> None:
        """Use the certificate for new connections. (OpenSSL only reads files, and the image's are read-only.)"""
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, files[certificates.CERTIFICATE] + files[certificates.KEY])
            self._context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        self._served = files[certificates.CERTIFICATE]

    async def _trust(self, kind: str, plural: str, name: str, authority: bytes) -> None:
        """Write the authority into the configuration, if there is one. Raises ApiFailure."""
        path = f"apis/{_ADMISSION}/{plural}/{name}"
        stored = await self._api.find_path(path)
        if stored is None:
            return
        bundle = base64.b64encode(authority).decode()
        hooks = msgspec.json.decode(stored).get("webhooks") or []
        if all(hook["clientConfig"].get("caBundle") == bundle for hook in hooks):
            return
        change: Json = {"apiVersion": _ADMISSION, "kind": kind, "metadata": {"name": name}}
        change["webhooks"] = [{"name": hook["name"], "clientConfig": {"caBundle": bundle}} for hook in hooks]
        options = {"fieldManager": self._api.field_manager, "force": "true"}
        body = msgspec.json.encode(change)
        await self._api.send("PATCH", path, parameters=options, body=body, content_type=APPLY)

    # Reviews

    async def _app(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """ASGI."""
        if scope["method"] == "GET" and scope["path"] == "/healthz":
            await _reply(send, 200, b"ok")
            return
        if scope["method"] == "GET" and scope["path"] == "/livez":
            alive = self._is_alive()
            await _reply(send, 200 if alive else 503, b"ok" if alive else b"the operator does not try to lead")
            return
        body = b""
        more = scope["method"] == "POST"
        while more:
            part = await receive()
            body += part.get("body", b"")
            more = part.get("more_body", False)
            if part["type"] == "http.disconnect" or len(body) > _BODY_MAX:
                await _reply(send, 413, b"the review is too large")
                return
        try:
            response = msgspec.json.encode(await self._answers[scope["path"]](msgspec.json.decode(body)))
        except (msgspec.DecodeError, KeyError, TypeError):
            await _reply(send, 400, f"no AdmissionReview for {' or '.join(self._answers)}".encode())
        except ApiFailure as failure:
            self._log("webhooks.undecided", path=scope["path"], error=failure.message)
            await _reply(send, 500, f"the API server does not say what this depends on: {failure.message}".encode())
        else:
            await _reply(send, 200, response)


async def _reply(send: Callable[[Any], Awaitable[None]], status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
