"""What nodes will have free: holds need a number of CPUs and devices; values are computed only when asked for."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spritz.model.resources import GresAllocation, lowest_bits
from spritz.scheduling import kernels
from spritz.scheduling.view import profile as profile_module
from spritz.scheduling.view.events.running_jobs import set_end
from spritz.scheduling.view.node_timeline import FutureHold, Timeline, counts_ahead
from spritz.scheduling.view.nodes import Holder
from spritz.scheduling.view.profile import NEVER, Profile
from tests.unit.scheduling.site import Site, gpus, node, spec

CPUS = 6


def profile_of(threads: int = 1) -> Profile:
    return Profile(Site([node("n1", CPUS * threads, threads=threads)]).projection.table)


def hold(
    profile: Profile, number: int, cpus: int, start_at: float, end_at: float, *, flexible: bool = True
) -> FutureHold:
    holder = Holder(-(1 << 51) - number, uid=0, partition="p", cpus=cpus, memory_mib=0, ends_at=end_at)
    made = FutureHold(start_at, end_at, [(0, holder)])
    made.flexible = flexible
    profile.hold(made)
    return made


def test_holds_on_different_cpus_at_different_times_leave_as_many_to_a_long_job() -> None:
    profile = profile_of()
    hold(profile, 1, 0b000111, 100.0, 200.0)
    hold(profile, 2, 0b111000, 300.0, 400.0)
    assert profile.row_at(0, None, 1000.0).free_cpus.bit_count() == 3


def test_holds_on_specific_cpus_leave_only_the_other_cpus() -> None:
    profile = profile_of()
    hold(profile, 1, 0b000111, 100.0, 200.0, flexible=False)
    hold(profile, 2, 0b111000, 300.0, 400.0, flexible=False)
    assert profile.row_at(0, None, 1000.0).free_cpus == 0


def test_a_hold_moves_to_other_cpus_if_a_job_has_its_own() -> None:
    profile = profile_of()
    hold(profile, 1, 0b000111, 100.0, 200.0)
    profile.table.charge(0, Holder(7, uid=0, partition="p", cpus=0b000111, memory_mib=0, ends_at=500.0))
    assert profile.row_at(0, 100.0, 200.0).free_cpus == 0
    assert profile.row_at(0, 200.0, 300.0).free_cpus == 0b111000


def test_values_are_computed_only_when_asked_for() -> None:
    site = Site([node(f"n{number}", 4) for number in range(4)])
    profile = site.projection.profile
    site.submit(spec(16))
    site.cycle()
    fork = profile.fork(site.projection.table.fork())
    fork.settle([2])
    assert (profile.worked_out, fork.worked_out) == (2, 0)
    assert 2 not in profile.stale


asks = st.tuples(st.integers(1, CPUS), st.integers(0, 12), st.integers(1, 8))


@given(st.lists(asks, max_size=14), st.sampled_from([1, 2]), st.integers(0, CPUS))
@settings(max_examples=120, deadline=None)
def test_there_is_room_exactly_if_at_no_moment_more_is_asked_for_than_there_is(
    wanted: list[tuple[int, int, int]], threads: int, busy: int
) -> None:
    """Holds come in any order and take the lowest free cores they see; the oracle only counts."""
    profile = profile_of(threads)
    used = [0] * 32
    if busy:
        cpus = (1 << busy * threads) - 1
        profile.table.charge(0, Holder(7, uid=0, partition="p", cpus=cpus, memory_mib=0, ends_at=4.0))
        used[:4] = [busy] * 4
    for number, (cores, start, length) in enumerate(wanted):
        end = start + length
        row = profile.row_at(0, float(start), float(end))
        room = max(used[start:end]) + cores <= CPUS
        assert (row.hardware.whole_cores(row.free_cpus).bit_count() >= cores) == room
        if room:
            mask = row.hardware.core_cpus(lowest_bits(row.hardware.whole_cores(row.free_cpus), cores))
            hold(profile, number, mask, float(start), float(end))
            used[start:end] = [count + cores for count in used[start:end]]
    cells = profile.cells()
    for begins, ends, place in zip(cells.begins, cells.ends, cells.place, strict=True):
        if begins >= 0.0 and ends != NEVER:
            assert profile.counts[0].reshape(-1)[place] == (CPUS - used[int(begins)]) * threads


def test_counts_ahead_by_addition_are_those_of_rows_on_which_every_change_is_made() -> None:
    rng = random.Random(7)
    certain = 0
    for _ in range(60):
        site = Site([node(f"n{number}", 8, gres=[gpus(2, "a"), gpus(2, "b", first=2)]) for number in range(2)])
        for _ in range(12):
            site.submit(
                spec(rng.randint(1, 8), gpus_per_node=rng.choice([(), 1, "a:1"]), time_limit_minutes=rng.randint(1, 9))
            )
        site.cycle()
        site.cycle()
        profile, kinds = site.projection.profile, tuple(site.projection.table.gres)
        for index, row in enumerate(site.projection.table.rows):
            holds = profile.holds.get(index, ())
            found = counts_ahead(row, holds, kinds)
            if found is not None:
                certain += bool(holds)
                changes, copied = Timeline(row, holds), row.copy()
                counts = [tuple(row.counts(kinds))]
                for at in changes.breakpoints:
                    changes.make(copied, at)
                    counts.append(tuple(copied.counts(kinds)))
                assert found == (changes.breakpoints, counts)
    assert certain > 60


@pytest.mark.skipif(not kernels.compiled, reason="installed without a C compiler")
def test_a_node_is_worked_out_alike_with_and_without_the_compiled_part() -> None:
    """Nodes of one thread a core and of two, with more breakpoints than there was room for, and promises that have
    become too many.
    """
    rng = random.Random(5)
    seen = 0
    for turn in range(40):
        threads = 1 + turn % 4 // 3
        site = Site([node(f"n{i}", 8, threads=threads, gres=[gpus(4)] if i else []) for i in range(2)])
        for _ in range(14):
            site.submit(
                spec(rng.randint(1, 5), gpus_per_node=rng.choice([(), 1]), time_limit_minutes=rng.randint(1, 9))
            )
        site.cycle()
        site.cycle()
        if turn % 2 and (running := [job.id for job in site.jobs.values() if job.allocation is not None]):
            site.projection.snapshot(site.now)
            set_end(site.projection, site.projection.records[running[0]], site.now + 900.0, site.now)
        profile = site.projection.profile
        found = []
        for compiled in (True, False):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(kernels, "compiled", compiled)
                profile.stale.update(range(2))
                profile.settle()
            there = profile.times < NEVER
            found.append(
                (
                    profile.times[there].tolist(),
                    [column[there].tolist() for column in profile.counts],
                    set(profile._simulated),
                )
            )
            seen += int(there.sum())
        assert found[0] == found[1]
    assert seen > 400


@pytest.mark.skipif(not kernels.compiled, reason="installed without a C compiler")
def test_holds_put_into_the_arrays_leave_what_working_it_out_would_find() -> None:
    """On nodes with and without jobs, of one thread or two a core; more is asked for than there is, too."""
    rng = random.Random(3)
    put = 0
    for turn in range(40):
        nodes = [node(f"n{number}", 8, gres=[gpus(3)], threads=1 + (number == 2)) for number in range(3)]
        site = Site(nodes)
        for _ in range(4):
            site.submit(spec(rng.randint(1, 3), gpus=rng.randint(0, 1), time_limit_minutes=rng.randint(1, 9)))
        site.cycle()
        profile = site.projection.profile
        profile.settle()
        for number in range(6):
            start_at = site.now + rng.choice([0, 60, 120, 180])
            count = rng.randint(1, 4)
            gres = (GresAllocation(name="gpu", type="", count=1, indexes="1"),) if rng.random() < 0.4 else ()
            end_at = start_at + 60 * rng.randint(1, 4)
            holder = Holder(
                -(1 << 51) - number,
                uid=0,
                partition="p",
                cpus=(1 << count) - 1,
                memory_mib=count,
                gres=gres,
                ends_at=end_at,
            )
            made = FutureHold(start_at, end_at, [(rng.randrange(3), holder)])
            made.flexible = rng.random() < 0.9
            profile.hold(made)
            put += not profile.stale
            if turn % 2:
                profile.settle()
        found = _portrait(profile)
        profile.stale.update(range(3))
        assert found == _portrait(profile)
    assert put > 30


def _portrait(profile: Profile) -> list[object]:
    """Moments and counts of every node, and from when on something is held there."""
    profile.settle()
    found: list[object] = [profile.held_from.tolist()]
    for index, times in enumerate(profile.times):
        breakpoints = int((times < NEVER).sum())
        found.append(
            (times[:breakpoints].tolist(), [column[index, :breakpoints].tolist() for column in profile.counts])
        )
    return found


@pytest.mark.skipif(not kernels.compiled, reason="installed without a C compiler")
def test_the_least_of_some_time_is_the_same_by_whatever_way_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled, by arrays, and aside from the arrays for nodes that have just changed."""
    rng = random.Random(11)
    held = 0
    for _ in range(20):
        site = Site([node(f"n{i}", 8, gres=[gpus(4)] if i % 2 else []) for i in range(4)])
        for _ in range(16):
            site.submit(
                spec(rng.randint(1, 5), gpus_per_node=rng.choice([(), 1]), time_limit_minutes=rng.randint(1, 9))
            )
        site.cycle()
        site.cycle()
        profile, starts = site.projection.profile, site.now + 30.0 * rng.randint(0, 20)
        until = starts + 60.0 * rng.randint(1, 9)
        for start_at in (None, starts):
            found = []
            for compiled, share in ((True, 0), (False, 99), (True, 99)):
                monkeypatch.setattr(kernels, "compiled", compiled)
                monkeypatch.setattr(profile_module, "ASIDE_SHARE", share)
                table = site.projection.table.fork()
                for index in range(2):
                    taken = Holder(
                        9999, uid=0, partition="p", cpus=table.rows[index].free_cpus, memory_mib=1, ends_at=until
                    )
                    table.charge(index, taken)
                seen = profile.fork(table).at(start_at, until)
                columns = (seen.cpus, seen.core_cpus, seen.memory, seen.idle, *seen.gres.values())
                found.append([column.tolist() for column in columns])
            assert found[0] == found[1] == found[2]
            held += int((profile.held_from < until).sum())
    assert held > 40


