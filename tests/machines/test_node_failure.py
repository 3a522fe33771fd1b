"""A node's cable is cut while a step runs: its client is told when the controller gives the node up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.machines.classic import Classic
from tests.machines.lan import Lan, eventually

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.xdist_group("machines")]


@pytest.fixture(scope="module")
def site() -> Iterator[Classic]:
    """alpha has the controller and the clients, the others are nodes."""
    with Lan() as lan:
        made = Classic(lan, "SlurmdTimeout=3", "NodeName=n1,n2,n3 CPUs=1 RealMemory=500")
        for name in ("n1", "n2", "n3"):
            made.start(name, "slurmd")
        yield made


@pytest.mark.parametrize(("lost", "width"), [("n2", 3), ("n2", 1), ("n1", 1)], ids=["star", "middle", "head"])
def test_a_step_goes_on_without_a_lost_node_and_its_client_is_told(site: Classic, lost: str, width: int) -> None:
    """With `width` 1 the nodes are a chain. Those behind a lost head first have to find another way to srun."""
    eventually(site.is_idle, "all are idle")
    script = "echo up $SLURM_PROCID; read word; echo $word $SLURM_PROCID"
    talk = site.talk("alpha", "srun", "-N3", "--no-kill", f"--treewidth={width}", "sh", "-c", script)
    try:
        eventually(lambda: talk.said().count("up ") == 3, "all tasks are up")
        site.lan.cut(site[lost])
        eventually(lambda: f"{lost} down" in site.run("sinfo", "-h", "-N", "-o", "%N %t"), "the controller gives it up")
        # Without that word srun would see only its connection break, 20 s later and more. Nodes behind a lost head must
        # first notice that their own connection broke.
        patience = 30 if lost == "n1" else 10
        eventually(lambda: f"srun: error: Node failure on {lost}\n" in talk.said(), "srun is told", patience)
        talk.write("on\n")
        assert talk.status(20) == 0
        assert {f"on {rank}" for rank, name in enumerate(("n1", "n2", "n3")) if name != lost} <= set(
            talk.said().splitlines()
        )
        assert talk.said().count("Node failure") == 1
        assert "io error" not in talk.said()
        assert "Terminated" not in talk.said()
    finally:
        talk.close()
        site.lan.mend(site[lost])
