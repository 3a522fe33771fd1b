"""Slurm's published OpenAPI documents, and each operation's path, parameters and schemas.

The documents (`openapi/README.md`) are the contract: they define the paths, methods, parameters and fields of a
version, so a new version needs a new document and the operations that it adds.
"""

from __future__ import annotations

import gzip
import re
from functools import cache
from importlib.resources import files
from typing import Any

from msgspec import Struct, json

Json = dict[str, Any]

#: The supported versions, oldest first.
VERSIONS = ("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45")

_VERSION = re.compile(r"v0\.0\.\d+")


class Parameter(Struct, frozen=True, kw_only=True):
    """A parameter in the path or the query."""

    name: str
    place: str
    schema: Json


class Operation(Struct, frozen=True, kw_only=True):
    """One method of one path of one version. `key` is the same in all versions: `GET /slurm/job/{job_id}`."""

    key: str
    method: str
    #: as in the document
    path: str
    version: str
    parameters: tuple[Parameter, ...]
    body: Json | None
    answer: Json
    #: whether the plugin is openapi/slurmdbd
    is_database: bool


def document_bytes(version: str) -> bytes:
    """A version's document as published, JSON."""
    return gzip.decompress((files("spritz.presentation.json") / "openapi" / f"slurm-{version}.json.gz").read_bytes())


@cache
def document(version: str) -> Json:
    """A version's document. Shared: must not be changed."""
    document: Json = json.decode(document_bytes(version))
    return document


def operations(version: str) -> list[Operation]:
    return [
        _operation(version, path, method, details)
        for path, methods in document(version)["paths"].items()
        for method, details in methods.items()
    ]


def key_of(method: str, path: str) -> str:
    """The name of an operation in all versions: `GET /slurm/jobs` for `/slurm/v0.0.42/jobs/`."""
    return f"{method.upper()} {_VERSION.sub('', path).replace('//', '/').rstrip('/')}"


def resolve(version: str, schema: Json) -> Json:
    """The schema that a reference points to."""
    while "$ref" in schema:
        schema = document(version)["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _operation(version: str, path: str, method: str, details: Json) -> Operation:
    body = details.get("requestBody")
    return Operation(
        key=key_of(method, path),
        method=method.upper(),
        path=path,
        version=version,
        parameters=tuple(
            Parameter(name=parameter["name"], place=parameter["in"], schema=parameter.get("schema", {}))
            for parameter in details.get("parameters", ())
        ),
        body=body["content"]["application/json"]["schema"] if body else None,
        answer=details["responses"]["200"]["content"]["application/json"]["schema"],
        is_database=path.startswith("/slurmdb/"),
    )
