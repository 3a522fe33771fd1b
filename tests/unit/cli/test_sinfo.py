"""sinfo: grouping of nodes, states with their suffixes, forms and bad input."""

from __future__ import annotations

import pytest

from spritz.cli.sinfo import main
from spritz.model.commands.cluster import CreatePartition, UpdateNode
from spritz.model.commands.reservation import CreateReservation, ReservationRequest
from spritz.model.node.partition import Partition
from spritz.model.node_daemon.reports import NodeSilent
from spritz.notation.hostlist import expand
from spritz_testing.builders import World, capacity
from tests.unit.cli.site import Site

HEADER = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST"


def add_long(site: Site, **fields: object) -> None:
    fields.setdefault("nodes", ("n3", "n4"))
    site.world.ok(CreatePartition(partition=Partition(name="long", max_time_minutes=7 * 1440, **fields)))  # type: ignore[arg-type]


def test_alike_nodes_of_a_partition_are_one_line(site: Site) -> None:
    add_long(site)
    assert site.run(main).lines == [
        HEADER,
        "debug*       up   infinite      4   idle n[1-4]",
        "long         up 7-00:00:00      2   idle n[3-4]",
    ]


def test_nodes_in_use_part_from_the_others_the_busiest_first(site: Site) -> None:
    site.world.start(site.submit(), "n1", cpus=8)
    site.world.start(site.submit(), "n2", cpus=1)
    assert site.run(main, "-h").lines == [
        "debug*       up   infinite      1    mix n2",
        "debug*       up   infinite      1  alloc n1",
        "debug*       up   infinite      2   idle n[3-4]",
    ]
    assert site.run(main, "-h", "-o", "%C %A %F").lines == ["9/23/0/32 2/2 2/2/0/4"]


def test_without_a_partition_column_a_node_counts_once(site: Site) -> None:
    add_long(site)
    assert site.run(main, "-h", "-o", "%D %C").lines == ["4 0/32/0/32"]
    assert site.run(main, "-h", "-o", "%R %D").lines == ["debug 4", "long 2"]


def test_node_format_lists_each_node_in_each_partition(site: Site) -> None:
    add_long(site)
    assert site.run(main, "-N").lines == [
        "NODELIST   NODES PARTITION STATE ",
        "n1             1    debug* idle  ",
        "n2             1    debug* idle  ",
        "n3             1    debug* idle  ",
        "n3             1      long idle  ",
        "n4             1    debug* idle  ",
        "n4             1      long idle  ",
    ]


def test_nodes_of_different_hosts_are_apart_where_the_host_is_shown(site: Site) -> None:
    lines = site.run(main, "-h", "-o", "%n %t").lines
    hosts = [line.split()[0] for line in lines]
    assert len(hosts) == len(set(hosts)) == len({view.hostname for view in site.world.state.nodes.values()})


def test_many_nodes_are_listed_in_natural_order(site: Site) -> None:
    site.world = World(nodes=11)
    assert site.run(main, "-N", "-h", "-o", "%N").lines == [f"n{number}" for number in range(1, 12)]
    assert site.run(main, "-N", "-h", "-o", "%N", "-S", "-N").lines[0] == "n11"


@pytest.mark.parametrize(
    ("state", "compact", "long"), [("DRAIN", "drain", "drained"), ("DOWN", "down", "down"), ("FAIL", "fail", "fail")]
)
def test_nodes_out_of_use_say_so(site: Site, state: str, compact: str, long: str) -> None:
    site.world.ok(UpdateNode(names=("n4",), state=state, reason="needs repair"))
    assert site.run(main, "-h", "-n", "n4", "-o", "%t %T %E %A %C").lines == [
        f"{compact} {long} needs repair 0/0 0/0/8/8"
    ]
    assert site.run(main, "-R").lines[0] == "REASON               USER      TIMESTAMP           NODELIST"
    assert site.run(main, "-h", "-R").lines[0].startswith("needs repair         root      ")


def test_a_busy_node_that_is_drained_is_draining(site: Site) -> None:
    site.running("n4")
    site.world.ok(UpdateNode(names=("n4",), state="DRAIN", reason="soon"))
    assert site.run(main, "-h", "-n", "n4", "-o", "%t %T").lines == ["drng draining"]
    assert site.run(main, "-h", "-t", "draining", "-o", "%N").lines == ["n4"]
    assert site.run(main, "-h", "-t", "drained", "-o", "%N").lines == []


def test_silent_nodes_have_a_star(site: Site) -> None:
    site.world.ok(NodeSilent(names=("n2",)))
    assert site.run(main, "-h", "-o", "%t %N", "-S", "N").lines == ["idle n[1,3-4]", "idle* n2"]
    assert site.run(main, "-h", "-d", "-o", "%N").lines == ["n2"]
    assert site.run(main, "-h", "-r", "-o", "%N").lines == ["n[1,3-4]"]


@pytest.mark.parametrize(
    ("states", "nodes"),
    [
        ("drain&no_respond", "n2"),
        ("drain+no_respond", "n2"),
        ("drain,no_respond", "n[1-3]"),
        ("drain&~no_respond", "n1"),
        ("!drain", "n[3-4]"),
        ("~DRAIN,no_respond", "n[2-4]"),
        ("~drain+~no_respond", "n4"),
        # a drained or silent node is idle too; one that runs something is allocated, whatever its name in listings
        ("idle", "n[1-3]"),
        ("alloc", "n4"),
        ("allocated&mix", "n4"),
        ("~reserved", "n[1-4]"),
        # one + or & joins all, as in Slurm
        ("alloc,drain&no_respond", ""),
        ("all", "n[1-4]"),
        ("ALL", "n[1-4]"),
        # the beginning of a word is enough
        ("i", "n[1-3]"),
        ("dr", "n[1-2]"),
        ("no", "n[2-3]"),
        ("npc", ""),
        ("perfctrs", ""),
        ("dynamic_norm", ""),
        ("external", ""),
        ("idle,", "n[1-3]"),
        ("&idle", "n[1-3]"),
        ("", ""),
        (",", ""),
    ],
)
def test_states_are_joined_and_inverted(site: Site, states: str, nodes: str) -> None:
    """Seen of Slurm 22.05; `~`, `!` and `+` by the source of 26.05."""
    site.running("n4")
    site.world.ok(UpdateNode(names=("n1", "n2"), state="DRAIN", reason="x"))
    site.world.ok(NodeSilent(names=("n2", "n3")))
    assert site.run(main, "-h", "-N", "-t", states, "-o", "%N").lines == expanded(nodes)


