"""Events about triggers (strigger)."""

from __future__ import annotations

from spritz.model.events.base import Event
from spritz.model.triggers import Pull, Trigger


class TriggerSet(Event, frozen=True, kw_only=True):
    concerns = ""

    trigger: Trigger


class TriggersPulled(Event, frozen=True, kw_only=True):
    """The events of these triggers have happened."""

    concerns = ""

    pulls: tuple[Pull, ...]


class TriggersFired(Event, frozen=True, kw_only=True):
    """Their programs run. Triggers that are not permanent are deleted."""

    concerns = ""

    pulls: tuple[Pull, ...]


class TriggersCleared(Event, frozen=True, kw_only=True):
    """These triggers were deleted, and their programs do not run."""

    concerns = ""

    ids: tuple[int, ...]
