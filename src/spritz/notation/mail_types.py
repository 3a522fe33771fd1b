"""The events of `--mail-type`. Source: sbatch(1) --mail-type; scontrol(1) MailType."""

from __future__ import annotations

_ALL = ("INVALID_DEPEND", "BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT")

#: In the order in which Slurm shows them.
MAIL_TYPES = ("ARRAY_TASKS", *_ALL, "TIME_LIMIT_50", "TIME_LIMIT_80", "TIME_LIMIT_90", "TIME_LIMIT")


def parse(text: str) -> tuple[str, ...] | None:
    """Types of a comma-separated list, in any case; NONE cancels all others. None if a word is unknown or missing."""
    words = {word.upper() for word in text.split(",") if word}
    if not words or words - {*MAIL_TYPES, "ALL", "NONE"}:
        return None
    if "NONE" in words:
        return ()
    if "ALL" in words:
        words.update(_ALL)
    return tuple(word for word in MAIL_TYPES if word in words)
