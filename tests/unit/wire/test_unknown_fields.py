"""Where something is changed, nothing is passed over that the other side understands and this one does not."""

from __future__ import annotations

import pytest
from msgspec import Struct, defstruct, msgpack
from msgspec.structs import fields

from spritz.model.accounting import accounting_admin
from spritz.model.limits.records import Account, Book, EditBook, Qos, Record, RehearseEdit
from spritz.wire.envelope import Request, decode_envelope, encode_request
from spritz.wire.frames import PREFIX_BYTES
from spritz.wire.requests import BadRequest, RequestDecoder
from spritz.wire.unknown_fields import unknown_field


def later(known: type[Struct]) -> type[Struct]:
    """The same of a release that has another field, which is left out where it is None."""
    more = [("colour", object, None)]
    tag = known.__struct_config__.tag
    return defstruct(known.__name__, more, bases=(known,), kw_only=True, frozen=True, omit_defaults=True, tag=tag)


def received(body: Struct, *taken: type[Struct]) -> Struct:
    request = decode_envelope(encode_request(1, body)[PREFIX_BYTES:])
    assert isinstance(request, Request)
    return RequestDecoder(taken).decode(request)


def edit_with(**more: object) -> EditBook:
    record = later(Qos)(name="normal", **more)
    return EditBook(version=3, puts=(Account(name="chem"), record))  # type: ignore[arg-type]  # of a later release


def test_an_edit_with_a_limit_that_is_not_known_is_refused_by_its_name() -> None:
    with pytest.raises(BadRequest, match=r"Incompatible versions of client and server code: Qos\.colour") as caught:
        received(edit_with(colour="red"), EditBook)
    assert caught.value.code == "SLURM_PROTOCOL_VERSION_ERROR"


def test_an_edit_that_does_not_use_what_is_new_is_taken() -> None:
    assert received(edit_with(), EditBook) == EditBook(version=3, puts=(Account(name="chem"), Qos(name="normal")))


def test_older_daemons_do_not_take_a_rehearsal_for_an_edit() -> None:
    rehearsal = RehearseEdit(version=3, drops=(Account(name="chem"),))
    with pytest.raises(BadRequest, match="'RehearseEdit' is not a request"):
        received(rehearsal, EditBook)
    assert received(rehearsal, EditBook, RehearseEdit) == rehearsal


@pytest.mark.parametrize(
    "kind",
    [EditBook, RehearseEdit]
    + [getattr(accounting_admin, name) for name in ("FixRunaway", "ModifyJobs", "ArchiveDump", "ArchiveLoad")],
)
def test_what_changes_records_is_refused_with_a_field_that_is_not_known(kind: type[Struct]) -> None:
    values = {"version": 1, "cluster": "c1", "picks": (), "numbers": (), "path": "/a"}
    needed = {name: values[name] for name in kind.__struct_fields__ if name in values}
    assert received(later(kind)(**needed), kind) == kind(**needed)
    with pytest.raises(BadRequest, match=rf"{kind.__name__}\.colour"):
        received(later(kind)(colour=1, **needed), kind)


def test_a_book_of_a_later_release_is_told_from_one_that_is_understood() -> None:
    known, record = msgpack.Decoder(Book), later(Qos)
    for more, found in (({}, ""), ({"colour": 1}, "Qos.colour")):
        body = msgpack.encode(Book(version=1, qos=(record(name="normal", **more),)))  # type: ignore[arg-type]
        assert unknown_field(known.decode(body), body) == found


def test_records_are_sent_without_what_is_as_it_always_was() -> None:
    """Otherwise a later release's fields would be refused although they are unused."""
    for kind in Record.__args__:
        needed = {name: "x" for name in ("name", "account", "user", "cluster", "server") if name in required(kind)}
        record = kind(**needed, **({"id": 1} if "id" in required(kind) else {}))
        assert msgpack.decode(msgpack.encode(record)).keys() == {"type", *required(kind)}


def required(kind: type[Struct]) -> set[str]:
    return {field.name for field in fields(kind) if field.required}
