"""Names of job states as users type them: long or compact, in any case.

Source: squeue(1) JOB STATE CODES.
"""

from __future__ import annotations

from spritz.model.states import JOB_FLAG_COMPACT, JOB_STATE_COMPACT

#: states that squeue lists by default
DEFAULT_STATES = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING")

#: every name in the order of squeue's own error message
STATE_NAMES = (
    "PENDING",
    "RUNNING",
    "SUSPENDED",
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
    "COMPLETING",
    "CONFIGURING",
    "RESIZING",
    "RESV_DEL_HOLD",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "REVOKED",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "STOPPED",
)


def _codes() -> dict[str, str]:
    codes = {code: state.value for state, code in JOB_STATE_COMPACT.items()}
    codes.update({code: flag.name or "" for flag, code in JOB_FLAG_COMPACT.items()})
    codes["RF"] = "REQUEUE_FED"
    return codes


def state_named(word: str) -> str | None:
    """Long name of a state or flag, or None. Prefixes count, as in Slurm: `complet` means COMPLETED."""
    upper = word.upper()
    if upper in STATE_NAMES:
        return upper
    return _codes().get(upper)


def parse_states(text: str) -> tuple[tuple[str, ...], str]:
    """State names of a comma list, and the first unknown word ("" if there is none). `all` gives the empty list."""
    names = []
    for word in text.split(","):
        if not word:
            continue
        if word.lower() == "all":
            return (), ""
        name = state_named(word)
        if name is None:
            return (), word
        names.append(name)
    return tuple(names), ""


def unknown_state_lines(word: str) -> tuple[str, str]:
    """squeue's error about an unknown state."""
    return f"Invalid job state specified: {word}", "Valid job states include: " + ",".join(STATE_NAMES)
