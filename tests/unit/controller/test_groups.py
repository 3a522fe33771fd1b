"""Names of groups become numbers before the core sees them."""

from __future__ import annotations

import grp
import os

from spritz.controller.groups import group_numbers, with_changed_numbers, with_group_numbers
from spritz.model.partition import Partition

MINE = grp.getgrgid(os.getgid()).gr_name


def test_groups_that_there_are_get_their_numbers() -> None:
    assert group_numbers((MINE, "no-such-group")) == (os.getgid(),)
    assert with_group_numbers(Partition(name="p", allow_groups=(MINE,))).allow_gids == (os.getgid(),)
    plain = Partition(name="p")
    assert with_group_numbers(plain) is plain


def test_a_partition_for_groups_that_there_are_not_is_open_to_nobody() -> None:
    found = with_group_numbers(Partition(name="p", allow_groups=("no-such-group",), deny_groups=(MINE,)))
    assert (found.allow_gids, found.deny_gids) == ((-1,), (os.getgid(),))
    assert with_changed_numbers({"deny_groups": [MINE], "allow_groups": [], "hidden": True}) == {
        "deny_groups": [MINE],
        "deny_gids": [os.getgid()],
        "allow_groups": [],
        "allow_gids": [],
        "hidden": True,
    }