def expanded(nodes: str) -> list[str]:
    return list(expand(nodes)) if nodes else []


@pytest.mark.parametrize(("states", "named"), [("~bogus", "bogus"), ("idle&~~down", "~down"), ("idle*", "idle*")])
def test_an_unknown_state_is_named_without_its_sign(site: Site, states: str, named: str) -> None:
    assert site.run(main, "-t", states).err.startswith(f'sinfo: error: Bad state string: "{named}"\n')


def test_partitions_without_a_match_are_shown_with_no_nodes(site: Site) -> None:
    assert site.run(main, "-t", "alloc").lines == [HEADER, "debug*       up   infinite      0    n/a "]
    assert site.run(main, "-n", "nosuch").lines == [HEADER, "debug*       up   infinite      0    n/a "]
    assert site.run(main, "-p", "nosuch").lines == [HEADER]
    assert site.run(main, "-N", "-h", "-t", "alloc").lines == []


def test_different_sizes_share_a_line_unless_exact(site: Site) -> None:
    small = World(nodes=2, hardware=capacity(4, 4000))
    from msgspec.structs import replace

    from spritz.model.commands.cluster import Configure

    nodes = (small.nodes[0], replace(small.nodes[1], capacity=capacity(8, 8000)))
    small.ok(Configure(settings=small.settings, nodes=nodes, partitions=small.partitions))
    site.world = small
    assert site.run(main, "-h", "-o", "%P %c %m %D").lines == ["debug* 4+ 4000+ 2"]
    assert site.run(main, "-h", "-e", "-o", "%P %c %m %D", "-S", "c").lines == ["debug* 4 4000 1", "debug* 8 8000 1"]


def test_hidden_partitions_show_with_all(site: Site) -> None:
    add_long(site, hidden=True)
    assert site.run(main, "-h", "-o", "%R").lines == ["debug"]
    assert site.run(main, "-h", "-a", "-o", "%R").lines == ["debug", "long"]
    assert site.run(main, "-h", "-o", "%R", SINFO_ALL="1").lines == ["debug", "long"]


def test_summaries_and_long_forms(site: Site) -> None:
    assert site.run(main, "-s").lines == [
        "PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST",
        "debug*       up   infinite          0/4/0/4 n[1-4]",
    ]
    assert site.run(main, "-l").lines[1:] == [
        "PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE NODELIST",
        "debug*       up   infinite 1-infinite   no       NO        all      4        idle n[1-4]",
    ]


def test_nodes_tell_their_reservation_and_when_they_resume(site: Site) -> None:
    reserved = ReservationRequest(
        name="maintenance", start_at=site.world.now, duration_seconds=600, nodes=("n1", "n2"), users=("root",)
    )
    site.world.ok(CreateReservation(request=reserved))
    assert site.run(main, "-h", "-O", "reservation:12,nodelist:8").lines == ["maintenance n[1-2]  ", f"{'':12}n[3-4]  "]
    site.world.ok(UpdateNode(names=("n3",), state="down", reason="x", resume_after_seconds=60))
    lines = site.run(main, "-h", "-O", "resumeafter:20,nodelist:8").lines
    assert [line.split()[1] for line in lines if line.startswith("None ")] == ["n[1-2,4]"]
    assert [line[4:5] for line in lines if line.endswith("n3      ")] == ["-"]  # a date


def test_every_letter_and_name_shows_something(site: Site) -> None:
    from spritz.presentation.node.node_fields import LETTERS, NAMES

    add_long(site, nodes=())
    for letter, field in LETTERS.items():
        ran = site.run(main, "-o", f"%{letter}|")
        assert (ran.status, ran.err, ran.lines[0]) == (0, "", f"{field.header}|"), letter
    for name, field in NAMES.items():
        ran = site.run(main, "-O", f"{name}:40|")
        assert (ran.err == "") is (not field.refused), name


def test_the_environments_format_is_used_unless_one_is_given(site: Site) -> None:
    assert site.run(main, "-h", SINFO_FORMAT="%D").lines == ["4"]
    assert site.run(main, "-h", "-o", "%R", SINFO_FORMAT="%D").lines == ["debug"]


def test_bad_input_is_told_in_slurms_words(site: Site) -> None:
    assert site.run(main, "-t", "nosuch").err.startswith('sinfo: error: Bad state string: "nosuch"\n')
    assert site.run(main, "-t", "nosuch", "-t", "idle").err == site.run(main, "-t", "nosuch").err
    assert site.run(main, "-i", "x").err == "sinfo: error: Error: invalid entry for --iterate=x\n"
    assert site.run(main, "-o", "%i").err == "Invalid node format specification: i\n"
    assert site.run(main, "-O", "nosuch").err == "sinfo: error: Invalid job format specification: nosuch\n"
    assert site.run(main, "-n", "n[1-").status == 1
    assert site.run(main, "-T").out == "No reservations in the system\n"
