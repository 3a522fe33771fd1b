"""No request brings a number, text or list out of its range; what was stored stays readable."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import Meta, Raw, Struct, inspect, msgpack
from msgspec.structs import replace

from spritz.controller.journal.contract import Group
from spritz.controller.journal.events import decode_group
from spritz.model import bounds
from spritz.model.commands.cluster import UpdateNode, UpdatePartition
from spritz.model.commands.job import CancelJobs, SubmitJob, UpdateJob
from spritz.model.commands.step import CreateStep
from spritz.model.events.codec import encode_events
from spritz.model.events.job import JobQueued
from spritz.model.ids import INFINITE, STEP_BATCH
from spritz.model.job.job_filter import JobFilter, JobTarget
from spritz.model.job.record import Dependency, EndSignal, Job, JobSpec, ResourceLimit
from spritz.model.job.step import StepSpec
from spritz.model.node_daemon.launch import LaunchProlog
from spritz.model.node_daemon.reports import RegisterNode
from spritz.model.queries.jobs import ListJobs
from spritz.model.resources import NodeCapacity
from spritz.wire.envelope import Request, decode_envelope, encode_request
from spritz.wire.frames import PREFIX_BYTES
from spritz.wire.requests import BadRequest, RequestDecoder
from tests.fuzz import taken

ALL = sorted(taken.of_controller() | taken.of_database() | taken.of_others(), key=lambda kind: kind.__name__)
DECODER = RequestDecoder(ALL)

Path = tuple[str | int, ...]


def numbers(info: inspect.Type, owner: str, field: str, path: Path = ()) -> Iterator[tuple[Path, str, inspect.Type]]:
    """Where the numbers of a type are: a path into its plain form, and the name that a range goes by."""
    match info:
        case inspect.StructType():
            if info.cls.__name__ in bounds.RECORDS:
                return
            for place, one in enumerate(info.fields):
                step = place if info.array_like else one.name
                yield from numbers(one.type, info.cls.__name__, one.name, (*path, step))
        case inspect.UnionType():
            for part in info.types:
                yield from numbers(part, owner, field, path)
        case inspect.VarTupleType() | inspect.ListType():
            yield from numbers(info.item_type, owner, field, (*path, 0))
        case inspect.TupleType():
            for place, item in enumerate(info.item_types):
                yield from numbers(item, owner, field, (*path, place))
        case inspect.DictType():
            yield from numbers(info.value_type, owner, field, (*path, "key"))
        case inspect.IntType() | inspect.FloatType():
            yield path, f"{owner}.{field}", info


def texts_and_lists(info: inspect.Type, owner: str, field: str, seen: set[type]) -> Iterator[tuple[str, bool]]:
    """Names of a type's texts, and of its lists and maps (with True), as bounds are found by them."""
    match info:
        case inspect.StructType():
            if info.cls.__name__ in bounds.RECORDS or info.cls in seen:
                return
            seen.add(info.cls)
            for one in info.fields:
                name = f"{info.cls.__name__}.{one.name}"
                kind = inspect.type_info(bounds.CHANGES[name][0]) if name in bounds.CHANGES else one.type
                yield from texts_and_lists(kind, info.cls.__name__, one.name, seen)
        case inspect.UnionType():
            for part in info.types:
                yield from texts_and_lists(part, owner, field, seen)
        case inspect.VarTupleType() | inspect.ListType():
            yield f"{owner}.{field}", True
            yield from texts_and_lists(info.item_type, owner, field, seen)
        case inspect.TupleType():
            for item in info.item_types:
                yield from texts_and_lists(item, owner, field, seen)
        case inspect.DictType():
            yield f"{owner}.{field}", True
            for part in (info.key_type, info.value_type):
                yield from texts_and_lists(part, owner, field, seen)
        case inspect.StrType():
            yield f"{owner}.{field}", False


