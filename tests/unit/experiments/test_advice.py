"""Advice from accounting's lines."""

from __future__ import annotations

import pytest

from spritz.experiments.cluster import advice

LINES = """\
7|02:00:00|1440|02:10:00|billing=8,cpu=8,gres/gpu=4,mem=64G,node=2||
7.batch|02:00:00||00:01.500|cpu=4,mem=32G,node=1|44692K|1
7.0|01:59:59||1-02:00:00|cpu=8,mem=64G,node=2|2G|4
"""


def test_corrected_options_follow_from_what_was_used() -> None:
    use = advice.parsed(LINES, gpu_percent=10.0)
    assert use is not None
    assert (use.cpus, use.nodes, use.gpus, use.limit_seconds) == (8, 2, 4, 86_400)
    assert use.memory_bytes == 4 << 30  # two tasks on a node, of 2 GiB each at most
    assert advice.used(use) == "1.1 of 8 CPUs, 4.0 GiB of 32.0 GiB memory on a node, 10% of 4 GPUs, 2:00:00 of 24:00:00"
    assert advice.advised(use, state="COMPLETED", tasks=2) == [
        "--cpus-per-task=1",
        "--mem=5G",
        "--time=180 (it would start sooner)",
        "--gpus=1, or more CPUs or workers to load data (GPUs worked at 10%)",
    ]


def test_a_short_run_gets_no_advice_but_of_what_ended_it() -> None:
    use = advice.parsed("8|00:00:05|60|00:01.000|cpu=8,mem=4G,node=1||\n")
    assert use is not None
    assert advice.advised(use, state="COMPLETED") == []
    assert advice.advised(use, state="OUT_OF_MEMORY") == ["--mem=8G (it ran out of memory)"]
    assert advice.advised(use, state="TIMEOUT") == ["--time=90 (it reached its time limit)"]


def test_a_cluster_without_a_gatherer_of_usage_yields_nothing_false() -> None:
    use = advice.parsed("8|02:00:00|UNLIMITED|00:00:00|cpu=8,mem=64G,node=1||\n8.0|02:00:00||00:00:00|cpu=8||1\n")
    assert use is not None
    assert advice.used(use) == ""
    assert advice.advised(use, state="COMPLETED") == []
    assert advice.parsed("") is None


@pytest.mark.parametrize(
    ("text", "value"), [("00:02.454", 2.454), ("1-02:03:04", 93_784), ("", 0.0), ("INVALID", 0.0), ("01:00:00", 3600)]
)
def test_times_of_accounting(text: str, value: float) -> None:
    assert advice.seconds(text) == pytest.approx(value)
