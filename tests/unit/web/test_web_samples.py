"""What the dashboard remembers of use: rates from sums, rows that become fewer, figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.http.records import Allocation, Gres, Share
from spritz.http.rest import Rest
from spritz.web import curves, samples
from spritz.web.picture import Picture
from spritz.web.recorder import gpu_use, rates_of, steps_of
from spritz.web.records import Gpus, GpuSample, Job, Node
from spritz.web.samples import ClusterSample, JobSample, Samples


def job_row(job: int, at: float, cpus: float = 1.0) -> JobSample:
    return JobSample(job, at, cpus, 2.0 * (1 << 20), 0.0, 0.0, None, None)


def cluster_row(at: float) -> ClusterSample:
    return ClusterSample(at, 8, 4, 2.5, 16, 8, -1, 1024, 512, 3, 1)


def test_sums_of_steps_become_rates() -> None:
    out = (
        "12.batch|cpu=1-00:00:10,energy=0,fs/disk=1000,mem=2048|energy=0,fs/disk=500\n"
        "12.0|cpu=00:00:05,fs/disk=0,mem=1024|fs/disk=0\n13_4.0||\nnonsense\n"
    )
    steps = steps_of(out)
    assert steps == {"12": {"batch": (86_410.0, 2048.0, 1000.0, 500.0), "0": (5.0, 1024.0, 0.0, 0.0)}}
    before = {"batch": (86_400.0, 9999.0, 0.0, 500.0), "gone": (7.0, 1.0, 1.0, 1.0)}
    assert rates_of(steps["12"], before, 10.0) == (1.5, 3072.0, 100.0, 0.0)
    assert rates_of({"0": (1.0, 0.0, 0.0, 0.0)}, {"0": (5.0, 0.0, 0.0, 0.0)}, 0.0)[0] == 0.0, "never less than nothing"


def test_a_jobs_gpus_are_its_own_and_no_others() -> None:
    picture = Picture(Rest("unix:/nowhere"))
    told = tuple(GpuSample(number, 10 * number, 100, 1000) for number in range(4))
    picture.nodes["n"] = Node(name="n", gpus=(Gpus("h100", 4, 0),), gpu_samples=told)
    place = Share("n", gres=(Gres("gpu", "h100", 2, "c"),))
    job = Job(id=1, allocation=Allocation((place,)))
    assert gpu_use(picture, job) == (25.0, 200.0 * (1 << 20))
    assert gpu_use(picture, Job(id=2)) == (None, None)


def test_rows_are_kept_thinned_and_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Samples(tmp_path / "samples.db")
    now = 1e9
    old = [job_row(1, now - samples.JOB_FULL - 2 * samples.JOB_EVERY + 10 * number) for number in range(30)]
    found.add(cluster_row(now - samples.CLUSTER_KEPT - 1), old)
    found.add(cluster_row(now), [job_row(1, now), job_row(2, now - samples.JOB_KEPT - 1)])
    found.prune(now)
    assert [row.at for row in found.of_cluster(0)] == [now]
    assert not found.of_job(2, 0)
    kept = found.of_job(1, 0)
    assert kept[-1].at == now
    assert 2 <= len(kept) <= 4, "one in five minutes of what is old"
    assert found.of_job(1, now) == [job_row(1, now)]
    monkeypatch.setattr(samples, "ROWS_MAX", 2)
    found.add(None, [job_row(3, now + number) for number in range(5)])
    found.prune(now)
    assert [row.at for row in found.of_job(3, 0)] == [now + 3, now + 4]
    found.close()


def test_a_broken_file_is_replaced_and_another_start_finds_its_samples(tmp_path: Path) -> None:
    path = tmp_path / "samples.db"
    path.write_bytes(b"no database at all" * 100)
    first = Samples(path)
    first.add(None, [job_row(7, 5.0)])
    first.close()
    again = Samples(path)
    assert again.of_job(7, 0) == [job_row(7, 5.0)]
    again.close()


def test_other_users_of_the_machine_do_not_read_the_usage_of_jobs(tmp_path: Path) -> None:
    path = tmp_path / "samples.db"
    path.touch(0o644)
    found = Samples(path)
    found.add(None, [job_row(7, 5.0)])
    assert {file.stat().st_mode & 0o077 for file in tmp_path.iterdir()} == {0}
    found.close()


def test_figures_have_what_is_known_and_leave_out_the_rest() -> None:
    job = Job(id=1, cpus=4)
    figures = {one["title"]: one for one in curves.of_job(job, [job_row(1, 1.0, 0.5), job_row(1, 2.0, 3.5)])}
    assert set(figures) == {"CPUs kept busy", "Memory, highest so far", "Disk"}
    assert figures["CPUs kept busy"]["data"] == [[1.0, 2.0], [0.5, 3.5], [4.0, 4.0]]
    assert figures["Memory, highest so far"]["data"][1] == [2.0, 2.0]
    assert curves.of_job(job, []) == []
    whole = {one["title"]: one for one in curves.of_cluster([cluster_row(1.0)])}
    assert whole["GPUs"]["names"] == ["in use", "there are"], "how busy GPUs are is not known"
    assert whole["CPUs"]["names"] == ["in use", "busy", "there are"]
