"""Flags as plain integers: `int & IntFlag` goes through the enum machinery and takes ten times as long.

Only the numbers are here; `model.states` explains them.
"""

from __future__ import annotations

from spritz.model.states import JobFlag

COMPLETING: int = JobFlag.COMPLETING.value
CONFIGURING: int = JobFlag.CONFIGURING.value
POWER_UP_NODE: int = JobFlag.POWER_UP_NODE.value
