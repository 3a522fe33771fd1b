"""Numbers that identify things, and their reserved values.

Source: slurm/slurm.h (special step ids, NO_VAL, INFINITE).
"""

from __future__ import annotations

#: "Not given" and "without limit" in 32-bit fields, as tools see them in `--json` and `scontrol`.
NO_VAL = 0xFFFFFFFE
INFINITE = 0xFFFFFFFF

#: Pseudo steps, printed as `.extern`, `.batch`, `.interactive`.
STEP_EXTERN = 0xFFFFFFFC
STEP_BATCH = 0xFFFFFFFB
STEP_INTERACTIVE = 0xFFFFFFFA

#: Largest ordinary step number.
STEP_MAX = 0xFFFFFFEF

_STEP_NAMES = {STEP_EXTERN: "extern", STEP_BATCH: "batch", STEP_INTERACTIVE: "interactive"}


def step_name(step_id: int) -> str:
    """The part after the dot: `0`, `batch`, `extern`, `interactive`."""
    return _STEP_NAMES.get(step_id) or str(step_id)
