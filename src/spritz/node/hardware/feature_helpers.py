"""Helper programs: they print a node's current features, and set new ones.

Source: helpers.conf(5).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from spritz.runtime.programs import output_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.config.relatives.helpers import HelpersFile
    from spritz.runtime.log import Logger

#: programs that run at once, if one daemon serves many nodes
TOGETHER = 16


class FeatureHelpers:
    """Runs them for the nodes of one daemon, each no longer than ExecTime."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._slots = asyncio.Semaphore(TOGETHER)

    async def active(self, file: HelpersFile, variables: Mapping[str, str]) -> tuple[str, ...]:
        """The current features out of those in `file`. A failing program is logged, and its features count
        as absent.
        """
        programs = dict.fromkeys(helper.program for helper in file.helpers.values())
        outputs = await asyncio.gather(*(self._run([program], file.exec_seconds, variables) for program in programs))
        printed = {
            program: {line.strip() for line in (output or "").splitlines()}
            for program, output in zip(programs, outputs, strict=True)
        }
        return tuple(name for name, helper in file.helpers.items() if name in printed[helper.program])

    async def activate(self, file: HelpersFile, features: tuple[str, ...], variables: Mapping[str, str]) -> bool:
        """Set features one after another; False, leaving the rest, if one is unknown here or fails."""
        for name in features:
            helper = file.helpers.get(name)
            if helper is None:
                self._log.error("feature.unknown", feature=name)
                return False
            if await self._run([helper.program, name], file.exec_seconds, variables) is None:
                return False
        return True

    async def _run(self, words: list[str], seconds: int, variables: Mapping[str, str]) -> str | None:
        """The program's output; None if it failed."""
        async with self._slots:
            try:
                status, output = await output_of(words, variables, seconds)
            except TimeoutError:
                self._failed(words, error=f"it took longer than ExecTime={seconds}")
                return None
            except OSError as error:
                self._failed(words, error=error.strerror or "")
                return None
        if status:
            self._failed(words, error=f"exit status {status}")
            return None
        return output

    def _failed(self, words: list[str], *, error: str) -> None:
        self._log.error("helper.failed", program=" ".join(words), error=error)
