"""Numbers of the groups that a partition is open or closed to: the core looks at numbers, names are looked up here.

Source: slurm.conf(5) AllowGroups, DenyGroups; a group that there is not is nobody's.
"""

from __future__ import annotations

import grp
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spritz.model.partition import Partition


#: stands where a partition is open to groups none of which there is
_NOBODYS = -1


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
    """The partition with `allow_gids` and `deny_gids`."""
    if not partition.allow_groups and not partition.deny_groups:
        return partition
    return replace(
        partition, allow_gids=_open_to(partition.allow_groups), deny_gids=group_numbers(partition.deny_groups)
    )


def _open_to(names: tuple[str, ...]) -> tuple[int, ...]:
    return group_numbers(names) or ((_NOBODYS,) if names else ())


def with_changed_numbers(changes: Mapping[str, object]) -> dict[str, object]:
    """Changes of a partition, with the numbers of the groups that they name."""
    made = dict(changes)
    for names, numbers, look_up in (
        ("allow_groups", "allow_gids", _open_to),
        ("deny_groups", "deny_gids", group_numbers),
    ):
        given = made.get(names)
        if isinstance(given, (list, tuple)):
            made[numbers] = list(look_up(tuple(map(str, given))))
    return made
