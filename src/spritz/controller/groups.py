"""Numbers of the groups that a partition is open to: the core looks at numbers, and names are looked up here.

Source: slurm.conf(5) AllowGroups; a group that there is not is nobody's.
"""

from __future__ import annotations

import grp
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spritz.model.partition import Partition


def group_numbers(names: Iterable[str]) -> tuple[int, ...]:
    """Of those that there are."""
    found = []
    for name in names:
        try:
            found.append(grp.getgrnam(name).gr_gid)
        except KeyError:
            continue
    return tuple(found)


def with_group_numbers(partition: Partition) -> Partition:
    """The partition with `allow_gids`."""
    return replace(partition, allow_gids=group_numbers(partition.allow_groups)) if partition.allow_groups else partition
