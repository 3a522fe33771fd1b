"""The sequence of pods: a shuffled list, then pods drawn from it again until the demand is reached.

Source: the FGD study's simulator. Pods are shuffled, then copies are drawn with replacement while the requested GPU
capacity stays within `demand` times the cluster's. If `demand` is below the list's own, random pods are removed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from spritz.scheduling.view.sharing.fragmentation import TypicalTasks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from spritz_testing.studies.pods.trace import Pod

#: Fraction of all pods that the typical requests cover.
POPULAR = 0.95


def sequence(pods: Sequence[Pod], capacity: int, demand: float, random: Random) -> list[Pod]:
    """Pods in order of arrival. `capacity`: the cluster's GPUs in thousandths; `demand`: a multiple of it."""
    coming = sorted(pods, key=lambda pod: pod.name)
    source = tuple(coming)
    random.shuffle(coming)
    asked = sum(pod.gpus * pod.milli for pod in coming)
    target = demand * capacity
    while asked > target:
        pod = coming.pop(random.randrange(len(coming)))
        asked -= pod.gpus * pod.milli
    while True:
        pod = source[random.randrange(len(source))]
        if asked + pod.gpus * pod.milli > target:
            return coming
        asked += pod.gpus * pod.milli
        coming.append(pod)


def typical_tasks(pods: Sequence[Pod], models: Sequence[str]) -> TypicalTasks:
    """The most frequent requests, as many as cover 95 % of all pods; pods without GPUs count too."""
    counts = Counter((pod.cpu, pod.gpus, pod.milli, pod.models) for pod in pods)
    chosen: list[tuple[tuple[int, int, int, tuple[str, ...]], int]] = []
    covered = 0
    for request, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= POPULAR * len(pods):
            break
        chosen.append((request, count))
        covered += count
    return TypicalTasks(
        cpu=np.array([request[0] for request, _ in chosen], dtype=np.int64),
        gpus=np.array([request[1] for request, _ in chosen], dtype=np.int64),
        milli=np.array([request[2] for request, _ in chosen], dtype=np.int64),
        share=np.array([count / covered for _, count in chosen]),
        models=np.array([[not request[3] or model in request[3] for model in models] for request, _ in chosen]),
    )
