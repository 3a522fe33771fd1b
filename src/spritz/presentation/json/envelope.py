"""The common part of every answer, and printing. Source: squeue(1) --json, --yaml; OpenAPI `openapi_meta`.

`version_word` is the value of `--json=`; for `--yaml` the same after the word `yaml=`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Raw, json

from spritz import SLURM_VERSION
from spritz.client.errors import ClientError
from spritz.client.locate import data_parser, locate_controller, read_keys
from spritz.model.errors import SpritzError
from spritz.presentation.json.pretty import around, encoded
from spritz.presentation.json.yaml import document
from spritz.presentation.users import group_of, name_of

if TYPE_CHECKING:
    from typing import Any, Protocol

    class Output(Protocol):
        """Where an answer is printed (a command's output)."""

        @property
        def program(self) -> str: ...

        def out(self, text: str) -> None: ...


#: The version of the records as created. `shape` converts them to other versions by their documents.
DEFAULT = "v0.0.43"
#: the default first
VERSIONS = (DEFAULT, "v0.0.42", "v0.0.44", "v0.0.45")
YAML = "yaml="


def version_of(version_word: str) -> str:
    """The data_parser version of `--json[=VERSION]`; the default one for `list`. Raises SpritzError for unknown
    versions.
    """
    option, version_word = (
        ("--yaml", version_word[len(YAML) :]) if version_word.startswith(YAML) else ("--json", version_word)
    )
    if version_word in ("", "list"):
        option, version_word = "DataParserParameters", data_parser()
        if not version_word:
            return DEFAULT
    name = version_word.removeprefix("data_parser/")
    if name not in VERSIONS:
        known = ", ".join(sorted(VERSIONS))
        raise SpritzError(f"{option}={version_word} is not supported by Spritz: {known} are, without flags")
    return name


def shaped(version_word: str, operation: str, body: dict[str, Any]) -> dict[str, Any]:
    """The body in the requested version; `operation`: the REST operation with the same answer (`GET /slurm/jobs`)."""
    version = version_of(version_word)
    if version == DEFAULT or not operation:
        return body
    from spritz.presentation.json.documents import operations
    from spritz.presentation.json.shape import Shapes

    answer = next(candidate.answer for candidate in operations(version) if candidate.key == operation)
    return {name: Shapes(version).value(answer, name)(value) for name, value in body.items()}


def show(output: Output, version_word: str, body: dict[str, Any], operation: str = "") -> None:
    """Print an answer, or with `--json=list` the supported versions. Raises SpritzError.

    `operation`: the REST operation with the same answer, if there is one.
    """
    if version_word.removeprefix(YAML) == "list":
        _list_versions(output)
        return

    whole = encoded(
        {
            **shaped(version_word, operation, body),
            "meta": meta(output, version_of(version_word)),
            "errors": [],
            "warnings": [],
        }
    )
    if version_word.startswith(YAML):
        text = document(json.decode(whole))
    else:
        text = json.format(whole, indent=2).decode("utf-8") + "\n"
    output.out(_printable(text))


def show_records(output: Output, version_word: str, name: str, records: list[str], other_keys: dict[str, Any]) -> None:
    """Show an answer whose first list, `name`, has records that are text already (see `pretty`)."""
    if version_word.startswith(YAML) or version_word == "list":
        show(output, version_word, {name: [Raw(record.encode()) for record in records], **other_keys})
        return

    before, behind = around(
        name, {**other_keys, "meta": meta(output, version_of(version_word)), "errors": [], "warnings": []}
    )
    output.out(before)
    for start in range(0, len(records), _RECORDS_PER_WRITE):
        output.out("\n" if start == 0 else ",\n")
        output.out(_printable(",\n".join(records[start : start + _RECORDS_PER_WRITE])))
    output.out(("\n  " if records else "") + _printable(behind) + "\n")


_RECORDS_PER_WRITE = 100


def _list_versions(output: Output) -> None:
    lines = ["Possible data_parser plugins:", *(f"data_parser/{version}" for version in sorted(VERSIONS))]
    output.out("\n".join(lines) + "\n")


def _printable(text: str) -> str:
    if text.isascii():
        return text
    from spritz.notation.octets import restored

    # Differs: Slurm prints bytes that are not UTF-8 as they are, which is no JSON; here each is escaped (\udce9).
    return restored(text).encode("utf-8", "backslashreplace").decode("utf-8")


def meta(output: Output, version: str) -> dict[str, Any]:
    """The answer's `meta`: the client, the command and the plugin."""
    major, minor, micro = SLURM_VERSION.split(".")
    return {
        "plugin": {
            "type": "",
            "name": "",
            "data_parser": f"data_parser/{version}",
            "accounting_storage": f"accounting_storage/{_accounting()}",
        },
        "client": {"source": _terminal(), "user": name_of(os.getuid()), "group": group_of(os.getgid())},
        "command": [output.program],
        "slurm": {
            "version": {"major": major, "micro": micro, "minor": minor},
            "release": SLURM_VERSION,
            "cluster": cluster_name(),
        },
    }


def _accounting() -> str:
    """AccountingStorageType of the configuration in use, without `accounting_storage/`."""
    try:
        keys = read_keys(frozenset(("accountingstoragetype",)))
    except ClientError:
        return "none"
    return keys.get("accountingstoragetype", "").lower().removeprefix("accounting_storage/") or "none"


def _terminal() -> str:
    try:
        return os.ttyname(0)
    except OSError:
        return ""


def cluster_name() -> str:
    """ClusterName of the configuration in use; "" if there is none."""
    try:
        return locate_controller().cluster_name
    except ClientError:
        return ""
