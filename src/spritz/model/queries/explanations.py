"""Queries about why a job waits (`spritz explain`)."""

from __future__ import annotations

from msgspec import Struct

from spritz.model.job.job_filter import JobTarget
from spritz.model.queries.explain import Explanation


class ExplainJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`scontrol explain`: why the job waits, and when it starts. Reply: `Explanations`.

    An unknown id gives ESLURM_INVALID_JOB_ID. `others`: try which other requests would start sooner.
    """

    target: JobTarget
    others: bool = True


class Explanations(Struct, frozen=True, kw_only=True):
    """One explanation per record: a job, or the rest of an array and its tasks. All by one plan, made at `now`."""

    now: float
    explanations: list[Explanation]
