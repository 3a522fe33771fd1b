"""Energy by counters of processors and GPUs. Source: Linux power capping framework; NVML, stood in for here."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from spritz.model.accounting import step_usage
from spritz.model.accounting.records import StepRecord
from spritz.model.node_daemon.reports import Usage
from spritz.stepd.resources.energy import NvidiaGpus, Rapl, counters
from spritz.stepd.resources.usage import StepUsage


def put(root: Path, name: str, microjoules: int, most: int = 1_000_000_000) -> None:
    directory = root / name
    directory.mkdir(exist_ok=True)
    (directory / "energy_uj").write_text(f"{microjoules}\n")
    (directory / "max_energy_range_uj").write_text(f"{most}\n")


def test_sockets_are_added_up_and_their_parts_are_not(tmp_path: Path) -> None:
    for name in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1"):
        put(tmp_path, name, 5_000_000)
    counters = Rapl(str(tmp_path))
    assert (counters.known, counters.read()) == (True, 0)
    put(tmp_path, "intel-rapl:0", 25_000_000)
    put(tmp_path, "intel-rapl:0:0", 900_000_000)
    put(tmp_path, "intel-rapl:1", 6_000_000)
    assert counters.read() == 21


def test_a_counter_that_has_run_over_goes_on(tmp_path: Path) -> None:
    put(tmp_path, "intel-rapl:0", 990_000_000)
    counters = Rapl(str(tmp_path))
    put(tmp_path, "intel-rapl:0", 20_000_000)
    assert counters.read() == 30


def test_where_nothing_counts_nothing_is_known(tmp_path: Path) -> None:
    assert not Rapl(str(tmp_path / "none")).known
    account = StepUsage(energy=Rapl(str(tmp_path / "none")))
    assert account.usage().energy_joules == 0


def test_what_nodes_used_is_added_up(tmp_path: Path) -> None:
    step = StepRecord(number=1, step_id=0, job_id=1, node_count=2, tasks=2)
    for node, joules in (("n1", 100), ("n2", 50)):
        step_usage.add(step, node, Usage(cpu_user_seconds=1.0, energy_joules=joules))
    assert step_usage.parse(step.usage_in_tot)["energy"] == "150"
    assert step_usage.parse(step.usage_in_max_node)["energy"] == "n1"


class Nvml(ModuleType):
    """Three GPUs, whose device files are numbered the other way round; the second is too old to count."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.millijoules = [5_000_000, 0, 70_000_000]
        self.loaded = 0
        self.broken = False

    def nvmlInit(self) -> None:
        self.loaded += 1
        if self.broken:
            raise self.NVMLError("driver not loaded")

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMinorNumber(self, device: int) -> int:
        return 2 - device

    def nvmlDeviceGetTotalEnergyConsumption(self, device: int) -> int:
        if device == 1 or self.broken:
            raise self.NVMLError("not supported")
        return self.millijoules[device]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    made = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def test_a_step_is_told_what_its_own_gpus_used_since_it_began(nvml: Nvml) -> None:
    mine, all_of_them = NvidiaGpus(("/dev/nvidia2", "/dev/nvidiactl", "/dev/fuse")), NvidiaGpus(())
    assert (mine.read(), all_of_them.read()) == (0, 0)
    nvml.millijoules = [5_250_000, 0, 71_000_000]
    assert (mine.read(), all_of_them.read()) == (250, 1250)
    account = StepUsage(energy=mine)
    nvml.millijoules[0] += 10_400
    assert account.usage().energy_joules == 260


def test_a_reloaded_driver_counts_from_zero_and_a_failing_one_stops_counting(nvml: Nvml) -> None:
    gpus = NvidiaGpus(("/dev/nvidia2",))
    gpus.read()
    nvml.millijoules[0] = 3_000
    assert gpus.read() == 3
    nvml.broken = True
    assert gpus.read() == 3


def test_nvml_is_not_loaded_before_the_tasks_have_been_started_nor_twice(nvml: Nvml) -> None:
    nvml.broken = True
    account = StepUsage(energy=NvidiaGpus(()))
    assert nvml.loaded == 0
    account.begin()
    account.sample([])
    assert (nvml.loaded, account.usage().energy_joules) == (1, 0)


def test_gpus_are_counted_for_steps_that_have_some() -> None:
    assert isinstance(counters("gpu", (), gpus=True), NvidiaGpus)
    assert counters("gpu", (), gpus=False) is None
    assert isinstance(counters("rapl", (), gpus=False), Rapl)
    assert counters("", (), gpus=True) is None
