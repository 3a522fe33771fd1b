"""`scontrol --json explain`: the model's own fields, since Slurm has no such command. Times are epoch seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import to_builtins

from spritz.presentation.json.envelope import show as show_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spritz.model.queries.explain import Explanation
    from spritz.presentation.json.envelope import Output


def show(output: Output, version_word: str, now: float, explanations: Sequence[Explanation]) -> None:
    """Print explanations as JSON or YAML."""

    show_answer(
        output, version_word, {"explanations": [to_builtins(explanation) for explanation in explanations], "now": now}
    )
