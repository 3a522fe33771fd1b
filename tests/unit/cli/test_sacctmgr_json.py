"""sacctmgr --json show: the form that tools read. Source: Slurm's OpenAPI specification of slurmdbd, v0.0.43."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from msgspec.structs import replace

from spritz.cli import sacctmgr
from spritz.cli.administration.manager.arguments import read
from spritz.cli.administration.manager.settings import FLAGS
from spritz.cli.administration.manager.show import Style, show
from spritz.cli.call.context import Context
from spritz.model.errors import SpritzError
from spritz.model.limits.records import Account, Association, Book, ClusterRow, Coordinator, Qos, User, WcKey
from spritz.presentation.json.associations import ENTITIES

BOOK = Book(
    clusters=(ClusterRow(name="c1", host="h", port=6817),),
    accounts=(Account(name="root"), Account(name="chem", description="d", organization="o")),
    users=(User(name="amy", admin="Operator", default_wckey="k"),),
    coordinators=(Coordinator(account="chem", user="amy"),),
    wckeys=(WcKey(cluster="c1", name="k", user="amy"),),
    associations=(
        Association(id=1, cluster="c1", account="root", qos="normal"),
        Association(
            id=2, cluster="c1", account="chem", parent="root", max_jobs=4, grp_tres="cpu=8,gres/gpu=2", max_wall=60
        ),
        Association(id=3, cluster="c1", account="chem", user="amy", is_default=True),
    ),
    qos=(
        Qos(name="normal", id=1),
        Qos(name="high", id=2, flags="DenyOnLimit", preempt="normal", max_tres_pu="gres/gpu=4", usage_factor=2.0),
    ),
)


def shown(*words: str, book: Book = BOOK) -> Any:
    context = Context("sacctmgr", {}, "/", io.StringIO(), out := io.StringIO(), io.StringIO())
    assert show(words[0], read(words[1:])[0], book, Style(), context, as_json="") == 0
    return json.loads(out.getvalue())


@pytest.mark.parametrize("entity", ENTITIES)
def test_every_list_has_what_every_answer_carries(entity: str) -> None:
    found = shown(entity)
    assert (found["errors"], found["warnings"]) == ([], [])
    assert found["meta"]["plugin"]["data_parser"] == "data_parser/v0.0.43"
    (name,) = found.keys() - {"meta", "errors", "warnings"}
    assert found[name]


def test_an_association_has_its_limits_and_those_from_above() -> None:
    chem, amy = shown("association", "account=chem")["associations"]
    assert (chem["parent_account"], amy["user"], amy["is_default"], amy["qos"]) == ("root", "amy", True, ["normal"])
    assert amy["max"]["jobs"]["active"] == {"set": True, "infinite": False, "number": 4}
    assert amy["max"]["jobs"]["per"]["wall_clock"]["number"] == 60
    assert amy["max"]["jobs"]["total"]["set"] is False
    gpu = {"type": "gres", "name": "gpu", "id": 1001, "count": 2}
    assert chem["max"]["tres"]["total"] == [{"type": "cpu", "name": "", "id": 1, "count": 8}, gpu]


def test_a_qos_has_its_limits_by_what_they_bound() -> None:
    (high,) = shown("qos", "high")["qos"]
    assert (high["flags"], high["preempt"]["list"], high["usage_factor"]["number"]) == (["DENY_LIMIT"], ["normal"], 2.0)
    assert high["limits"]["max"]["tres"]["per"]["user"][0]["name"] == "gpu"
    assert high["limits"]["max"]["tres"]["per"]["job"] == []


def test_users_and_accounts_have_associations_where_asked() -> None:
    (plain,), (full,) = shown("user")["users"], shown("user", "withassoc")["users"]
    assert (plain["default"]["account"], plain["administrator_level"]) == ("chem", ["Operator"])
    assert (plain["coordinators"], plain["associations"]) == ([{"name": "chem", "direct": True}], [])
    assert [one["id"] for one in full["associations"]] == [3]
    (chem,) = shown("account", "chem", "withassoc")["accounts"]
    assert (chem["organization"], [one["id"] for one in chem["associations"]]) == ("o", [2, 3])


def test_a_cluster_has_its_controller_and_root() -> None:
    (one,) = shown("cluster")["clusters"]
    assert one["controller"] == {"host": "h", "port": 6817}
    assert one["associations"]["root"]["account"] == "root"


@pytest.mark.parametrize("words", [("show", "event"), ("show", "transaction"), ("add", "account", "x")])
@pytest.mark.parametrize("form", ["--json", "--yaml"])
def test_what_has_no_form_is_refused_by_name(form: str, words: tuple[str, ...]) -> None:
    context = Context("sacctmgr", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    with pytest.raises(SpritzError, match="--json and --yaml are not supported"):
        sacctmgr.main([form, *words], context)


def test_what_was_deleted_is_flagged() -> None:
    gone = Association(id=4, cluster="c1", account="chem", user="bob")
    book = replace(BOOK, deleted=(gone, User(name="bob")), deleted_clusters=(ClusterRow(name="c0"),))
    plain = [one["user"] for one in shown("association", "account=chem", book=book)["associations"]]
    assert plain == ["", "amy"]
    with_it = shown("association", "account=chem", "withdeleted", book=book)["associations"]
    assert [(one["user"], one["flags"]) for one in with_it] == [("", []), ("amy", []), ("bob", ["DELETED"])]
    assert [one["flags"] for one in shown("user", "withdeleted", book=book)["users"]] == [[], ["DELETED"]]
    assert [one["flags"] for one in shown("cluster", "withdeleted", book=book)["clusters"]] == [["DELETED"], []]


def test_every_flag_of_a_qos_has_its_name() -> None:
    book = replace(BOOK, qos=(Qos(name="q", id=1, flags=",".join(FLAGS.values())),))
    (found,) = shown("qos", book=book)["qos"]
    assert len(set(found["flags"])) == len(FLAGS)
