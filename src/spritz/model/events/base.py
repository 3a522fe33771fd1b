"""The fields of every journaled fact: a kind and a time.

Events live for ever in journals. A field may be added with a default; anything else needs a new kind or an upcaster.
"""

from __future__ import annotations

from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True, tag_field="kind"):
    """A fact. `at`: when it happened, seconds since the epoch, by the controller's clock."""

    at: float
