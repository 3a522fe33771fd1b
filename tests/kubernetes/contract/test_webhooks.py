"""Admission webhooks that the server asks before it stores an object."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import secrets
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spritz.k8s.admission import certificates
from tests.kubernetes.contract.conftest import Json, Kube, Play, Refused, config_map

ADMISSION = "admissionregistration.k8s.io/v1"


def address(kube: Kube) -> str:
    """At which the API server reaches this machine."""
    host = urllib.parse.urlsplit(kube.api.http.base).hostname or ""
    found = os.environ.get("SPRITZ_CONTRACT_HOST") or ("localhost" if host in ("127.0.0.1", "localhost", "::1") else "")
    if not found:
        pytest.skip("the API server is elsewhere: SPRITZ_CONTRACT_HOST says how it reaches this machine")
    return found


@contextlib.contextmanager
def hook(directory: Path, host: str, answer: Callable[[str, Json], Json]) -> Iterator[tuple[str, str]]:
    """An HTTPS server that answers reviews: its URL, and its authority in base64."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            response = {"uid": review["request"]["uid"], **answer(self.path.partition("?")[0], review["request"])}
            body = json.dumps(
                {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    files = certificates.current({}, [host], time.time())
    (directory / "pair.pem").write_bytes(files[certificates.CERTIFICATE] + files[certificates.KEY])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "pair.pem")
    with http.server.ThreadingHTTPServer(("", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            bundle = base64.b64encode(files[certificates.AUTHORITY]).decode()
            yield f"https://{host}:{server.server_address[1]}", bundle
        finally:
            server.shutdown()
            thread.join()


def test_webhooks_change_and_refuse(play: Play, tmp_path: Path) -> None:
    asked: list[Json] = []

    def answer(path: str, request: Json) -> Json:
        asked.append(request)
        if path == "/validate":
            causes = [{"reason": "FieldValueInvalid", "field": "data.a", "message": "no"}]
            status = {"code": 422, "reason": "Invalid", "message": "data.a: no", "details": {"causes": causes}}
            return {"allowed": request["object"]["data"]["a"] != "bad", "status": status}
        patch = [{"op": "add", "path": "/data/seen", "value": "yes"}]
        return {
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
        }

    async def scene(kube: Kube) -> None:
        name = f"contract-{secrets.token_hex(4)}"
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
        with hook(tmp_path, address(kube), answer) as (url, bundle):
            common: Json = {
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "rules": [rule],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": kube.namespace}},
                "matchConditions": [{"name": "not-others", "expression": "has(object.data) && 'a' in object.data"}],
            }
            places = []
            for kind, path in (("Mutating", "/mutate"), ("Validating", "/validate")):
                place = f"apis/{ADMISSION}/{kind.lower()}webhookconfigurations"
                config = {"url": url + path, "caBundle": bundle}
                body: Json = {
                    "apiVersion": ADMISSION,
                    "kind": f"{kind}WebhookConfiguration",
                    "metadata": {"name": name},
                }
                body["webhooks"] = [{"name": f"{kind.lower()}.contract.example", "clientConfig": config, **common}]
                await kube.make(place, body)
                places.append(place)
            try:

                async def refused() -> bool:
                    try:
                        await kube.make("configmaps", config_map("bad", {"a": "bad"}))
                    except Refused as refused:
                        return refused.code == 422
                    await kube.delete("configmaps/bad")  # a real server knows its webhooks after a while
                    return False

                await kube.until(refused, "the webhooks are asked")
                error = await kube.refused(422, kube.make("configmaps", config_map("bad", {"a": "bad"})))
                assert 'admission webhook "validating.contract.example" denied the request: data.a: no' in error.message
                assert error.fields == {"data.a": "FieldValueInvalid"}
                made = await kube.make("configmaps", config_map("c", {"a": "good"}))
                assert made["data"] == {"a": "good", "seen": "yes"}
                about = asked[-1]
                assert (about["operation"], about["namespace"], about["name"]) == ("CREATE", kube.namespace, "c")
                assert about["object"]["data"]["seen"] == "yes", "what is stored is what was validated"
                count = len(asked)
                await kube.make("configmaps", config_map("d", {"b": "1"}))
                assert len(asked) == count, "its condition does not hold"
            finally:
                for place in places:
                    await kube.delete(f"{place}/{name}")

    play(scene)
