"""The application: an endpoint for every operation of the documents, and additional routes.

Each request takes the same path: identify the caller, check the token, check the body against the document, run the
operation, shape the answer by the document. As in Slurm, the answer to an unknown path or an unidentified caller is a
line of text; all other errors have the envelope with `errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from msgspec import DecodeError, Struct, json
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from spritz.model.errors import SpritzError
from spritz.presentation.json.documents import VERSIONS
from spritz.presentation.json.documents import operations as operations_of
from spritz.presentation.json.shape import Shapes
from spritz.rest import answers, operations
from spritz.rest.answers import Answer, Fault, Refused
from spritz.rest.callers import Caller, NotAuthenticated, caller_of_request
from spritz.rest.daemons import CONTROLLER, DATABASE, Daemon
from spritz.rest.intake import Intake, Problems
from spritz.rest.operations import CHANGING_GETS, Ask, Listing, Unchanged
from spritz.rest.routing import Router
from spritz.rest.site import site_routes
from spritz.rest.yaml import NotYaml, from_yaml, to_yaml
from spritz.timeouts import within

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

    from spritz.presentation.json.documents import Json, Operation
    from spritz.presentation.json.shape import Convert
    from spritz.rest.daemons import Daemons
    from spritz.rest.operations import Handler
    from spritz.runtime.clock import Clock
    from spritz.runtime.log import Logger

#: Longest body in bytes: a script of 4 MiB, slurmctld's maximum, and an environment, both escaped.
BODY_BYTES_MAX = 32 * 1024 * 1024

#: Seconds within which a body must be complete.
BODY_SECONDS = 60.0

_NOT_FOUND = "Unable find requested URL. Please view /openapi/v3 for API reference."
_METHOD = "Unknown HTTP method requested on known URL endpoint"
_JSON, _YAML = "application/json", "application/x-yaml"
_YAMLS = ("application/x-yaml", "application/yaml", "text/x-yaml", "text/yaml")


class Settings(Struct, frozen=True, kw_only=True):
    authentication: tuple[str, ...]
    versions: tuple[str, ...] = VERSIONS
    #: names without the prefix openapi/: slurmctld, slurmdbd
    plugins: tuple[str, ...] = ("slurmctld", "slurmdbd")


class _Compiled(Struct):
    """An operation with its compiled schemas."""

    operation: Operation
    handler: Handler
    answer: Convert
    body: Any
    query: Any


class Endpoint:
    """Serves all operations: an ASGI application for the paths below /slurm and /slurmdb."""

    def __init__(self, daemons: Daemons, settings: Settings, clock: Clock, log: Logger) -> None:
        self._daemons = daemons
        self._settings = settings
        self._clock = clock
        self._log = log
        served = [operation for version in settings.versions for operation in operations_of(version)]
        served = [
            operation
            for operation in served
            if ("slurmdbd" if operation.is_database else "slurmctld") in settings.plugins
        ]
        self._router = Router(served)
        self._shapes = {version: Shapes(version) for version in settings.versions}
        self._intakes = {version: Intake(version) for version in settings.versions}
        self._compiled: dict[tuple[str, str], _Compiled] = {}
        self._handlers = operations.load()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        path = request.scope.get("raw_path", b"").decode("latin-1") or request.scope["path"]
        matched = self._router.find(path)
        if matched is None:
            return _reject(404, _NOT_FOUND)
        methods, parameters = matched
        is_head = request.method == "HEAD"
        operation = methods.get("GET" if is_head else request.method)
        if operation is None or (is_head and operation.key in CHANGING_GETS):
            return _reject(405, _METHOD, {"Allow": ", ".join(sorted(methods))})
        try:
            caller = caller_of_request(request, self._settings.authentication)
        except NotAuthenticated as error:
            return _reject(401, error.message)
        compiled = self._prepared(operation)
        try:
            # Before the body is read: only authenticated callers may send one.
            daemon = DATABASE if operation.is_database else CONTROLLER
            if caller.token:
                await Daemon(self._daemons, daemon, caller).check()
            ask = await self._ask(request, compiled, caller, parameters)
            if isinstance(ask, Response):
                return ask
            result = await compiled.handler(ask)
            if isinstance(result, Listing):
                return self._streamed(request, compiled, ask, result)
            if isinstance(result, Unchanged):
                return Response(status_code=304, headers={"ETag": result.tag})
            result.warnings[:0] = ask.warnings
            return self._plain(request, compiled, caller, result)
        except NotAuthenticated as error:
            return _reject(401, error.message)
        except Refused as refused:
            answer = Answer(body=refused.body, errors=[refused.fault])
            return self._plain(request, compiled, caller, answer, answers.status_of(refused.code))
        except SpritzError as error:
            fault = answers.fault_of(error, operation.key)
            return self._plain(request, compiled, caller, Answer(errors=[fault]), answers.status_of(error.code))
        except TimeoutError:
            fault = Fault(code="SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT", source=operation.key)
            return self._plain(request, compiled, caller, Answer(errors=[fault]), 504)
        except Exception as error:
            # An internal error: the answer has no details, and slurmrestd continues.
            self._log.error("request.failed", exception=error, operation=operation.key, version=operation.version)
            fault = Fault(code="ESLURM_INTERNAL", source=operation.key)
            return self._plain(request, compiled, caller, Answer(errors=[fault]), 500)

    def _prepared(self, operation: Operation) -> _Compiled:
        key = (operation.version, operation.key)
        compiled = self._compiled.get(key)
        if compiled is None:
            shapes, intake = self._shapes[operation.version], self._intakes[operation.version]
            compiled = self._compiled[key] = _Compiled(
                operation=operation,
                handler=self._handlers[operation.key],
                answer=shapes.of(operation.answer),
                body=intake.of(operation.body) if operation.body is not None else None,
                query=intake.query(operation),
            )
        return compiled

    async def _ask(
        self, request: Request, compiled: _Compiled, caller: Caller, parameters: dict[str, str]
    ) -> Ask | Response:
        operation, problems = compiled.operation, Problems()
        pairs = parse_qsl(request.scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        query = compiled.query(pairs, problems)
        if problems.errors:
            return self._faulty(request, compiled, caller, problems, "ESLURM_REST_INVALID_QUERY")
        body = None
        if compiled.body is not None:
            raw = await _read_body(request)
            if raw is None:
                fault = Fault(code="ESLURM_DATA_TOO_LARGE", source="body")
                return self._plain(request, compiled, caller, Answer(errors=[fault]), 413)
            kind = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
            if kind != _JSON and kind not in _YAMLS:
                fault = Fault(code="ESLURM_DATA_UNKNOWN_MIME_TYPE", source="Content-Type")
                return self._plain(request, compiled, caller, Answer(errors=[fault]), 415)
            try:
                decoded = (json.decode(raw) if kind == _JSON else from_yaml(raw)) if raw.strip() else None
            except (DecodeError, NotYaml, UnicodeDecodeError, RecursionError) as error:
                fault = Fault(code="ESLURM_REST_FAIL_PARSING", description=f"Failure during parsing: {error}"[:300])
                return self._plain(request, compiled, caller, Answer(errors=[fault]), 400)
            if decoded is None:
                fault = Fault(code="ESLURM_REST_FAIL_PARSING", description="the request has no body", source="body")
                return self._plain(request, compiled, caller, Answer(errors=[fault]), 400)
            body = compiled.body(decoded, "#", problems)
            if problems.errors:
                return self._faulty(request, compiled, caller, problems, "ESLURM_REST_FAIL_PARSING")
        reading = operation.method == "GET" and operation.key not in CHANGING_GETS
        return Ask(
            operation=operation,
            caller=caller,
            daemons=self._daemons,
            controller=Daemon(self._daemons, CONTROLLER, caller, reading=reading),
            database=Daemon(self._daemons, DATABASE, caller, reading=reading),
            path=parameters,
            query={name: value for name, value in query.items() if value is not None},
            body=body,
            now=self._clock.now(),
            unless=request.headers.get("if-none-match", ""),
            submit_key=request.headers.get("idempotency-key", ""),
            warnings=[(warning.text, warning.place) for warning in problems.warnings],
            record=lambda name: self._record(compiled, name),
        )

    def _record(self, compiled: _Compiled, name: str) -> dict[str, Convert]:
        """The converters of the members' keys, for the list `name` in the operation's answer."""
        return self._shapes[compiled.operation.version].member(compiled.operation.answer, name)

    def _faulty(self, request: Request, compiled: _Compiled, caller: Caller, problems: Problems, code: str) -> Response:
        faults = answers.problem_faults(problems.errors, code)
        warnings = [(warning.text, warning.place) for warning in problems.warnings]
        answer = Answer(errors=faults, warnings=warnings)
        return self._plain(request, compiled, caller, answer, answers.status_of(code))

    def _meta(self, operation: Operation, caller: Caller) -> Json:
        try:
            cluster, accounting = self._daemons.cluster, self._daemons.accounting_type
        except SpritzError:
            cluster = accounting = ""
        return answers.meta(operation, caller, cluster, accounting)

    def _plain(
        self, request: Request, compiled: _Compiled, caller: Caller, answer: Answer, status: int = 200
    ) -> Response:
        operation = compiled.operation
        if status == 200 and answer.errors:
            status = answers.status_of(answer.errors[0].code)
        whole = compiled.answer(answers.envelope(answer, self._meta(operation, caller)))
        headers = answers.headers_of(status)
        if request.method in ("GET", "HEAD") and status == 200:
            tag = answer.tag or answers.etag(whole, operation.version)
            unless = request.headers.get("if-none-match", "")
            headers["ETag"] = tag
            if unless and answers.matches(unless, tag):
                return Response(status_code=304, headers=headers)
        if _wants_yaml(request):
            return Response(to_yaml(answers.encoded(whole)), status, headers, media_type=_YAML)
        return Response(answers.encoded(whole), status, headers, media_type=_JSON)

    def _streamed(self, request: Request, compiled: _Compiled, ask: Ask, listing: Listing) -> Response:
        listed = Answer(body=listing.rest, warnings=ask.warnings)
        other_fields = compiled.answer(answers.envelope(listed, self._meta(ask.operation, ask.caller)))
        other_fields.pop(listing.name)
        headers = {"ETag": listing.tag} if listing.tag else {}
        return StreamingResponse(_pieces(listing, other_fields), headers=headers, media_type=_JSON)


async def _pieces(listing: Listing, other_fields: Json) -> AsyncIterator[bytes]:
    first = True
    async for records in listing.pieces:
        text = b",".join(records)
        if not text:
            continue
        yield (f'{{"{listing.name}":['.encode() if first else b",") + text
        first = False
    # The encoded object without its opening brace ends ours: `],"meta":…}`.
    tail = b"]," + answers.encoded(other_fields)[1:]
    yield f'{{"{listing.name}":['.encode() + tail if first else tail


async def _read_body(request: Request) -> bytes | None:
    """The body; None if it is too long. Raises TimeoutError if it does not arrive in time."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 18 or int(length) > BODY_BYTES_MAX):
        return None
    pieces, size = [], 0
    async with within(BODY_SECONDS):
        async for piece in request.stream():
            size += len(piece)
            if size > BODY_BYTES_MAX:
                return None
            pieces.append(piece)
    return b"".join(pieces)


def _wants_yaml(request: Request) -> bool:
    """Whether the answer should be YAML: the first known kind in Accept decides; JSON by default."""
    for word in request.headers.get("accept", "").split(","):
        kind = word.partition(";")[0].strip().lower()
        if kind in _YAMLS:
            return True
        if kind in (_JSON, "*/*", "application/*"):
            return False
    return False


def _reject(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    """A refusal as in Slurm: a line of text, after which the connection closes."""
    return PlainTextResponse(text, status, {**(headers or {}), "Connection": "close"})


async def _http_error(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == 405:
        return _reject(405, _METHOD, dict(error.headers or {}))
    return _reject(404, _NOT_FOUND)


def application(
    daemons: Daemons, settings: Settings, clock: Clock, log: Logger, *, routes: Sequence[BaseRoute] = ()
) -> Starlette:
    """The ASGI application. `routes`: additional routes, which take precedence."""
    endpoint = Endpoint(daemons, settings, clock, log)
    served = [
        *routes,
        *site_routes(settings.versions, settings.plugins),
        Route("/slurm{rest:path}", endpoint, methods=None),
    ]
    return Starlette(routes=served, exception_handlers={HTTPException: _http_error})
