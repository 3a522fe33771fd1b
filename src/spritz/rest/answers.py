"""The envelope of an answer: meta, errors, warnings; its status; its ETag.

Source: OpenAPI `openapi_resp`, `openapi_meta`, `openapi_error`; texts and sources of slurmrestd 22.05; the HTTP status
of errors follows slurmrestd 26.05, in all versions, but for refusals of a user who asks too often.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, json

from spritz import SLURM_VERSION
from spritz.model.errors import ESLURM, SpritzError

if TYPE_CHECKING:
    from spritz.presentation.json.documents import Json, Operation
    from spritz.rest.callers import Caller
    from spritz.rest.intake import Problem

#: HTTP status by ESLURM name; all others are 500, as in Slurm.
_STATUS = {
    "SLURM_NO_CHANGE_IN_DATA": 304,
    "ESLURM_REST_INVALID_QUERY": 422,
    "ESLURM_REST_FAIL_PARSING": 400,
    "ESLURM_REST_INVALID_JOBS_DESC": 400,
    "ESLURM_DATA_UNKNOWN_MIME_TYPE": 415,
    "ESLURM_DATA_TOO_LARGE": 413,
    "ESLURM_INVALID_JOB_ID": 404,
    "ESLURM_AUTH_CRED_INVALID": 401,
    "ESLURM_DB_CONNECTION": 502,
    "ESLURM_IN_STANDBY_MODE": 502,  # no controller leads; another may soon
    "SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT": 504,
    "SLURM_PROTOCOL_AUTHENTICATION_ERROR": 511,
    **dict.fromkeys((name for name in ESLURM if "_COMMUNICATIONS_" in name), 502),
    # Differs: 502 in Slurm's table, which clients never see there, since slurmrestd tries again without end. HTTP
    # clients wait and try again by themselves after 429 (RFC 6585).
    "SLURMCTLD_COMMUNICATIONS_BACKOFF": 429,
}

#: Retry-After: what Slurm's commands wait before they try again
_RETRY_SECONDS = 1


class Fault(Struct, frozen=True, kw_only=True):
    """A member of `errors` in an answer's envelope; `source` names the parameter or field at fault."""

    code: str = ""
    text: str = ""
    description: str = ""
    source: str = ""

    def record(self) -> Json:
        """The error in the form of OpenAPI `openapi_error`."""
        number, text = ESLURM.get(self.code, (-1 if not self.code else 1, "Unspecified error"))
        return {
            "description": self.description or self.text or text,
            "error_number": number,
            "error": self.text or text,
            "source": self.source,
        }


class Answer(Struct, kw_only=True):
    """Result of an operation. The document shapes `body`; the other fields belong to the envelope."""

    body: Json = field(default_factory=dict)
    errors: list[Fault] = field(default_factory=list)
    #: (description, source)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    #: version of the listed records; "": computed from the body
    tag: str = ""


def status_of(code: str) -> int:
    """The HTTP status of an error by its ESLURM name."""
    return _STATUS.get(code, 500)


def headers_of(status: int) -> dict[str, str]:
    """Headers of the answer that depend on its status alone."""
    return {"Retry-After": str(_RETRY_SECONDS)} if status == 429 else {}


def fault_of(error: SpritzError, source: str) -> Fault:
    """A refusal, or the error of an unreachable daemon, as a member of `errors`."""
    hint = f" ({error.hint})" if error.hint and not error.code.startswith("SLURM_PROTOCOL_AUTH") else ""
    return Fault(code=error.code, text=error.message, description=f"{error.message}{hint}", source=source)


def problem_faults(problems: list[Problem], code: str) -> list[Fault]:
    """Faults for the problems of a body or a query."""
    return [
        Fault(code=code, description=f"{problem.text}: {problem.place}", source=problem.place) for problem in problems
    ]


def envelope(answer: Answer, meta: Json) -> Json:
    """The data for the answer's schema."""
    return {
        **answer.body,
        "meta": meta,
        "errors": [fault.record() for fault in answer.errors],
        "warnings": [{"description": text, "source": source} for text, source in answer.warnings],
    }


def meta(operation: Operation, caller: Caller, cluster: str, accounting: str) -> Json:
    """The answer's `meta`: the client, the command and the plugin."""
    major, minor, micro = SLURM_VERSION.split(".")
    plugin = "slurmdbd" if operation.is_database else "slurmctld"
    return {
        "plugin": {
            "type": f"openapi/{plugin}",
            "name": f"Slurm OpenAPI {plugin}",
            "data_parser": f"data_parser/{operation.version}",
            "accounting_storage": f"accounting_storage/{accounting}" if accounting else "",
        },
        "client": {"source": caller.source, "user": "", "group": ""},
        "command": [],
        "slurm": {
            "version": {"major": major, "micro": micro, "minor": minor},
            "release": SLURM_VERSION,
            "cluster": cluster,
        },
    }


def etag(body: Json, version: str) -> str:
    """A weak ETag, which depends only on the listed records, not on caller or time."""
    lasting = {name: value for name, value in body.items() if name not in ("meta", "last_update", "last_backfill")}
    return f'W/"{hashlib.sha256(encoded([version, lasting])).hexdigest()[:32]}"'


def matches(header: str, tag: str) -> bool:
    """If-None-Match: whether it names the tag. Source: RFC 9110, 13.1.2."""
    bare = tag.removeprefix("W/")
    return any(word.strip() == "*" or word.strip().removeprefix("W/") == bare for word in header.split(","))


def encoded(value: Any) -> bytes:
    """JSON text. Bytes that are not UTF-8 (in file names) become escapes that all JSON parsers accept."""
    try:
        return json.encode(value)
    except UnicodeEncodeError:
        return json.encode(_printable(value))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {name: _printable(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_printable(item) for item in value]
    return value


class Refused(Exception):
    """The operation ends with an error. `body`: the part of the answer to send nevertheless."""

    def __init__(self, code: str, description: str = "", source: str = "", *, body: Json | None = None) -> None:
        super().__init__(description or code)
        self.code = code
        self.fault = Fault(code=code, description=description, source=source)
        self.body = body or {}
