"""Renders packaging/kubernetes/chart without helm, as far as the chart's templates go.

    python -m tools.chart [VALUES.yaml …] [--name NAME] [--namespace NAMESPACE]
    python -m tools.chart --write        crds.yaml, clusters.yaml and operator.yaml next to the chart: plain manifests;
                                         and Grafana's dashboard in the chart, which is that of the package

Of Go's templates: `if`, `else if`, `with`, `range`, variables, pipelines, `define` and `include`; of Sprig's functions
those in `FUNCTIONS`; of helm's objects `.Files.Get`. Anything else is an error that names it.
tests/unit/k8s/test_chart.py compares the outcome with that of Go's own text/template where there is a Go.

Source: pkg.go.dev/text/template; helm.sh/docs/chart_template_guide.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

CHART = Path(__file__).parents[1] / "packaging/kubernetes/chart"

#: What `spritz` installs for Grafana; the chart has a copy, since helm reads no file outside of it.
DASHBOARD = Path(__file__).parents[1] / "src/spritz/controller/metrics/monitoring/grafana.json"

_HEAD = "# Written from the chart by `python -m tools.chart --write`, for `kubectl apply -f`.\n"
_NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: spritz\n"

_TAG = re.compile(r"\{\{(-\s)?(.*?)(\s-)?\}\}", re.DOTALL)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`|\(|\)|\||:=|=|,|[^\s()|,:=]+')


class ChartError(Exception):
    """What is wrong with a template or with values."""


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "toYaml": lambda value: yaml.safe_dump(value, default_flow_style=False).removesuffix("\n...\n").rstrip("\n"),
    "toJson": lambda value: json.dumps(value),
    "nindent": lambda count, text: "\n" + _indented(count, text),
    "indent": lambda count, text: _indented(count, text),
    "quote": lambda value: json.dumps(_text(value)),
    "default": lambda other, value=None: value if value else other,
    "required": lambda words, value: value if value not in (None, "") else _refuse(words),
    "eq": lambda first, *others: any(first == other for other in others),
    "ne": lambda first, other: first != other,
    "gt": lambda first, other: first > other,
    "not": lambda value: not value,
    "and": lambda *values: next((value for value in values if not value), values[-1]),
    "or": lambda *values: next((value for value in values if value), values[-1]),
    "printf": lambda form, *values: form % values,
}


def _refuse(words: str) -> Any:
    raise ChartError(words)


def _indented(count: int, text: str) -> str:
    return "\n".join(" " * count + line for line in text.split("\n"))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Template:
    """One file's tags and text, as a tree."""

    def __init__(self, text: str, defined: dict[str, list[Any]]) -> None:
        self._parts = list(_split(text))
        self._at = 0
        self._defined = defined
        self.body, end = self._block()
        if end:
            raise ChartError(f"{end} without a beginning")

    def _block(self) -> tuple[list[Any], str]:
        found: list[Any] = []
        while self._at < len(self._parts):
            kind, text = self._parts[self._at]
            self._at += 1
            if kind == "text":
                found.append(text)
                continue
            word, _, rest = text.partition(" ")
            if word in ("end", "else"):
                return found, text
            if word in ("if", "with", "range"):
                body, end = self._block()
                otherwise: list[Any] = []
                if end.startswith("else"):
                    more = end.removeprefix("else").strip()
                    if more:
                        # `else if` is an `if` of its own, with the same end.
                        self._at -= 1
                        self._parts[self._at] = ("tag", more)
                        otherwise, _ = self._nested()
                    else:
                        otherwise, _ = self._block()
                found.append((word, rest, body, otherwise))
            elif word == "define":
                body, _ = self._block()
                self._defined[json.loads(rest)] = body
            elif not text.startswith("/*"):
                found.append(("put", text, [], []))
        return found, ""

    def _nested(self) -> tuple[list[Any], str]:
        _, text = self._parts[self._at]
        self._at += 1
        word, _, rest = text.partition(" ")
        body, end = self._block()
        otherwise: list[Any] = []
        if end.startswith("else "):
            self._at -= 1
            self._parts[self._at] = ("tag", end.removeprefix("else").strip())
            otherwise, _ = self._nested()
        elif end == "else":
            otherwise, _ = self._block()
        return [(word, rest, body, otherwise)], ""


