"""Energy that the processors of this machine have used, as their counters say (RAPL, through powercap).

The counters are of whole sockets: a step is told what its node used while it ran, its neighbours' part included, as in
Slurm. Where they cannot be read (by root alone, on most systems), nothing is known.

Source: slurm.conf(5) AcctGatherEnergyType=acct_gather_energy/rapl; Linux power capping framework.
"""

from __future__ import annotations

import os

ROOT = "/sys/class/powercap"


class Rapl:
    """Sums up from when it is made on. `read` must be called more often than a counter runs over: every minute."""

    def __init__(self, root: str = ROOT) -> None:
        self._sockets: list[tuple[str, int]] = []
        self._last: dict[str, int] = {}
        self._microjoules = 0
        for directory in _packages(root):
            now, span = _number(f"{directory}/energy_uj"), _number(f"{directory}/max_energy_range_uj")
            if now is not None:
                self._sockets.append((directory, span or 0))
                self._last[directory] = now

    @property
    def known(self) -> bool:
        """There are counters."""
        return bool(self._sockets)

    def read(self) -> int:
        """Joules so far, of all sockets."""
        for directory, span in self._sockets:
            now = _number(f"{directory}/energy_uj")
            if now is not None:
                used = now - self._last[directory]
                self._microjoules += used if used >= 0 else used + span
                self._last[directory] = now
        return round(self._microjoules / 1e6)


def _packages(root: str) -> list[str]:
    """`intel-rapl:0`, `intel-rapl:1`: what is below them (`intel-rapl:0:0`) is counted in them."""
    try:
        names = os.listdir(root)
    except OSError:
        return []
    return [f"{root}/{name}" for name in sorted(names) if name.startswith("intel-rapl:") and name.count(":") == 1]


def _number(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None
