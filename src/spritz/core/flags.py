"""Flags as plain integers: `int & IntFlag` goes through the enum machinery and costs ten times as much.

Owns nothing but the numbers; the meaning is in `model.states`.
"""

from __future__ import annotations

from spritz.model.states import JobFlag

COMPLETING: int = JobFlag.COMPLETING.value
CONFIGURING: int = JobFlag.CONFIGURING.value
POWER_UP_NODE: int = JobFlag.POWER_UP_NODE.value