def _split(text: str) -> Iterator[tuple[str, str]]:
    at, trim = 0, False
    for match in _TAG.finditer(text):
        before = text[at : match.start()]
        if trim:
            before = before.lstrip()
        yield "text", before.rstrip() if match[1] else before
        yield "tag", " ".join(match[2].split("\n")).strip()
        at, trim = match.end(), bool(match[3])
    rest = text[at:]
    yield "text", rest.lstrip() if trim else rest


class _Scope:
    """`.`, `$` and variables."""

    def __init__(self, root: Any, defined: Mapping[str, list[Any]]) -> None:
        self.variables: dict[str, Any] = {"$": root}
        self.defined = defined

    def render(self, body: list[Any], dot: Any) -> str:
        return "".join(part if isinstance(part, str) else self._act(part, dot) for part in body)

    def _act(self, part: tuple[str, str, list[Any], list[Any]], dot: Any) -> str:
        word, text, body, otherwise = part
        if word == "put":
            name = re.match(r"(\$\w+)\s*:?=\s*(.*)", text)
            if name:
                self.variables[name[1]] = self.value(name[2], dot)
                return ""
            return _text(self.value(text, dot))
        if word == "range":
            return self._range(text, body, otherwise, dot)
        value = self.value(text, dot)
        if not value:
            return self.render(otherwise, dot)
        return self.render(body, value if word == "with" else dot)

    def _range(self, text: str, body: list[Any], otherwise: list[Any], dot: Any) -> str:
        names = re.match(r"(\$\w+)\s*,\s*(\$\w+)\s*:=\s*(.*)", text)
        value = self.value(names[3] if names else text, dot) or []
        rows = sorted(value.items()) if isinstance(value, dict) else list(enumerate(value))
        if not rows:
            return self.render(otherwise, dot)
        found = []
        for key, each in rows:
            if names:
                self.variables[names[1]], self.variables[names[2]] = key, each
            found.append(self.render(body, each))
        return "".join(found)

    def value(self, text: str, dot: Any) -> Any:
        tokens = _TOKEN.findall(text)
        found, rest = self._pipeline(tokens, dot)
        if rest:
            raise ChartError(f"{{{{ {text} }}}}: {' '.join(rest)} is not understood")
        return found

    def _pipeline(self, tokens: list[str], dot: Any) -> tuple[Any, list[str]]:
        found, rest = self._command(tokens, dot, ())
        while rest and rest[0] == "|":
            found, rest = self._command(rest[1:], dot, (found,))
        return found, rest

    def _command(self, tokens: list[str], dot: Any, last: tuple[Any, ...]) -> tuple[Any, list[str]]:
        words: list[Any] = []
        name = tokens[0] if tokens else ""
        is_call = name in FUNCTIONS or name in ("include", ".Files.Get")
        rest = tokens[1:] if is_call else tokens
        while rest and rest[0] not in ("|", ")"):
            if rest[0] == "(":
                value, rest = self._pipeline(rest[1:], dot)
                rest = rest[1:]
            else:
                value, rest = self._operand(rest[0], dot), rest[1:]
            words.append(value)
        if name == "include":
            body = self.defined.get(words[0])
            if body is None:
                raise ChartError(f"no template {words[0]} is defined")
            return _Scope(words[1], self.defined).render(body, words[1]), rest
        if name == ".Files.Get":
            return (CHART / words[0]).read_text(), rest
        if is_call:
            return FUNCTIONS[name](*words, *last), rest
        if len(words) != 1 or last:
            raise ChartError(f"{' '.join(tokens)}: {name or 'nothing'} is no function that this renderer has")
        return words[0], rest

    def _operand(self, word: str, dot: Any) -> Any:
        if word[0] == '"':
            return json.loads(word)
        if word[0] == "`":
            return word[1:-1]
        if word in ("true", "false"):
            return word == "true"
        if re.fullmatch(r"-?\d+", word):
            return int(word)
        if word[0] in "$.":
            start, _, path = word.partition(".")
            found = dot if not start else self.variables[start]
            for name in filter(None, path.split(".")):
                found = found.get(name) if isinstance(found, dict) else None
            return found
        raise ChartError(f"{word} is no function that this renderer has")


