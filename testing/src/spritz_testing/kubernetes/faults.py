"""Faults that tests inject into the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from spritz_testing.kubernetes.access import AccessAttributes, User

#: Whether a fault applies to this request.
Matches = Callable[[AccessAttributes, User], bool]

#: Actions: answer with an error; cut the connection before acting; act, then cut it; act late.
ERROR: Final = "error"
DROP: Final = "drop"
LOSE: Final = "lose"
DELAY: Final = "delay"


class Fault:
    """A fault for the next `times` requests that match (None: for all)."""

    def __init__(
        self, action: str, matches: Matches, times: int | None, code: int, retry_after: int | None, seconds: float
    ) -> None:
        self.action = action
        self.matches = matches
        self.times = times
        self.code = code
        self.retry_after = retry_after
        self.seconds = seconds
        #: number of requests so far that it applied to
        self.met = 0


class Faults:
    """The faults in force. Filters that are not given match everything."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def error(self, code: int, *, retry_after: int | None = None, times: int | None = 1, **filters: str) -> Fault:
        """Answer with an HTTP error, without acting."""
        return self._add(ERROR, times, filters, code=code, retry_after=retry_after)

    def drop(self, *, times: int | None = 1, **filters: str) -> Fault:
        """Close the connection of matching requests before they are handled. `times`: how often; None: always."""
        return self._add(DROP, times, filters)

    def lose(self, *, times: int | None = 1, **filters: str) -> Fault:
        """Act on the request, and cut the connection instead of answering."""
        return self._add(LOSE, times, filters)

    def delay(self, seconds: float, *, times: int | None = 1, **filters: str) -> Fault:
        """Delay the handling of matching requests. `times`: how often; None: always."""
        return self._add(DELAY, times, filters, seconds=seconds)

    def clear(self) -> None:
        self._faults.clear()

    def remove(self, fault: Fault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)

    def take(self, asked: AccessAttributes, user: User) -> list[Fault]:
        """The faults that apply to this request; counts it for each."""
        if not self._faults:
            return []
        met = [fault for fault in self._faults if fault.matches(asked, user)]
        for fault in met:
            fault.met += 1
            if fault.times is not None:
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
        return met

    def _add(
        self,
        action: str,
        times: int | None,
        filters: dict[str, str],
        *,
        code: int = 0,
        retry_after: int | None = None,
        seconds: float = 0.0,
    ) -> Fault:
        unknown = filters.keys() - {"verb", "resource", "namespace", "name", "subresource", "user", "group"}
        if unknown:
            raise TypeError(f"no such filter: {', '.join(sorted(unknown))}")

        def matches(asked: AccessAttributes, user: User) -> bool:
            return all(
                (user.name if field == "user" else getattr(asked, field)) == value for field, value in filters.items()
            )

        fault = Fault(action, matches, times, code, retry_after, seconds)
        self._faults.append(fault)
        return fault
