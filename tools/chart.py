"""What the chart in packaging/kubernetes renders to, by Helm's own engine (helm-python-sdk has it as a library).

    python -m tools.chart [VALUES.yaml …] [--name NAME] [--namespace NAMESPACE]
    python -m tools.chart --write        crds.yaml, clusters.yaml and operator.yaml next to the chart: plain manifests;
                                         and Grafana's dashboard in the chart, which is that of the package

See docs/decisions/0209.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import helm_python
import yaml

CHART = Path(__file__).parents[1] / "packaging/kubernetes/chart"

#: What `spritz` installs for Grafana; the chart has a copy, since helm reads no file outside of it.
DASHBOARD = Path(__file__).parents[1] / "src/spritz/controller/metrics/monitoring/grafana.json"

_HEAD = "# Written from the chart by `python -m tools.chart --write`, for `kubectl apply -f`.\n"
_NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: spritz\n"


class ChartError(Exception):
    """What is wrong with a template or with values."""


def values_of(*files: Path) -> dict[str, Any]:
    """The values of these files, each over those before it, as `helm -f` takes them."""
    found: dict[str, Any] = {}
    for file in files:
        found = _over(found, yaml.safe_load(file.read_text()) or {})
    return found


def _over(have: Any, given: Any) -> Any:
    if not isinstance(have, dict) or not isinstance(given, dict):
        return given
    return {**have, **{key: _over(have.get(key), value) for key, value in given.items()}}


def render(values: Mapping[str, Any], name: str = "spritz", namespace: str = "spritz") -> str:
    """All templates with these values over the chart's own, in the order of their names, as `helm template` has it.

    Raises ChartError, with the path of a value that the schema refuses.
    """
    try:
        with helm_python.Chart.load(str(CHART)) as chart:
            chart.validate_schema(dict(values))
            rendered = chart.render(dict(values), name=name, namespace=namespace)
    except helm_python.HelmError as error:
        raise ChartError(str(error)) from error
    texts = {path: text.strip() for path, text in sorted(rendered.items()) if path.endswith(".yaml")}
    return "".join(
        f"---\n# Source: {path}\n{text.removeprefix('---').lstrip()}\n" for path, text in texts.items() if text
    )


def plain() -> dict[str, str]:
    """The plain manifests by file name: definitions, and each part of the operator with the chart's defaults."""
    found = {"crds.yaml": _HEAD + "---\n".join(file.read_text() for file in sorted((CHART / "crds").iterdir()))}
    for name, part in (("clusters.yaml", "clusters"), ("operator.yaml", "pods")):
        values = {each: {"enabled": each == part} for each in ("clusters", "pods")}
        found[name] = f"{_HEAD}{_NAMESPACE}{render(values)}"
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
            sys.stdout.write(render(values_of(*given.values), given.name, given.namespace))
    except ChartError as error:
        print(f"chart: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