def body_with(kind: inspect.Type, path: Path, value: object) -> object:
    """A plain body that holds `value` at the path, and nothing else that may be left out."""
    if not path:
        return value
    while isinstance(kind, inspect.UnionType):
        fitting = [part for part in kind.types if not isinstance(part, inspect.NoneType | inspect.StrType)]
        structs = [part for part in fitting if isinstance(part, inspect.StructType)]
        kind = next((part for part in structs if any(one.name == path[0] for one in part.fields)), fitting[0])
    first, rest = path[0], path[1:]
    if isinstance(kind, inspect.StructType):
        if kind.array_like:
            assert isinstance(first, int)
            before = [_blank(one.type) for one in kind.fields[:first]]
            return [*before, body_with(kind.fields[first].type, rest, value)]
        (field,) = (one for one in kind.fields if one.name == first)
        tag = {} if kind.tag is None else {kind.tag_field or "type": kind.tag}
        return {**tag, str(first): body_with(field.type, rest, value)}
    if isinstance(kind, inspect.TupleType):
        assert isinstance(first, int)
        items = [_blank(item) for item in kind.item_types]
        items[first] = body_with(kind.item_types[first], rest, value)
        return items
    if isinstance(kind, inspect.DictType):
        return {first: body_with(kind.value_type, rest, value)}
    assert isinstance(kind, inspect.VarTupleType | inspect.ListType)
    return [body_with(kind.item_type, rest, value)]


def _blank(kind: inspect.Type) -> object:
    match kind:
        case inspect.StrType():
            return ""
        case inspect.IntType() | inspect.FloatType():
            return 0
        case inspect.BytesType():
            return b""
        case inspect.VarTupleType() | inspect.ListType():
            return []
        case inspect.StructType():
            return {}
    return None


def decoded(request: Struct) -> Struct:
    """As a daemon takes it."""
    envelope = decode_envelope(encode_request(1, request)[PREFIX_BYTES:])
    assert isinstance(envelope, Request)
    return DECODER.decode(envelope)


def refusal(request: Struct) -> str:
    with pytest.raises(BadRequest) as refused:
        decoded(request)
    too_long = refused.value.code == "ESLURM_PATHNAME_TOO_LONG"
    assert too_long or refused.value.code == "SLURM_UNEXPECTED_MSG_ERROR"
    return refused.value.hint if too_long else refused.value.message


def test_every_number_of_a_request_has_a_range_and_every_range_a_number() -> None:
    names = {name for kind in ALL for _path, name, _type in numbers(inspect.type_info(kind), "", "")}
    without = sorted(name for name in names if not {name, name.partition(".")[2]} & bounds.NUMBERS.keys())
    assert not without, "give each a range in model.bounds"
    known = names | {name.partition(".")[2] for name in names}
    changed = {name for kind, _more in bounds.CHANGES.values() for name in kind.__struct_fields__}
    assert not bounds.NUMBERS.keys() - known - changed, "no request has these"


@pytest.mark.parametrize(("is_list", "table"), [(False, bounds.TEXTS), (True, bounds.LISTS)], ids=["texts", "lists"])
def test_every_text_and_list_of_a_request_has_a_bound_and_every_bound_one(
    is_list: bool, table: dict[str, Meta]
) -> None:
    found = {item for kind in ALL for item in texts_and_lists(inspect.type_info(kind), "", "", set())}
    names = {name for name, of_list in found if of_list is is_list}
    without = sorted(name for name in names if not {name, name.partition(".")[2]} & table.keys())
    assert not without, "give each a bound in model.bounds"
    known = names | {name.partition(".")[2] for name in names}
    assert not table.keys() - known, "no request has these"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_numbers_out_of_range_are_refused_wherever_they_stand(kind: type[Struct]) -> None:
    info = inspect.type_info(kind)
    for path, name, number in numbers(info, "", ""):
        odd: list[object] = [2**64 - 1]
        if isinstance(number, inspect.FloatType):
            odd += [float("nan"), float("inf"), -float("inf"), 1e300]
        for value in odd:
            request = Request(id=1, kind=kind.__name__, body=Raw(msgpack.encode(body_with(info, path, value))))
            with pytest.raises(BadRequest, match="Expected `(int|float)` [<>]="):
                print(name, value, DECODER.decode(request))


@pytest.mark.parametrize(
    "field",
    ["gid", "nodes_max", "switches", "segment", "time_limit_minutes", "priority", "umask", "cpus_per_task", "tmp_mib"],
)
def test_a_job_with_a_number_out_of_range_is_refused_by_its_name(field: str) -> None:
    for value in (2**64 - 1, -(2**63)):
        message = refusal(SubmitJob(spec=replace(JobSpec(), **{field: value}), script=b"#!"))
        assert message.startswith("Unexpected message received: bad SubmitJob: Expected `int` ")
        assert message.endswith(f"at `$.spec.{field}`")


