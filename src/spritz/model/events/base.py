"""The fields of every journaled fact, a kind and a time; and `Changes`, what the facts of one command have changed.

Events live for ever in journals. A field may be added with a default; anything else needs a new kind or an upcaster.
`Changes` are never stored or sent, so they are no Structs: an index of records follows them, and need not know any kind
of event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spritz.model.cluster.settings import ClusterSettings
    from spritz.model.job.record import Job
    from spritz.model.limits.records import Policy, PolicyChange
    from spritz.model.node.partition import Partition
    from spritz.model.node.record import Node
    from spritz.model.node.reservation import Reservation

R = TypeVar("R")

#: a record before and after a command: None where there was none, or is none any more
Changed: TypeAlias = tuple[R | None, R | None]


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True, tag_field="kind"):
    """A fact. `at`: when it happened, seconds since the epoch, by the controller's clock.

    Each kind declares in `concerns` who must hear of it; a test of each of these holds that it has a function for just
    these kinds:

    - `accounting`: slurmdbd's records change with it, and no other event repeats what it says
    - `subscribers`: viewers are told of it, since it shows no more than squeue, sinfo and `scontrol show` do
    """

    #: words, separated by blanks; not annotated, since it is no field
    concerns = ""

    at: float


class Layout(NamedTuple):
    """What the cluster is made of. `nodes`: names. Partitions and nodes are in the order of listings."""

    settings: ClusterSettings
    partitions: Mapping[str, Partition]
    nodes: tuple[str, ...]


class Changes(NamedTuple):
    """What one command has changed: of each record once, in the order in which they were first replaced."""

    jobs: tuple[Changed[Job], ...] = ()
    nodes: tuple[Changed[Node], ...] = ()
    reservations: tuple[Changed[Reservation], ...] = ()
    #: if settings, partitions or the set of nodes have changed
    layout: Layout | None = None
    #: accounting's policy as a whole, and edits of it, in order: it is too large to be compared
    policy: tuple[Policy | PolicyChange, ...] = ()
    #: usage was reset, or taken over from accounting
    usage: bool = False


NO_CHANGES = Changes()