def merged(have: Any, given: Any) -> Any:
    """As helm merges values: mappings by key, all else replaced, null takes away."""
    if not isinstance(have, dict) or not isinstance(given, dict):
        return given
    both = {**have, **{key: merged(have.get(key), value) for key, value in given.items()}}
    return {key: value for key, value in both.items() if not (key in given and value is None)}


def values_of(*files: Path) -> dict[str, Any]:
    """The chart's values with these over them. Raises ChartError for those that the schema refuses."""
    found = yaml.safe_load((CHART / "values.yaml").read_text())
    for file in files:
        found = merged(found, yaml.safe_load(file.read_text()) or {})
    check(found)
    return dict(found)


def check(values: Any) -> None:
    """Raises ChartError with the path of what the schema refuses."""
    try:
        jsonschema.validate(values, json.loads((CHART / "values.schema.json").read_text()))
    except jsonschema.ValidationError as error:
        raise ChartError(f"{error.json_path.removeprefix('$.')}: {error.message}") from error


def context(values: Mapping[str, Any], name: str = "spritz", namespace: str = "spritz") -> dict[str, Any]:
    """What templates see."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    return {
        "Values": values,
        "Release": {"Name": name, "Namespace": namespace, "Service": "Helm"},
        "Chart": {"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
    }


def render(root: Mapping[str, Any]) -> str:
    """All templates, in the order of their names, as `helm template` prints them."""
    defined: dict[str, list[Any]] = {}
    bodies = []
    for file in sorted((CHART / "templates").iterdir()):
        try:
            body = _Template(file.read_text(), defined).body
        except ChartError as error:
            raise ChartError(f"{file.name}: {error}") from error
        if file.suffix == ".yaml":
            bodies.append((file.name, body))
    found = []
    for name, body in bodies:
        try:
            text = _Scope(root, defined).render(body, root).strip()
        except ChartError as error:
            raise ChartError(f"{name}: {error}") from error
        if text:
            found.append(f"---\n# Source: spritz/templates/{name}\n{text.removeprefix('---').lstrip()}\n")
    return "".join(found)


def plain() -> dict[str, str]:
    """The plain manifests by file name: definitions, and each part of the operator with the chart's defaults."""
    found = {"crds.yaml": _HEAD + "---\n".join(file.read_text() for file in sorted((CHART / "crds").iterdir()))}
    for name, part in (("clusters.yaml", "clusters"), ("operator.yaml", "pods")):
        values = values_of()
        for each in ("clusters", "pods"):
            values[each]["enabled"] = each == part
        found[name] = f"{_HEAD}{_NAMESPACE}{render(context(values))}"
    return found


def main(argv: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tools.chart", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("values", nargs="*", type=Path)
    parser.add_argument("--name", default="spritz")
    parser.add_argument("--namespace", default="spritz")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(argv)
    try:
        if given.write:
            for name, text in plain().items():
                (CHART.parent / name).write_text(text)
            (CHART / "files/grafana.json").write_text(DASHBOARD.read_text())
        else:
            sys.stdout.write(render(context(values_of(*given.values), given.name, given.namespace)))
    except ChartError as error:
        print(f"chart: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
