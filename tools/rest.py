"""The page of REST's paths, from the published documents."""

from __future__ import annotations

from spritz.presentation.json.documents import VERSIONS, Operation, operations


def markdown() -> str:
    """The whole page."""
    by_key: dict[str, dict[str, Operation]] = {}
    for version in VERSIONS:
        for operation in operations(version):
            by_key.setdefault(operation.key, {})[version] = operation
    lines = [
        "# REST paths",
        "",
        "Written by `make docs` from the published documents. `slurmrestd` serves every operation of each of them,",
        "in the form that the document of the version says; `GET /openapi/v3` has all of it, and `/docs` is a page",
        "to read and try it.",
        "How to start it and who may ask: [how-to](../how-to/rest.md).",
        "",
        f"Versions: {', '.join(VERSIONS)}. `VERSION` in a path stands for one of them.",
    ]
    for title, prefix in (("slurmctld", "/slurm/"), ("slurmdbd", "/slurmdb/")):
        lines += ["", f"## {title}", "", "| operation | versions | query | body |", "|---|---|---|---|"]
        for key, found in sorted(by_key.items(), key=lambda item: (item[0].split()[1], item[0])):
            method, path = key.split()
            if path.startswith(prefix):
                lines.append(_row(method, path, prefix, found))
    lines += [
        "",
        "## Other paths",
        "",
        "| path | |",
        "|---|---|",
        "| `GET /openapi`, `/openapi/v3`, `/openapi.json`, `/openapi.yaml` | all documents in one |",
        "| `GET /docs` | a page to read and try them; nothing of it is loaded from elsewhere |",
        '| `POST /util/hostnames` | `{"hostlist": "n[1-2]"}` -> `{"hostnames": ["n1", "n2"]}` |',
        "| `POST /util/hostlist` | the other way round |",
        "",
    ]
    return "\n".join(lines)


def _row(method: str, path: str, prefix: str, found: dict[str, Operation]) -> str:
    newest = found[max(found)]
    query = ", ".join(f"`{parameter.name}`" for parameter in newest.parameters if parameter.place == "query")
    body = ""
    if newest.body is not None:
        body = f"`{newest.body.get('$ref', '').rpartition('/')[2].partition('_')[2]}`"
    served = "all" if len(found) == len(VERSIONS) else f"from {min(found)}"
    return f"| `{method} {path.replace(prefix, prefix + 'VERSION/', 1)}` | {served} | {query} | {body} |"
