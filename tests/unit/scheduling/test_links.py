"""GPUs that share links are given out together. Source: gres.conf(5) Links."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spritz.model.resources import GresCapacity, NodeCapacity, mask_ids
from spritz.scheduling.placement import linked
from spritz.scheduling.view.hardware import GresPool
from tests.unit.scheduling.site import Site, cpu_ids, devices, node, spec


def pool_of(links: list[list[int]], cores: list[str] | None = None) -> tuple[GresCapacity, ...]:
    """One gres.conf line for each GPU."""
    return tuple(
        GresCapacity(
            name="gpu",
            count=1,
            first_index=number,
            files=(f"/dev/nvidia{number}",),
            links=",".join(map(str, row)),
            cores=cores[number] if cores else "",
        )
        for number, row in enumerate(links)
    )


def groups(*members: str, strength: int = 4) -> list[list[int]]:
    """Link rows of groups such as "0246" that are fully linked within."""
    home = {int(digit): group for group, digits in enumerate(members) for digit in digits}
    count = len(home)
    return [
        [-1 if one == other else strength if home[one] == home[other] else 0 for other in range(count)]
        for one in range(count)
    ]


def given_devices(site: Site, **asked: Any) -> list[int]:
    job = site.submit(spec(1, **asked))
    return devices(site.cycle()[job])["n1"]


def test_gpus_of_one_group() -> None:
    site = Site([node("n1", 8, gres=pool_of(groups("0246", "1357")))])
    assert given_devices(site, gpus=4) == [0, 2, 4, 6]
    assert given_devices(site, gpus=2) == [1, 3]


def test_a_broken_group_is_used_up_before_a_whole_one() -> None:
    site = Site([node("n1", 8, gres=pool_of(groups("0246", "1357")))])
    assert given_devices(site, gpus=1) == [0]
    assert given_devices(site, gpus=1) == [2]
    assert given_devices(site, gpus=4) == [1, 3, 5, 7]


def test_cpus_come_from_the_socket_of_the_linked_gpus() -> None:
    cores = ["0-3", "4-7", "0-3", "4-7"]
    site = Site([node("n1", 8, sockets=2, gres=pool_of(groups("02", "13"), cores))])
    first = site.submit(spec(1, gpus=2, cpus_per_task=2))
    second = site.submit(spec(1, gpus=2, cpus_per_task=2))
    started = site.cycle()
    assert (devices(started[first])["n1"], cpu_ids(started[first])) == ([0, 2], [0, 1])
    assert (devices(started[second])["n1"], cpu_ids(started[second])) == ([1, 3], [4, 5])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_no_other_set_is_linked_better(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 7))
    rows = [data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)) for _ in range(count)]
    pool = GresPool("gpu", pool_of(rows), NodeCapacity())
    free = data.draw(st.integers(1, (1 << count) - 1))
    wanted = data.draw(st.integers(1, free.bit_count()))
    found = linked.linked_devices(pool, free, wanted, 0)
    assert found & ~free == 0
    assert found.bit_count() == wanted

    def strength(some: tuple[int, ...]) -> int:
        return sum(pool.link(one, other) for one, other in combinations(some, 2))

    every = combinations(mask_ids(free), wanted)
    assert strength(tuple(mask_ids(found))) == max(map(strength, every))


def test_many_devices_are_not_all_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked, "SETS_MAX", 0)
    pool = GresPool("gpu", pool_of(groups("0246", "1357")), NodeCapacity())
    assert linked.linked_devices(pool, 0b11111011, 4, 0) == 0b10101010
