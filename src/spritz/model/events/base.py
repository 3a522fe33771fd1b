"""The fields of every journaled fact: a kind and a time.

Events live for ever in journals. A field may be added with a default; anything else needs a new kind or an upcaster.
"""

from __future__ import annotations

from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True, tag_field="kind"):
    """A fact. `at`: when it happened, seconds since the epoch, by the controller's clock.

    Each kind declares in `concerns` who must hear of it; a test of each of these holds that it has a function for just
    these kinds:

    - `scheduler`: the scheduler's view follows it; `pass`: after it another job may be able to start
    - `accounting`: slurmdbd's records change with it, and no other event repeats what it says
    - `subscribers`: viewers are told of it, since it shows no more than squeue, sinfo and `scontrol show` do
    """

    #: words, separated by blanks; not annotated, since it is no field
    concerns = ""

    at: float
