"""A GPU vanishes.

Its node's slurmd finds one less when it starts (AutoDetect=nvml). The node is drained with Slurm's words, its jobs go
on, nothing is started on the missing GPU even if an administrator resumes the node, and it is in service again when the
GPU is back.
"""

from __future__ import annotations

import pytest

from spritz_testing.daemons.history import Operation, Outcome
from spritz_testing.daemons.plan import Action, Scale
from spritz_testing.daemons.runs.run import Result
from spritz_testing.daemons.system.world import EPOCH
from tests.simulation.daemons.scenarios.play import ask, began, ended, entries, fault, play, readings, submission

_SCALE = Scale(nodes=2, busy_seconds=1200.0, quiet_seconds=3600.0, faults=6, gres="AutoDetect=nvml\n")

#: Of four GPUs the driver finds three.
_THREE = int(0.76 * (1 << 30))

_LOST_AT, _BACK_AT = 30.0, 630.0


def _plan() -> list[Action]:
    """Jobs on every GPU of n1 when one is lost, and more than the other node can run at once."""
    first = [submission(5 + number, f"g{number}", gpus_per_node=1, seconds=100.0) for number in range(4)]
    more = [submission(40 + number / 10, f"p{number}", gpus_per_node=1, seconds=60.0) for number in range(12)]
    lost = fault(_LOST_AT, "gpu lost", "host of slurmd:1", _BACK_AT - _LOST_AT, _THREE)
    return [*first, lost, fault(_LOST_AT + 1, "kill", "slurmd:1"), *more]


def _states(result: Result) -> list[tuple[str, ...]]:
    """Of n1 at each look."""
    return [row[1] for shown in readings(result, "sinfo") for row in shown.rows if row[0] == "n1"]


@pytest.mark.parametrize("back", ["kill", "reconfigure"])
def test_nothing_is_started_on_a_gpu_that_is_not_there(back: str) -> None:
    """`back`: what lets slurmd look for its GPUs again."""
    again = fault(_BACK_AT + 10, "kill", "slurmd:1") if back == "kill" else ask(_BACK_AT + 10, "reread")
    later = [submission(700 + number / 10, f"l{number}", gpus_per_node=1, seconds=30.0) for number in range(8)]
    looks = [ask(60, "sinfo"), ask(90, "sinfo"), ask(680, "sinfo")]
    resumed = ask(80, "set_node", nodes=["n1"], state="RESUME")
    result = play(_SCALE, *_plan(), *looks, resumed, again, *later)
    drained = ("MIXED", "DRAIN", "INVALID_REG")
    assert _states(result) == [drained, drained, ("IDLE",)]
    operation = entries(result, Operation, kind="undrain")[0]  # administrators resume all nodes again in the end
    assert (operation.outcome, operation.answer) == (Outcome.REFUSED, "ESLURM_INVALID_NODE_STATE")
    assert not [one for one in began(result, node="n1") if _LOST_AT < one.at - EPOCH < _BACK_AT]
    assert {gpu for one in began(result, node="n1") if one.at - EPOCH > _BACK_AT for gpu in one.gres} == {
        ("gpu", number) for number in range(4)
    }
    assert len(ended(result, exit_code=0, signal=0)) == 24, "every job ended well, those that ran there, too"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_under_other_faults_no_rule_is_violated(seed: int) -> None:
    play(_SCALE, *_plan(), fault(_BACK_AT + 10, "kill", "slurmd:1"), seed=seed, faulty=True)
