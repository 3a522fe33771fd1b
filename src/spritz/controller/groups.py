"""Group ids of AllowGroups and DenyGroups: names are looked up here, because the core compares numbers.

The functions take the lookup as `gid_of(name)`, which returns None for an unknown group. While a configuration is read
(off the loop) it is the system's lookup; for a request it is a cache (`callers.identity`).

Source: slurm.conf(5) AllowGroups, DenyGroups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from spritz.model.node.partition import Partition

    GidOf = Callable[[str], int | None]


#: Stands for AllowGroups of which no group exists: no user has this gid.
_NO_GROUP = -1


def group_numbers(names: Iterable[str], gid_of: GidOf) -> tuple[int, ...]:
    """Numbers of the groups that exist."""
    return tuple(gid for name in names if (gid := gid_of(name)) is not None)


def with_group_numbers(partition: Partition, gid_of: GidOf) -> Partition:
    """The partition with `allow_gids` and `deny_gids`."""
    if not partition.allow_groups and not partition.deny_groups:
        return partition
    return replace(
        partition,
        allow_gids=_allowed(partition.allow_groups, gid_of),
        deny_gids=group_numbers(partition.deny_groups, gid_of),
    )


def _allowed(names: tuple[str, ...], gid_of: GidOf) -> tuple[int, ...]:
    return group_numbers(names, gid_of) or ((_NO_GROUP,) if names else ())


def changed_groups(changes: Mapping[str, object]) -> tuple[str, ...]:
    """Names of all groups in the changes of a partition."""
    lists = (changes.get("allow_groups"), changes.get("deny_groups"))
    return tuple(str(name) for names in lists if isinstance(names, (list, tuple)) for name in names)


def with_changed_numbers(changes: Mapping[str, object], gid_of: GidOf) -> dict[str, object]:
    """Changes of a partition, with group names resolved to numbers."""
    lookups = dict(changes)
    for names, numbers, look_up in (
        ("allow_groups", "allow_gids", _allowed),
        ("deny_groups", "deny_gids", group_numbers),
    ):
        members = lookups.get(names)
        if isinstance(members, (list, tuple)):
            lookups[numbers] = list(look_up(tuple(map(str, members)), gid_of))
    return lookups
