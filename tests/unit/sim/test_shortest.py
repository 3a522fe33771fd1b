"""The queue in blocks says what a look at every job would."""

from __future__ import annotations

import random

import pytest

from spritz.model.rules.predict import expected_slowdown
from spritz_testing.studies.processors.shortest import BLOCK_MAX, Room, Shortest


@pytest.mark.parametrize("seed", range(5))
def test_blocks_are_as_good_as_looking_at_every_job(seed: int) -> None:
    rng = random.Random(seed)
    count = 6 * BLOCK_MAX
    size = [float(rng.randint(1, 16)) for _ in range(count)]
    predicted = [float(rng.choice((1, 5, 9, 10, 11, rng.randint(12, 5000)))) for _ in range(count)]
    length = [seconds * rng.choice((1, 3)) for seconds in predicted]
    submit = [float(rng.randint(0, 2000)) for _ in range(count)]
    queue, waiting = Shortest(size, length, submit), set[int]()
    for job in range(count):
        queue.add(predicted[job], job)
        waiting.add(job)
        if rng.random() < 0.3:
            gone = rng.choice(sorted(waiting))
            waiting.discard(gone)
            queue.remove(predicted[gone], gone)
        if job % 20 or not waiting:
            continue
        now = 2000.0 + job
        assert queue.neediest(now) == max(
            waiting, key=lambda one: (expected_slowdown(now - submit[one], predicted[one]), -submit[one], -one)
        )
        room, plain, found, expected = Room(20, 5, 900), Room(20, 5, 900), [], []
        for one in queue.fitting(room):
            room.take(size[one], length[one])
            found.append(one)
        for _, one in sorted((predicted[one], one) for one in waiting):
            if plain.admits(size[one], length[one]):
                plain.take(size[one], length[one])
                expected.append(one)
        assert found == expected
