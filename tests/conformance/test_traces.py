"""Published results on public traces. Not in the default run: `make traces DATA=DIR` (with `swf/` and `gpu/` in it).

Sources of the traces and of the figures: docs/simulate.md.
"""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from statistics import fmean

import pytest

from spritz.cli.call.context import Context
from spritz.cli.call.entry import call
from spritz.cli.spritz import main

pytestmark = [pytest.mark.traces, pytest.mark.timeout(900)]

KTH = "swf/KTH-SP2-1996-2.1-cln.swf.gz"
HPC2N = "swf/HPC2N-2002-2.1-cln.swf.gz"
THUNDER = "swf/LLNL-Thunder-2007-1.1-cln.swf.gz"
LUBLIN = "swf/lublin_256.swf.gz"


@pytest.fixture
def data(request: pytest.FixtureRequest) -> Path:
    """The folder of traces."""
    folder = request.config.getoption("--traces")
    if not folder:
        pytest.skip("no --traces DIR")
    return Path(folder)


def figures(*words: object) -> dict[str, float]:
    """What `spritz simulate --json` says."""
    out, err = StringIO(), StringIO()
    status = call(main, ["simulate", *map(str, words), "--json"], Context("spritz", {}, "/", StringIO(), out, err))
    assert status == 0, err.getvalue()
    found: dict[str, float] = json.loads(out.getvalue())
    return found


def swf(data: Path, trace: str, processors: int, policy: str, *more: str) -> dict[str, float]:
    path = data / trace
    if not path.exists():
        pytest.skip(f"no {trace}")
    return figures(path, "--processors", processors, "--policy", policy, *more)


@pytest.mark.parametrize(
    ("trace", "processors", "policy", "jobs", "wait", "slowdown"),
    [
        (KTH, 100, "fcfs", 27_992, 218_832.1, 4_294.50),
        (KTH, 100, "easy", 27_992, 6_351.5, 86.37),
        (KTH, 100, "easy-sjbf", 27_992, 5_623.4, 66.40),
        (HPC2N, 240, "fcfs", 202_876, 15_842.5, 207.34),
        (HPC2N, 240, "easy", 202_876, 10_800.5, 89.04),
        (THUNDER, 4_008, "fcfs", 113_613, 8_491.1, 255.69),
        (THUNDER, 4_008, "easy", 113_613, 317.4, 4.38),
        (LUBLIN, 256, "fcfs", 10_000, 2_388_443.8, 66_502.48),
        (LUBLIN, 256, "easy", 10_000, 97_156.0, 590.05),
    ],
)
def test_reference_simulators(
    data: Path, trace: str, processors: int, policy: str, jobs: int, wait: float, slowdown: float
) -> None:
    found = swf(data, trace, processors, policy)
    assert found["jobs"] == jobs
    assert found["mean_wait_seconds"] == pytest.approx(wait, abs=0.1)
    assert found["mean_bounded_slowdown"] == pytest.approx(slowdown, abs=0.01)


def test_easy_on_kth_is_as_published(data: Path) -> None:
    """Tsafrir et al. 2007: 92.6 with requested times, 71.7 with actual ones, on the whole log."""
    assert swf(data, KTH, 100, "easy")["mean_bounded_slowdown"] == pytest.approx(92.6, rel=0.08)
    clairvoyant = swf(data, KTH, 100, "easy", "--runtimes", "actual")
    assert clairvoyant["mean_bounded_slowdown"] == pytest.approx(71.7, rel=0.03)


@pytest.mark.parametrize(
    ("policy", "slowdown"),
    [
        ("rlscheduler-fcfs", 7273.77),
        ("rlscheduler-fcfs-backfill", 235.82),
        ("rlscheduler-sjf", 277.35),
        ("rlscheduler-sjf-backfill", 73.31),
        ("rlscheduler-f1", 258.37),
        ("rlscheduler-f1-backfill", 75.07),
    ],
)
def test_lublin_is_as_published(data: Path, policy: str, slowdown: float) -> None:
    """RLScheduler (SC'20), tables V and VI."""
    assert swf(data, LUBLIN, 256, policy)["mean_bounded_slowdown"] == pytest.approx(slowdown, abs=0.01)


@pytest.mark.parametrize(("trace", "processors"), [(KTH, 100), (HPC2N, 240)])
def test_predictions_bring_slowdown_to_three_quarters(data: Path, trace: str, processors: int) -> None:
    plain = swf(data, trace, processors, "easy")["mean_bounded_slowdown"]
    kept = swf(data, trace, processors, "easy", "--runtimes", "predicted")
    loose = swf(data, trace, processors, "easy", "--runtimes", "predicted", "--no-guarantee")
    assert kept["mean_bounded_slowdown"] <= 0.75 * plain
    assert loose["mean_bounded_slowdown"] <= 0.75 * plain
    assert kept["reserved_starts"] > 0
    assert kept["reserved_starts_broken"] == 0
    assert loose["reserved_starts_broken"] > 0


@pytest.mark.parametrize(
    ("trace", "policy", "completion", "makespan"),
    [
        ("trace1", "srtf", 1_370_603.2, 26_045_465.5),
        ("trace1", "srsf", 980_140.6, 26_065_759.0),
        ("trace3_pr", "srtf", 844_394.8, 7_261_795.8),
        ("trace3_pr", "srsf", 798_057.7, 6_907_790.4),
    ],
)
def test_muri_is_as_published(data: Path, trace: str, policy: str, completion: float, makespan: float) -> None:
    path = data / f"gpu/muri/{trace}.csv.gz"
    found = figures("--gang", path, "--nodes", 8, "--gpus-per-node", 8, "--policy", policy)
    assert found["mean_completion_seconds"] == pytest.approx(completion, abs=0.1)
    assert found["makespan_seconds"] == pytest.approx(makespan, abs=0.1)


@pytest.mark.parametrize(
    ("placement", "low", "high"), [("random", 86.5, 88.5), ("bestfit", 92.6, 93.6), ("fgd", 95, 96)]
)
def test_openb_is_as_published(data: Path, placement: str, low: float, high: float) -> None:
    """FGD (ATC'23), means of ten seeds: 87.47, 93.08, 95.39."""
    pods, nodes = data / "gpu/openb/openb_pod_list_default.csv.gz", data / "gpu/openb/openb_node_list_gpu_node.csv.gz"
    words = ("--pods", pods, "--node-list", nodes, "--demand", 1.3, "--placement", placement)
    assert low <= fmean(figures(*words, "--seed", seed)["gpus_allocated_percent"] for seed in (42, 43)) <= high
