"""Figures from records: who has which GPU, what is free, and names that would turn a page around."""

from __future__ import annotations

import msgspec
import pytest

from spritz.http.records import Allocation, Gres, Rows, Share, columns_of
from spritz.http.rest import Rest
from spritz.web import drawing, words
from spritz.web.picture import Picture
from spritz.web.records import Gpus, Job, Node


def job(number: int, *nodes: Share, state: str = "RUNNING", ends_at: float = 0.0) -> Job:
    return Job(id=number, name=f"job{number}", raw_state=state, allocation=Allocation(nodes), ends_at=ends_at)


def gpus(node: str, indexes: str, count: int) -> Share:
    return Share(node=node, cpus="f", gres=(Gres(name="gpu", type="h100", count=count, indexes=indexes),))


NODE = Node(name="n1", state=("MIXED",), cpus=16, gpus=(Gpus(type="h100", count=8),), gpus_used=(("h100", 5, "1f"),))


def test_each_gpu_shows_the_job_that_has_it() -> None:
    jobs = [job(7, gpus("n1", "f", 4)), job(8, gpus("n1", "10", 1)), job(9, gpus("n2", "ff", 8))]
    assert drawing.cells_of(NODE, jobs) == [7, 7, 7, 7, 8, 0, 0, 0]


def test_gpus_that_are_counted_only_take_the_lowest_free_cells() -> None:
    assert drawing.cells_of(NODE, [job(7, gpus("n1", "1", 1)), job(8, gpus("n1", "0", 2))]) == [7, 8, 8, 0, 0, 0, 0, 0]


def test_a_node_without_gpus_shows_its_cpus() -> None:
    node = Node(name="n1", cpus=16)
    assert drawing.cells_of(node, [job(7, Share(node="n1", cpus="ff"))]) == [7, 7, 7, 7, 0, 0, 0, 0]


def test_capacity_says_what_is_free_where_jobs_may_start_and_when_the_next_come() -> None:
    picture = Picture(Rest("http://nowhere"))
    drained = Node(name="n2", state=("IDLE", "DRAIN"), cpus=16, gpus=(Gpus(type="h100", count=8),))
    picture.nodes = {"n1": NODE, "n2": drained}
    picture.jobs = {7: job(7, gpus("n1", "f", 4), ends_at=500.0), 8: job(8, gpus("n1", "10", 1), ends_at=400.0)}
    capacity = drawing.capacities(picture)[0]
    assert (capacity.total, capacity.used, capacity.unavailable, capacity.free) == (16, 5, 8, 3)
    assert (capacity.next_at, capacity.next_count) == (400.0, 1)


def test_rows_are_read_in_the_order_in_which_they_are_asked_for() -> None:
    columns = columns_of(Job).split(",")
    row = {name: getattr(Job(id=7), field) for name, field in zip(columns, Job.__struct_fields__, strict=True)}
    row.update(name="x", state="PENDING", gpu_count=2)
    answer = msgspec.json.decode(msgspec.json.encode({"now": 1.0, "rows": [list(row.values())]}), type=Rows[Job])
    assert (answer.rows[0].name, answer.rows[0].is_pending, answer.rows[0].gpus) == ("x", True, 2)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("a\u202eb", "a\ufffdb"),
        ("a\nb\x1b[31m", "a\ufffdb\ufffd[31m"),
        ("x" * 500, "x" * 400 + "…"),
    ],
)
def test_names_stay_on_their_line_and_in_their_direction(text: str, shown: str) -> None:
    assert words.visible(text) == shown


def test_reasons_and_amounts_are_words_with_units() -> None:
    assert words.reason_text("Priority") == "jobs of higher priority are ahead"
    assert words.reason_text("QOSMaxNodePerUserLimit") == "a limit of its QOS is reached"
    assert (words.span(59), words.span(3 * 3600 + 300), words.span(2 * 86_400)) == ("59 s", "3 h 05 min", "2 d")
    assert (words.memory(512), words.memory(65_536), words.memory(1536)) == ("512 MiB", "64 GiB", "1.5 GiB")
