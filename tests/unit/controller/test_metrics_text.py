"""Pages are the text that prometheus-client's encoders would write."""

from __future__ import annotations

import pytest
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from spritz.controller.metrics.text import text_of

_VALUES = (0.0, 1, 1.5, 999_999.0, 1e6, 1234567, 7.5e22, 1e-7, -3, float("inf"), float("-inf"), float("nan"))


def _families() -> list[Metric]:
    labelled = GaugeMetricFamily("slurm_node_cpus", 'CPUs of a "node"\\ \n', labels=["node", "account"])
    for number, value in enumerate(_VALUES):
        labelled.add_metric([f'n{number}"\\\n é', ""], value)
    return [
        GaugeMetricFamily("slurm_jobs", "Jobs", value=3),
        labelled,
        CounterMetricFamily("spritz_passes", "Passes of the scheduler", value=12),
        CounterMetricFamily("spritz_journal_seconds", "Time", value=0.25, unit="seconds"),
        InfoMetricFamily("spritz_build", "This build", value={"version": "25.05", "software": "0.1"}),
        GaugeMetricFamily("spritz_nothing", "No samples", labels=["node"]),
    ]


@pytest.mark.parametrize(
    "accept", ["", "text/plain", "application/openmetrics-text", "application/openmetrics-text;version=1.0.0"]
)
def test_a_page_is_what_the_client_would_write(accept: str) -> None:
    class Collected:
        def collect(self) -> list[Metric]:
            return _families()

    encode, kind = choose_encoder(accept)
    written = encode(Collected())
    assert text_of(_families(), openmetrics=kind.startswith("application/openmetrics-text")) == written