@pytest.mark.parametrize(
    "request_",
    [
        UpdateJob(target=JobTarget(1), changes={"priority": 2**64 - 1}),
        UpdateJob(target=JobTarget(1), changes={"end_at": float("inf")}),
        UpdateJob(target=JobTarget(1), changes={"dependencies": [{"kind": "afterok", "job_id": -1}]}),
        UpdateNode(names=("n1",), changes={"weight": 2**40}),
        UpdatePartition(name="p", changes={"max_nodes": -1}),
    ],
    ids=repr,
)
def test_changes_have_the_ranges_of_what_they_change(request_: Struct) -> None:
    assert "at `$.changes." in refusal(request_)


@pytest.mark.parametrize("text", ["g", "0x1f", "-1", "1 ", "1\n", "f" * 1_000_002])
def test_tasks_of_an_array_are_a_mask_in_hexadecimal(text: str) -> None:
    message = refusal(CancelJobs(filter=JobFilter(targets=(JobTarget(1, text),))))
    assert message.endswith("filter.targets[0].tasks`")


def test_lists_have_an_end() -> None:
    names = tuple(map(str, range(2**16 + 1)))
    assert "length <= 65536" in refusal(ListJobs(filter=JobFilter(names=names)))


@pytest.mark.parametrize(
    ("field", "value", "most"),
    [("command", "x" * 3_000_000, 131_072), ("export", "x" * 131_073, 131_072), ("submit_host", "x" * 1025, 1024)],
)
def test_a_text_that_is_too_long_is_refused_in_slurms_words(field: str, value: str, most: int) -> None:
    with pytest.raises(BadRequest) as refused:
        decoded(SubmitJob(spec=replace(JobSpec(), **{field: value})))
    assert refused.value.code == "ESLURM_PATHNAME_TOO_LONG"
    assert refused.value.message == "Pathname of a file, directory or other parameter too long"
    assert refused.value.hint == f"at most {most} characters are allowed at `spec.{field}`"


@pytest.mark.parametrize("field", ["operating_system", "hostname", "extra"])
def test_a_node_cannot_fill_the_journal_with_what_it_says_of_itself(field: str) -> None:
    node = RegisterNode(name="n1", capacity=NodeCapacity(), booted_at=1.0, daemon_started_at=1.0, version="25.05.0")
    assert "at most 65536" in refusal(replace(node, **{field: "x" * 65_537}))


@pytest.mark.parametrize(
    "request_",
    [
        SubmitJob(spec=JobSpec()),
        SubmitJob(
            spec=JobSpec(
                uid=0xFFFFFFFE,
                time_limit_minutes=INFINITE,
                nice=-2_147_483_645,
                end_signal=EndSignal(signal=0xFFFF, seconds=0xFFFF),
                limits=(ResourceLimit("CORE", -1), ResourceLimit("FSIZE", 2**63 - 1)),
                dependencies=(Dependency(kind="after", job_id=7, minutes=3),),
            )
        ),
        CreateStep(job_id=1, spec=StepSpec(limits=(("CORE", -1),), end_signal=(10, 60))),
        CancelJobs(filter=JobFilter(targets=(JobTarget(0xFFFFFFFF, "ff", STEP_BATCH),)), signal=64),
        UpdateJob(target=JobTarget(1), changes={"array_limit": 0, "hold": True, "time_limit_minutes": None}),
    ],
    ids=lambda request: type(request).__name__,
)
def test_what_commands_send_is_within_its_range(request_: Struct) -> None:
    assert msgpack.encode(decoded(request_)) == msgpack.encode(request_)


def test_a_record_from_before_there_were_ranges_is_read_and_handed_on() -> None:
    job = Job(id=1, spec=JobSpec(gid=2**64 - 1, nodes_max=2**64 - 1, cpus_per_task=-(2**63)))
    group = Group(first=1, last=1, payload=encode_events([JobQueued(at=1.0, job=job)]), at=1.0)
    (event,) = decode_group(group)
    assert event == JobQueued(at=1.0, job=job)
    order = LaunchProlog(term=1, node="n1", job=job)
    assert decoded(order) == order
