"""`explain JOBS`: why a job waits, what must happen before it starts, and what would start sooner.

Slurm has no such keyword; errors are worded as those of `show job`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from spritz.cli.administration.control.jobs import items, target_of
from spritz.client.errors import RemoteError
from spritz.model.queries.explanations import ExplainJob, Explanations
from spritz.presentation.explain_text import explanation_text
from spritz.presentation.json.explain import show

if TYPE_CHECKING:
    from spritz.cli.administration.control.session import Session
    from spritz.cli.call.context import Context
    from spritz.model.queries.explain import Explanation

#: Columns where output is no terminal and COLUMNS is not set.
WIDTH = 100
WIDTH_MIN, WIDTH_MAX = 60, 140

#: A full cycle, and some more for other requests.
TIMEOUT_SECONDS = 120.0


def run(session: Session, words: list[str]) -> int:
    """`scontrol explain JOBS`. Returns the exit status: 1 if a job id is invalid or unknown."""
    now, status = 0.0, 0
    explanations: list[Explanation] = []
    for word in items(words):
        target = target_of(word)
        if target is None:
            session.say("scontrol_print_job error: Invalid job id specified")
            return 1
        try:
            answer = session.call(ExplainJob(target=target), Explanations, timeout=TIMEOUT_SECONDS)
        except RemoteError as error:
            if not session.quiet:
                session.say(f"slurm_load_jobs error: {error.message}")
                session.hint(error.hint)
            status = 1
            continue
        if not answer.explanations:
            session.out(f"Job {word} not found\n")
            status = 1
        now = answer.now
        explanations += answer.explanations
    if session.json is not None:
        show(session.context, session.json, now, explanations)
    elif explanations:
        context = session.context
        width, colour = width_of(context), context.terminal
        session.out("\n".join([explanation_text(explanation, now, width, colour) for explanation in explanations]))
    return status


def width_of(context: Context) -> int:
    """Columns to fill: of the terminal, or as COLUMNS says."""
    text = context.environ.get("COLUMNS", "")
    columns = int(text) if text.isascii() and text.isdigit() else 0
    if not columns and context.stdout.isatty():
        try:
            columns = os.get_terminal_size(context.stdout.fileno()).columns
        except (OSError, ValueError):
            columns = 0
    return min(max(columns or WIDTH, WIDTH_MIN), WIDTH_MAX)
