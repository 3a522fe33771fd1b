"""Fair share: the manual's examples to the last printed digit, and a tree as a real Slurm 22.05 reckons it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spritz.model.cluster.priority import PriorityPolicy
from spritz.model.limits.records import SHARES_PARENT, Association
from spritz.scheduling.view.priority.fairshare import Share, fair_shares

FAIR_TREE = PriorityPolicy()
CLASSIC = PriorityPolicy(classic=True)
OBLIVIOUS = PriorityPolicy(classic=True, depth_oblivious=True)
RECORDED = Path(__file__).with_name("fairshare_22_05.txt")


def tree(text: str) -> list[Association]:
    """`A=40 A/B=30 A/B:u1`: accounts by their path with shares, users behind a colon."""
    found = [Association(id=1, cluster="c", account="root")]
    for item in text.split():
        path, _, shares = item.partition("=")
        place, _, user = path.partition(":")
        above, _, account = place.rpartition("/")
        found.append(
            Association(
                id=len(found) + 1,
                cluster="c",
                account=account,
                user=user,
                parent="" if user else above.rpartition("/")[2] or "root",
                shares=SHARES_PARENT if shares == "parent" else int(shares or 1),
            )
        )
    return found


def figures(text: str, used: dict[str, float], policy: PriorityPolicy) -> dict[str, Share]:
    """By user, or by account; `used` by user, summed up the tree."""
    associations = tree(text)
    by_account = {association.account: association for association in associations if not association.user}
    usage: dict[int, float] = {}
    for association in associations:
        amount = used.get(association.user, 0.0) if association.user else 0.0
        at: Association | None = association
        while amount and at is not None:
            usage[at.id] = usage.get(at.id, 0.0) + amount
            at = by_account.get(at.account) if at.user else by_account.get(at.parent)
    found = fair_shares(associations, usage, policy)
    return {association.user or association.account: found[association.id] for association in associations}


#: classic_fair_share.html, Example: users 1, 2 and 4 have used 0.2, 0.25 and 0.25 of the machine
EXAMPLE = "A=40 D=60 A/B=30 A/C=10 D/E=25 D/F=35 A/B:u1 A/C:u2 A/C:u3 D/E:u4 D/F:u5"
EXAMPLE_USED = {"u1": 20.0, "u2": 25.0, "u4": 25.0}


def machine_of_100(policy: PriorityPolicy) -> dict[str, Share]:
    """The example with usage outside the shares: a user below root who has no shares."""
    return figures(EXAMPLE + " rest=0 rest:nobody", {**EXAMPLE_USED, "nobody": 30.0}, policy)


@pytest.mark.parametrize(
    ("user", "shares", "effective", "factor"),
    [
        ("u1", "0.300000", "0.387500", "0.408479"),
        ("u2", "0.050000", "0.275000", "0.022097"),
        ("u3", "0.050000", "0.150000", "0.125000"),
        ("u4", "0.250000", "0.250000", "0.500000"),
        ("u5", "0.350000", "0.145833", "0.749154"),
    ],
)
def test_the_classic_formula_gives_the_figures_of_the_manual(
    user: str, shares: str, effective: str, factor: str
) -> None:
    one = machine_of_100(CLASSIC)[user]
    assert [f"{value:.6f}" for value in (one.norm_shares, one.effective_usage, one.factor)] == [
        shares,
        effective,
        factor,
    ]


@pytest.mark.parametrize(
    ("account", "effective"), [("A", "0.450000"), ("D", "0.250000"), ("B", "0.387500"), ("C", "0.300000")]
)
def test_effective_usage_of_the_manual_s_accounts(account: str, effective: str) -> None:
    assert f"{machine_of_100(CLASSIC)[account].effective_usage:.6f}" == effective


def recorded() -> list[list[str]]:
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    return [line.split("|") for line in lines if not line.startswith("#")]


def of_the_record(policy: PriorityPolicy) -> dict[int, Share]:
    rows = recorded()
    associations = [
        Association(
            id=int(row[0]),
            cluster="c",
            account=row[1],
            user=row[2],
            parent=row[3],
            shares=SHARES_PARENT if row[4] == "parent" else int(row[4]),
        )
        for row in rows
    ]
    return fair_shares(associations, {int(row[0]): float(row[5]) for row in rows}, policy)


def differences(given: list[str], mine: list[float]) -> list[tuple[str, str]]:
    """Of what sshare printed; it leaves fields empty that do not matter."""
    return [(one, f"{value:.6f}") for one, value in zip(given, mine, strict=True) if one and one != f"{value:.6f}"]


def test_the_classic_formula_is_slurm_s_on_a_tree_with_parents_and_zero_shares() -> None:
    found = of_the_record(CLASSIC)
    for row in recorded():
        one = found[int(row[0])]
        assert not differences(row[10:], [one.norm_shares, one.effective_usage, one.factor]), row[1:3]


def test_fair_tree_is_slurm_s_but_for_accounts_that_tie() -> None:
    """Slurm's program does not merge accounts of the same level fair share, as its manual says it does: t1, t2, t3."""
    found = of_the_record(FAIR_TREE)
    for row in recorded():
        one = found[int(row[0])]
        merged = row[1] in ("t1", "t2", "t3", "t4", "t5")
        given = row[6:10] if not merged else [*row[6:8], "", row[9]]
        assert not differences(given, [one.norm_shares, one.effective_usage, one.factor, one.level]), row[1:3]


