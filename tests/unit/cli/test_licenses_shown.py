"""Licenses as commands show them are those that the core gave out: of `a|b` a job holds one."""

from __future__ import annotations

from msgspec import json

from spritz.cli.scontrol import main as scontrol
from spritz.cli.squeue import main as squeue
from spritz.model.cluster.settings import ClusterSettings
from spritz_testing.builders import World
from tests.unit.cli.site import Site


def test_of_alternatives_the_one_that_was_taken_is_shown(site: Site) -> None:
    site.world = world = World(settings=ClusterSettings(licenses=(("idl", 2), ("matlab", 1))))
    first, second = world.submit(licenses="matlab"), world.submit(licenses="matlab|idl:2")
    world.start(first, "n1")
    world.start(second, "n2")
    assert world.state.licenses_taken == {"matlab": 1, "idl": 2}
    lines = site.run(scontrol, "-o", "show", "licenses").lines
    assert [line.split()[:4] for line in lines] == [
        ["LicenseName=idl", "Total=2", "Used=2", "Free=0"],
        ["LicenseName=matlab", "Total=1", "Used=1", "Free=0"],
    ]
    (only,) = json.decode(site.run(scontrol, "--json", "show", "licenses", "idl").out)["licenses"]
    assert [only[key] for key in ("LicenseName", "Total", "Used", "Free", "Remote", "Reserved")] == [
        *("idl", 2, 2, 0, False, 0)
    ]
    held = ["matlab", "idl:2"]
    assert site.run(squeue, "-h", "-O", "licensesalloc", "-S", "i").out.split() == held
    text = site.run(scontrol, "-o", "show", "job").out
    assert [word.partition("=")[2] for word in text.split() if word.startswith("LicensesAlloc=")] == held
    records = json.decode(site.run(scontrol, "--json", "show", "job").out)["jobs"]
    assert [record["licenses_allocated"] for record in records] == held
