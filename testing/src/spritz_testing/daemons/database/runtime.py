"""What the database needs of the world around it: time, chance, and waiting."""

from __future__ import annotations

from random import Random
from typing import Protocol


class Signal(Protocol):
    """What `threading.Event` is; in a simulation, that of its threads."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Runtime(Protocol):
    """The thread that calls, and its world. A thread that is killed is told so by an exception of `pause` or `wait`."""

    @property
    def random(self) -> Random: ...

    def now(self) -> float:
        """Seconds since any fixed moment; never steps back."""
        ...

    def pause(self, seconds_low: float, seconds_high: float) -> None:
        """Block this thread for a time between the two, which the runtime draws."""
        ...

    def signal(self) -> Signal:
        """A new signal, not set."""
        ...

    def host(self) -> str:
        """Name of the machine whose process is calling."""
        ...
