"""Facts about triggers."""

from __future__ import annotations

from spritz.model.events.base import Event
from spritz.model.triggers import Pull, Trigger


class TriggerSet(Event, frozen=True, kw_only=True):
    """A user wants a program to run."""

    trigger: Trigger


class TriggersPulled(Event, frozen=True, kw_only=True):
    """What these triggers wait for has happened."""

    pulls: tuple[Pull, ...]


class TriggersFired(Event, frozen=True, kw_only=True):
    """Their programs run. Triggers that are not permanent are gone."""

    pulls: tuple[Pull, ...]


class TriggersCleared(Event, frozen=True, kw_only=True):
    """They are gone, and their programs do not run."""

    ids: tuple[int, ...]
