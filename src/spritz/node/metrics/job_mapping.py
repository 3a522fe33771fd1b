"""Files that map GPUs to jobs, for NVIDIA's dcgm-exporter, which then labels its metrics with `hpc_job`.

A file for each GPU that jobs hold, named by its index, with a job's number a line. The directory is this daemon's:
files with other names than numbers stay.

Source: dcgm-exporter, DCGM_HPC_JOB_MAPPING_DIR. SlurmdParameters=dcgm_job_mapping_dir=DIR (Spritz's own).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from spritz.model.resources import mask_of

if TYPE_CHECKING:
    from spritz.model.job.record import Job


def gpus_of(node: str, jobs: Iterable[Job]) -> dict[int, list[int]]:
    """Index of each GPU of the node that jobs hold -> their numbers."""
    jobs_by_gpu: dict[int, list[int]] = {}
    for job in jobs:
        shares = job.allocation.nodes if job.allocation is not None else ()
        for gres in (gres for share in shares if share.node == node for gres in share.gres):
            mask = mask_of(gres.indexes) if gres.name in ("gpu", "shard") else 0
            for index in range(mask.bit_length()):
                if mask >> index & 1:
                    jobs_by_gpu.setdefault(index, []).append(job.id)
    return jobs_by_gpu


def write_mapping(directory: str, wanted: Mapping[int, list[int]]) -> None:
    """Update the directory. Readers see a whole file or none. Raises OSError."""
    os.makedirs(directory, exist_ok=True)
    for index, jobs in wanted.items():
        path, text = os.path.join(directory, str(index)), "".join(f"{job}\n" for job in sorted(jobs))
        with contextlib.suppress(OSError), open(path) as file:
            if file.read() == text:
                continue
        with open(f"{path}.new", "w") as file:
            file.write(text)
        os.replace(f"{path}.new", path)
    for name in os.listdir(directory):
        if name.isascii() and name.isdigit() and int(name) not in wanted:
            os.unlink(os.path.join(directory, name))
