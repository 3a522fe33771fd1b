"""Many random requests against the slow judge of placement (`tests.property.placement_oracle`).

Seeded: the same requests each time, unless SPRITZ_FUZZ_SEED says otherwise (`make fuzz` draws one); SPRITZ_FUZZ_ROUNDS
says how many.
"""

from __future__ import annotations

import os
from random import Random

from tests.property.placement_cases import JUDGED, cluster, described, job, judge

SEED = int(os.environ.get("SPRITZ_FUZZ_SEED", "1"))
#: examples: some thousand in `make fuzz`
EXAMPLES = 30 * int(os.environ.get("SPRITZ_FUZZ_ROUNDS", "8"))


def test_a_job_starts_if_and_only_if_there_is_a_place_for_it() -> None:
    placed = JUDGED["placed"]
    for seed in range(SEED, SEED + EXAMPLES):
        random = Random(seed)
        asked = cluster(random)
        wanted = job(random, asked)
        busy = Random(seed) if random.random() < 0.6 else None
        tight = Random(seed) if random.random() < 0.5 else None
        fault = judge(asked, wanted, busy, tight)
        assert not fault, f"seed {seed}: {fault}\n{described(asked, wanted)}"
    # Examples that fit nowhere, or everywhere, would find nothing.
    assert EXAMPLES / 5 < JUDGED["placed"] - placed < EXAMPLES * 4 / 5
