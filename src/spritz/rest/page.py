"""The page /docs: every operation of the documents, for people. HTML without scripts, which loads nothing.

To try operations, any program that reads OpenAPI takes /openapi.json from here.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spritz.presentation.json.documents import Json

POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Slurm REST API</title>
<meta name="viewport" content="width=device-width"><style>
:root { color-scheme: light dark; font-family: system-ui, sans-serif }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 2rem } details { margin: .3rem 0 } summary { cursor: pointer }
code { font-size: .95em } b { display: inline-block; min-width: 4.5em; text-transform: uppercase }
table { border-collapse: collapse; margin: .4rem 0 .4rem 1rem } td { padding: .1rem .8rem .1rem 0; vertical-align: top }
</style></head><body><h1>Slurm REST API</h1>
<p>The documents for programs: <a href="/openapi.json">openapi.json</a>, <a href="/openapi.yaml">openapi.yaml</a>.</p>
"""


def page(document: Json) -> str:
    """The page for a document with all its versions."""
    versions: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        version = path.split("/")[2]
        versions.setdefault(version, []).extend(
            _operation(path, method, described) for method, described in methods.items()
        )
    sections = (f"<h2>{escape(name)}</h2>\n{''.join(versions[name])}" for name in sorted(versions, reverse=True))
    return f"{_HEAD}{''.join(sections)}</body></html>\n"


def _operation(path: str, method: str, described: Json) -> str:
    """One operation: closed it is a line, open it shows parameters, body and answer."""
    rows = [
        _row(each["name"], each["in"], "required" if each.get("required") else "", each.get("description", ""))
        for each in described.get("parameters", ())
    ]
    if "requestBody" in described:
        rows.append(_row("body", "JSON", "", _schema(described["requestBody"])))
    rows.append(_row("answer", "JSON", "", _schema(described["responses"]["200"])))
    line = f"<b>{escape(method)}</b> <code>{escape(path)}</code> {escape(described.get('summary', ''))}"
    return f"<details><summary>{line}</summary><table>{''.join(rows)}</table></details>\n"


def _row(name: str, *cells: str) -> str:
    return f"<tr><td><code>{escape(name)}</code></td>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _schema(described: Json) -> str:
    """The name of a body's schema in the document's components."""
    reference = described.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
    return str(reference).rpartition("/")[2] or str(described.get("description", ""))
