"""What is said of jobs that reservations keep back, and of those that wait for one of their own."""

from __future__ import annotations

from spritz.model.job.record import Sharing
from spritz.scheduling.explain.alternatives import try_others
from tests.unit.scheduling.site import spec
from tests.unit.scheduling.test_explain import counts, others, texts, told
from tests.unit.scheduling.test_reservations import ALICE, reserve, site_of


def test_a_job_that_would_cross_maintenance_is_told_which_and_what_time_limit_would_do() -> None:
    site = site_of()
    reserve(site, 600, name="window", nodes=("n1", "n2"), flags=("MAINT",))
    long = site.submit(spec(1, time_limit_minutes=60))
    one = told(site, long)
    assert texts(one) == ["2 reserved: window (maintenance): n[1-2]"]
    assert one.reason == "ReqNodeNotAvail"
    assert one.summary == "Maintenance window begins on n[1-2] before the job would be over."
    (limit,) = one.limits
    assert (limit.holds, limit.subject, limit.at) == (True, "window", site.now + 600 + 3600)
    assert one.blockers == ()
    assert ("a time limit of 00:10:00 (--time=00:10:00)", site.now) in others(site, long)


def test_nodes_outside_a_jobs_reservation_are_told_apart_from_those_that_lack_features() -> None:
    site = site_of(3)
    reserve(site, nodes=("n1",))
    site.submit(spec(8, reservation="r", **ALICE))
    site.cycle()
    one = told(site, site.submit(spec(8, reservation="r", **ALICE)))
    assert counts(one) == {"reservation": 2, "busy": 1}
    assert texts(one)[0] == "2 not in reservation r: n[2-3]"
    assert one.partitions[0].reservation == "r"
    (limit,) = [item for item in one.limits if item.kind == "Reservation"]
    assert (limit.holds, limit.at) == (False, site.now + 3600)
    assert [item.job for item in one.blockers] == ["1"]


def test_a_reservation_that_has_not_begun_holds_its_job() -> None:
    site = site_of()
    reserve(site, 600)
    waiting = site.submit(spec(1, reservation="r", **ALICE))
    one = told(site, waiting)
    (limit,) = [item for item in one.limits if item.holds]
    assert (limit.kind, limit.at) == ("Reservation", site.now + 600)
    assert one.reason == "Reservation"
    assert one.summary == "Reservation r: it has not begun."
    assert one.expected is not None
    assert one.expected.text == "not before its reservation begins; from then on it is in the queue"
    found, _tried = try_others(site.projection, site.jobs[waiting], one, site.now, lambda request: True)
    assert all(item.start_at >= site.now for item in found)


def test_a_reservation_of_busy_nodes_is_told_and_no_node_is_called_down() -> None:
    site = site_of()
    site.submit(spec(nodes=2, sharing=Sharing.EXCLUSIVE, time_limit_minutes=5))
    site.cycle()
    reserve(site, 600, nodes=("n1",))
    named = site.submit(spec(1, time_limit_minutes=60, node_list=("n1",)))
    one = told(site, named)
    assert (one.reason, counts(one)) == ("ReqNodeNotAvail", {"not_named": 1, "busy": 1})
    assert one.summary == "Reservation r begins on n1 before the job would be over."


def test_reservations_of_other_nodes_block_no_job() -> None:
    site = site_of(3)
    reserve(site, name="far", nodes=("n3",))
    reserve(site, 600, name="near", nodes=("n1",))
    one = told(site, site.submit(spec(1, nodes=1, time_limit_minutes=60, node_list=("n1",))))
    assert [limit.subject for limit in one.limits] == ["near"]
