"""Curves of several runs' metrics on an HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spritz.experiments.errors import ExperimentError
from spritz.experiments.results.metrics import Point
from spritz.extras import pip_install


def page(runs: Mapping[str, Sequence[Point]]) -> str:
    """A page that loads nothing from the network: a diagram a metric, in it a curve a run; values over their steps.

    Raises ExperimentError without Plotly.
    """
    try:
        from plotly.colors import qualitative
        from plotly.graph_objects import Scatter
        from plotly.subplots import make_subplots
    except ImportError as error:
        raise ExperimentError("--html needs Plotly", hint=pip_install("experiments")) from error

    names = sorted({point.name for points in runs.values() for point in points})
    figure: Any = make_subplots(rows=len(names), cols=1, vertical_spacing=0.3 / len(names), subplot_titles=names)
    labelled: set[str] = set()
    for row, name in enumerate(names, 1):
        for number, (run, points) in enumerate(runs.items()):
            course = [point for point in points if point.name == name]
            if not course:
                continue
            places = [place if point.step is None else point.step for place, point in enumerate(course)]
            figure.add_trace(
                Scatter(
                    x=places, y=[point.value for point in course], name=run, legendgroup=run,
                    # Plotly would give each curve another colour, and a label of its own.
                    line={"color": qualitative.Plotly[number % len(qualitative.Plotly)]},
                    showlegend=run not in labelled,
                    mode="lines+markers" if len(course) < 100 else "lines",
                ),
                row=row, col=1,
            )  # fmt: skip
            labelled.add(run)
    figure.update_layout(height=max(400, 260 * len(names)), hovermode="x")
    text: str = figure.to_html(include_plotlyjs=True, full_html=True)
    return text
