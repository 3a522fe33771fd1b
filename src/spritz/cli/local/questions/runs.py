"""Names of runs where a command takes job numbers, and where a shell completes words."""

from __future__ import annotations

import re
from importlib import import_module

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context

#: Ids of jobs, array tasks, components and steps, and lists of them: 7, 12_3, 12_[1-3], 9+1, 7.batch.
_JOB = re.compile(r"\d[\w+.\[\],%-]*\Z")
#: By name alone: it stands beside this package, which does not import it.
_RUNS = "spritz.experiments.job.submission"
_OTHERS = "spritz.experiments.access.others"


def job_numbers(words: list[str], context: Context) -> list[str]:
    """The words, with names of runs replaced by the numbers of their jobs. Raises AlreadyReported for another name."""
    numbers = []
    for word in words:
        number = word if _JOB.match(word) else str(import_module(_RUNS).job_number(word))
        if not number:
            context.error(f"{word}: no such job, and no run of that name")
            context.err("`squeue` lists jobs, `spritz runs` lists runs\n")
            raise AlreadyReported(1)
        numbers.append(number)
    return numbers


def names(*, of_others: bool = False) -> list[str]:
    """Names of the newest runs of this user, for tab completion; and USER/RUN of those that others share."""
    names = list(import_module(_RUNS).newest_names())
    return [*names, *import_module(_OTHERS).newest_names()] if of_others else names