def ranks(found: dict[str, Share], *names: str) -> list[int]:
    users = sum(1 for one in found.values() if one.association.user)
    return [round(found[name].factor * users) for name in names]


def test_children_of_accounts_that_tie_are_ranked_together() -> None:
    """fair_tree.html, Ties: sibling accounts with the same level have their children lists merged."""
    found = figures("x=1 y=1 x:a x:b y:c y:d", {"a": 4.0, "b": 1.0, "c": 3.0, "d": 2.0}, FAIR_TREE)
    assert found["x"].level == found["y"].level
    assert ranks(found, "b", "d", "c", "a") == [4, 3, 2, 1]


def test_users_that_tie_have_one_rank_which_counts_twice() -> None:
    found = figures("x=1 x:a x:b x:c", {"a": 1.0, "b": 1.0, "c": 8.0}, FAIR_TREE)
    assert ranks(found, "a", "b", "c") == [3, 3, 1]


def test_a_user_that_ties_with_an_account_ranks_with_its_best_user() -> None:
    found = figures("x=1 x:a=1 x/y=1 x/y:b x/y:c", {"a": 5.0, "b": 1.0, "c": 4.0}, FAIR_TREE)
    assert found["a"].level == found["y"].level == 1.0
    assert ranks(found, "a", "b", "c") == [3, 3, 1]


def test_every_user_of_a_better_account_is_before_every_user_of_a_worse() -> None:
    found = figures("good=3 bad=1 good:a good:b bad:c bad:d", {"a": 9.0, "c": 9.0}, FAIR_TREE)
    assert ranks(found, "b", "a", "d", "c") == [4, 3, 2, 1]
    assert found["d"].level == float("inf")


def test_all_users_rank_first_while_none_has_used_anything() -> None:
    found = figures("x=1 y=7 x:a y:b", {}, FAIR_TREE)
    assert ranks(found, "a", "b") == [2, 2]


def test_dampening_divides_the_exponent() -> None:
    plain, damped = machine_of_100(CLASSIC), machine_of_100(PriorityPolicy(classic=True, dampening=4))
    assert damped["u2"].factor == pytest.approx(plain["u2"].factor ** 0.25)


def test_depth_does_not_matter_when_all_above_are_on_target() -> None:
    """The formula's aim: with R of the parent 1 the factor comes of one's own usage alone, k is 1."""
    found = figures("A=1 B=1 A/C=1 A/D=1 A/C:a A/D:b B:c", {"a": 75.0, "b": 25.0, "c": 100.0}, OBLIVIOUS)
    assert found["A"].effective_usage == pytest.approx(0.5)
    assert found["C"].factor == pytest.approx(2.0 ** -(0.375 / 0.25))
    assert found["D"].factor == pytest.approx(2.0 ** -(0.125 / 0.25))


def test_without_a_tree_there_is_no_figure() -> None:
    assert fair_shares([], {}, FAIR_TREE) == {}