def test_a_hold_that_begins_before_a_job_has_left_has_the_cpus_and_devices_of_this_job() -> None:
    """Not those of another, which stays: they would count twice, and as many others would seem to be free."""
    site = Site([node("n1", 8, gres=[gpus(4)])])
    profile = Profile(site.projection.table)
    for number, (cpus, devices, ends_at) in enumerate(((0b1111, "3", 900.0), (0b11110000, "c", 210.0)), 7):
        gres = (GresAllocation(name="gpu", type="", count=2, indexes=devices),)
        held = Holder(number, uid=0, partition="p", cpus=cpus, memory_mib=0, gres=gres, ends_at=ends_at)
        profile.table.charge(0, held)
    gres = (GresAllocation(name="gpu", type="", count=1, indexes="1"),)
    for number in range(2):
        holder = Holder(
            -(1 << 51) - number, uid=0, partition="p", cpus=0b11, memory_mib=0, gres=gres, ends_at=800.0 + number
        )
        made = FutureHold(200.0, 800.0, [(0, holder)])
        made.flexible = True
        profile.hold(made)
    row = profile.row_at(0, 300.0, 800.0)
    assert (row.free_cpus.bit_count(), row.gres_free["gpu"].bit_count()) == (0, 0)
    profile.settle()
    cell = profile.times[0].tolist().index(210.0)
    assert [int(column[0, cell]) for column in (profile.counts[0], profile.counts[4])] == [0, 0]
