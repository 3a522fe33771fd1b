"""Names of groups become numbers before the core sees them."""

from __future__ import annotations

from spritz.controller.groups import changed_groups, group_numbers, with_changed_numbers, with_group_numbers
from spritz.model.node.partition import Partition

gid_of = {"staff": 50, "students": 60}.get


def test_groups_that_there_are_get_their_numbers() -> None:
    assert group_numbers(("staff", "no-such-group"), gid_of) == (50,)
    assert with_group_numbers(Partition(name="p", allow_groups=("staff",)), gid_of).allow_gids == (50,)
    plain = Partition(name="p")
    assert with_group_numbers(plain, gid_of) is plain


def test_a_partition_for_unknown_groups_is_closed_to_all_users() -> None:
    found = with_group_numbers(Partition(name="p", allow_groups=("no-such-group",), deny_groups=("staff",)), gid_of)
    assert (found.allow_gids, found.deny_gids) == ((-1,), (50,))
    changes = {"deny_groups": ["staff"], "allow_groups": [], "hidden": True}
    assert changed_groups(changes) == ("staff",)
    assert with_changed_numbers(changes, gid_of) == {**changes, "deny_gids": [50], "allow_gids": []}
