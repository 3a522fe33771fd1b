"""Additional routes: the documents, a page for reading them, and hostlists.

Source: slurmrestd(8) /openapi, /openapi.json, /openapi.yaml, /openapi/v3; openapi/util.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import DecodeError, Struct, ValidationError, json
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from spritz import SLURM_VERSION
from spritz.notation.errors import NotationError
from spritz.notation.hostlist import compress, expand
from spritz.presentation.json.documents import document
from spritz.rest.page import POLICY, page
from spritz.rest.yaml import to_yaml

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from spritz.presentation.json.documents import Json

#: Longest body of a request to /util, in bytes.
_UTIL_BYTES_MAX = 64 * 1024

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@cache
def whole_document(versions: tuple[str, ...], plugins: tuple[str, ...]) -> bytes:
    """The documents of all versions as a single JSON document, the answer of /openapi/v3."""
    paths: Json = {}
    schemas: Json = {}
    for version in versions:
        version_document = document(version)
        for path, methods in version_document["paths"].items():
            if ("slurmdbd" if path.startswith("/slurmdb/") else "slurmctld") in plugins:
                paths[path] = methods
        schemas.update(version_document["components"]["schemas"])
    newest = document(versions[-1])
    whole = {
        **newest,
        "info": {**newest["info"], "version": f"Slurm-{SLURM_VERSION}"},
        "paths": paths,
        "components": {**newest["components"], "schemas": schemas},
    }
    return json.encode(whole)


@cache
def _page(versions: tuple[str, ...], plugins: tuple[str, ...]) -> str:
    return page(json.decode(whole_document(versions, plugins)))


def site_routes(versions: tuple[str, ...], plugins: tuple[str, ...]) -> Sequence[BaseRoute]:
    """Routes for the application. They reveal nothing about the cluster, so they need no authentication."""

    async def as_json(_: Request) -> Response:
        return Response(whole_document(versions, plugins), media_type="application/json")

    async def as_yaml(_: Request) -> Response:
        return Response(to_yaml(whole_document(versions, plugins)), media_type="application/x-yaml")

    async def either(request: Request) -> Response:
        return await (as_yaml if "yaml" in request.headers.get("accept", "") else as_json)(request)

    async def as_page(_: Request) -> Response:
        return HTMLResponse(_page(versions, plugins), headers=_HEADERS)

    routes = [
        *(Route(path, either) for path in ("/openapi", "/openapi/", "/openapi/v3", "/openapi/v3/")),
        Route("/openapi.json", as_json),
        Route("/openapi.yaml", as_yaml),
        Route("/docs", as_page),
        Route("/docs/", _to_docs),
        Route("/", _to_docs),
    ]
    for path, handler in (("/util/hostnames", _hostnames), ("/util/hostlist", _hostlist)):
        routes += [Route(variant, handler, methods=["POST"]) for variant in (path, f"{path}/")]
    return routes


async def _to_docs(_: Request) -> Response:
    return RedirectResponse("/docs", 307)


class _Hostlist(Struct):
    hostlist: str


class _Hostnames(Struct):
    hostnames: list[str]


async def _util_body(request: Request, kind: type[Any]) -> Any:
    pieces = b""
    async for piece in request.stream():
        pieces += piece
        if len(pieces) > _UTIL_BYTES_MAX:
            raise ValueError("too long")
    return json.decode(pieces, type=kind)


async def _hostnames(request: Request) -> Response:
    """`{"hostlist": "n[1-3]"}` -> `{"hostnames": ["n1", "n2", "n3"]}`."""
    try:
        body = await _util_body(request, _Hostlist)
        names = expand(body.hostlist)
    except (DecodeError, ValidationError, NotationError, ValueError) as error:
        return _util_error(error)
    return JSONResponse({"hostnames": list(names), "meta": {}, "errors": [], "warnings": []})


async def _hostlist(request: Request) -> Response:
    """`{"hostnames": ["n1", "n2"]}` -> `{"hostlist": "n[1-2]"}`."""
    try:
        body = await _util_body(request, _Hostnames)
    except (DecodeError, ValidationError, ValueError) as error:
        return _util_error(error)
    return JSONResponse({"hostlist": compress(body.hostnames), "meta": {}, "errors": [], "warnings": []})


def _util_error(error: Exception) -> Response:
    fault = {
        "description": str(error)[:300],
        "error_number": 9001,
        "error": "Failure during parsing",
        "source": "body",
    }
    return JSONResponse({"meta": {}, "errors": [fault], "warnings": []}, 400)
