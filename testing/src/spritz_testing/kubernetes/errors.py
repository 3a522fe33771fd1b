"""Errors in the API server's form: a Status with a code, a reason and causes."""

from __future__ import annotations

import json
from typing import Any, Final

Object = dict[str, Any]


class Refusal(Exception):
    """A refused request, with the Status for its sender."""

    def __init__(
        self, code: int, reason: str, message: str, *, details: Object | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.retry_after = retry_after
        if retry_after is not None:
            self.details["retryAfterSeconds"] = retry_after

    def status(self) -> Object:
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            status["details"] = self.details
        return status


class Cause:
    """An error in an object. `kind`: Kubernetes' name of the cause's type."""

    __slots__ = ("field", "kind", "text")

    def __init__(self, field: str, kind: str, text: str) -> None:
        self.field = field
        self.kind = kind
        self.text = text

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def shown(value: Any) -> str:
    """A value in the form of messages."""
    return json.dumps(value, separators=(",", ":")) if not isinstance(value, (dict, list)) else json.dumps(value)


def required(field: str, text: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", "Required value" + (f": {text}" if text else ""))


def invalid(field: str, value: Any, text: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown(value)}: {text}")


def forbidden_field(field: str, text: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {text}")


def unsupported(field: str, value: Any, allowed: list[Any]) -> Cause:
    listed = ", ".join(shown(value_allowed) for value_allowed in allowed)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {listed}")


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def unauthorized() -> Refusal:
    return Refusal(401, "Unauthorized", "Unauthorized")


def forbidden(resource: str, group: str, name: str, why: str) -> Refusal:
    qualified = f"{resource}.{group}" if group else resource
    text = f'{qualified} "{name}" is forbidden: {why}' if name else f"{qualified} is forbidden: {why}"
    return Refusal(403, "Forbidden", text, details=_details(resource, group, name))


def not_found(resource: str, group: str, name: str) -> Refusal:
    qualified = f"{resource}.{group}" if group else resource
    return Refusal(404, "NotFound", f'{qualified} "{name}" not found', details=_details(resource, group, name))


class NoSuchGroup(Refusal):
    """The server has no such API group and version. Its answer is text, and no Status."""

    TEXT: Final = "404 page not found\n"


def no_such_path() -> Refusal:
    return Refusal(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: str, group: str, name: str) -> Refusal:
    qualified = f"{resource}.{group}" if group else resource
    text = f'{qualified} "{name}" already exists'
    return Refusal(409, "AlreadyExists", text, details=_details(resource, group, name))


def conflict(resource: str, group: str, name: str, why: str) -> Refusal:
    qualified = f"{resource}.{group}" if group else resource
    text = f'Operation cannot be fulfilled on {qualified} "{name}": {why}'
    return Refusal(409, "Conflict", text, details=_details(resource, group, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def invalid_object(kind: str, group: str, name: str, causes: list[Cause]) -> Refusal:
    qualified = f"{kind}.{group}" if group else kind
    texts = [str(cause) for cause in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = _details(kind, group, name)
    details["causes"] = [{"reason": cause.kind, "message": cause.text, "field": cause.field} for cause in causes]
    return Refusal(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details=details)


def no_typed_patch(kind: str, api_version: str, namespace: str, name: str, field: str, why: str) -> Refusal:
    """Of server-side apply, which takes no field that the schema does not have, and no value of another type."""
    place = f"{namespace}/{name}" if namespace else f"/{name}"
    text = f"failed to create typed patch object ({place}; {api_version}, Kind={kind}): .{field}: {why}"
    return Refusal(500, "InternalError", text)


def gone(message: str) -> Refusal:
    return Refusal(410, "Expired", message)


def too_many(message: str, retry_after: int = 1) -> Refusal:
    return Refusal(429, "TooManyRequests", message, retry_after=retry_after)


def _details(resource: str, group: str, name: str) -> Object:
    details: Object = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if resource:
        details["kind"] = resource
    return details
