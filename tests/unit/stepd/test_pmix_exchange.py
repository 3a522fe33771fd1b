"""PMIx servers of several nodes and the client between them, without library and sockets."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from spritz.cli.jobs.launch.listener import Link
from spritz.cli.jobs.launch.pmix import PmixHub
from spritz.stepd import protocol
from spritz.stepd.pmix import messages
from spritz.stepd.pmix.binding import ERR_DUPLICATE_KEY, ERR_NOT_FOUND, ERR_PARTIAL_SUCCESS, SUCCESS, WILDCARD
from spritz.stepd.pmix.exchange import Exchange
from spritz.stepd.spec import Pmix

if TYPE_CHECKING:
    from spritz.stepd.pmix.server import Reply

RANKS = ((0, 1), (2, 3), (4,))


class Step:
    """Three nodes. What their servers send is carried when `carry` is called."""

    def __init__(self, ranks: tuple[tuple[int, ...], ...] = RANKS) -> None:
        self._wires: list[tuple[int, bytes]] = []
        self.links = [self._link(node) for node in range(len(ranks))]
        self.hub = PmixHub(lambda: cast(list[Link], self.links))
        self.nodes = [
            Exchange(
                Pmix("space", ("a", "b", "c"), ranks, node, 8),
                lambda message, node=node: self._wires.append((node, messages.frames(message))),  # type: ignore[misc]
                lambda rank, reply: reply(SUCCESS, b"put by %d" % rank),
            )
            for node in range(len(ranks))
        ]
        #: (what, status, data) in the order of arrival
        self.ends: list[tuple[str, int, bytes]] = []

    def _link(self, node: int) -> SimpleNamespace:
        assembler = messages.Assembler()

        def send(data: bytes) -> None:
            for kind, task, payload in protocol.Decoder().feed(data):
                assert kind == protocol.PMIX
                message = assembler.feed(payload, last=task == protocol.ALL_TASKS)
                if message is not None:
                    self.nodes[node].take(message)

        return SimpleNamespace(rank=node, hello=True, closed=False, send=send)

    def carry(self) -> None:
        while self._wires:
            node, data = self._wires.pop(0)
            for _kind, task, payload in protocol.Decoder().feed(data):
                self.hub.take(cast(Link, self.links[node]), payload, last=task == protocol.ALL_TASKS)

    def end(self, what: str) -> Reply:
        return lambda status, data: self.ends.append((what, status, data))


def test_everybody_has_everybodys_data_in_order_of_nodes_once_all_have_come() -> None:
    step = Step()
    for node in (2, 0):
        step.nodes[node].collect(b"fence", (WILDCARD,), b"<%d>" % node, step.end(f"{node}"))
    step.carry()
    assert step.ends == []
    step.nodes[1].collect(b"fence", (WILDCARD,), b"<1>", step.end("1"))
    step.carry()
    assert sorted(step.ends) == [(f"{node}", SUCCESS, b"<0><1><2>") for node in range(3)]


def test_collectives_of_other_tasks_or_another_kind_are_others() -> None:
    step = Step()
    step.nodes[0].collect(b"fence", (0, 2), b"x", step.end("fence 0"))
    step.nodes[1].collect(b"connect", (0, 2), b"", step.end("connect 1"))
    step.nodes[1].collect(b"fence", (1, 2), b"y", step.end("other 1"))
    step.carry()
    assert step.ends == []
    step.nodes[1].collect(b"fence", (0, 2), b"z", step.end("fence 1"))
    step.carry()
    assert sorted(step.ends) == [("fence 0", SUCCESS, b"xz"), ("fence 1", SUCCESS, b"xz")]


def test_the_same_tasks_meet_again_with_new_data() -> None:
    step = Step()
    for turn in (b"1", b"2"):
        for node in range(3):
            step.nodes[node].collect(b"fence", (WILDCARD,), turn, step.end("end"))
        step.carry()
    assert [data for _, _, data in step.ends] == [b"111"] * 3 + [b"222"] * 3


def test_tasks_of_one_node_need_no_other_node() -> None:
    step = Step()
    step.nodes[1].collect(b"fence", (2, 3), b"own", step.end("end"))
    assert step.ends == [("end", SUCCESS, b"own")]


def test_large_data_comes_whole() -> None:
    step = Step()
    large = bytes(range(256)) * 8192
    for node in range(3):
        step.nodes[node].collect(b"fence", (WILDCARD,), large, step.end("end"))
    step.carry()
    assert [data == large * 3 for _, _, data in step.ends] == [True] * 3


@pytest.mark.parametrize(("rank", "found"), [(3, (SUCCESS, b"put by 3")), (0, (SUCCESS, b"put by 0"))])
def test_what_a_task_has_put_is_fetched_from_its_node(rank: int, found: tuple[int, bytes]) -> None:
    step = Step()
    step.nodes[0].fetch(rank, step.end("end"))
    step.carry()
    assert step.ends == [("end", *found)]


def test_ranks_that_there_are_not_are_not_found() -> None:
    step = Step()
    step.nodes[0].fetch(77, step.end("fetch"))
    step.nodes[0].collect(b"fence", (0, 77), b"", step.end("fence"))
    assert step.ends == [("fetch", ERR_NOT_FOUND, b""), ("fence", ERR_NOT_FOUND, b"")]


def test_what_a_node_is_asked_that_has_ended_is_not_found() -> None:
    step = Step()
    step.nodes[0].look_up((b"never",), 1, step.end("own"))
    step.nodes[1].fetch(4, step.end("late"))
    step.links[2].closed = True
    step.carry()
    assert step.ends == [("late", ERR_NOT_FOUND, b"")]
    step.nodes[2].look_up((b"never",), 1, step.end("waits"))
    step.links[2].closed = False
    step.carry()
    step.links[0].closed = True
    step.hub.ended(0)
    assert step.ends[1:] == [("waits", ERR_NOT_FOUND, b"")]


def found(*entries: tuple[int, bytes, bytes]) -> bytes:
    return messages.encode_published(list(entries))


def test_what_one_task_publishes_another_looks_up_wherever_it_is() -> None:
    step = Step()
    for node in range(3):
        step.nodes[node].look_up((b"port",), 0, step.end("now"))
        step.nodes[node].look_up((b"port",), 1, step.end("waits"))
    step.carry()
    assert step.ends == [("now", ERR_NOT_FOUND, found())] * 3
    step.ends.clear()
    step.nodes[2].publish(4, ((b"port", b"17"),), step.end("published"))
    step.carry()
    assert sorted(step.ends) == [("published", SUCCESS, b"")] + [("waits", SUCCESS, found((4, b"port", b"17")))] * 3


def test_a_key_is_published_once_and_forgotten_by_its_publisher() -> None:
    step = Step()
    step.nodes[0].publish(0, ((b"a", b"1"), (b"b", b"2")), step.end("first"))
    step.nodes[1].publish(2, ((b"c", b"3"), (b"a", b"4")), step.end("second"))
    step.nodes[1].unpublish(2, (b"a",), step.end("not its own"))
    step.carry()
    step.nodes[1].look_up((b"a", b"c"), 0, step.end("some"))
    step.carry()
    step.nodes[0].unpublish(0, (), step.end("all"))
    step.carry()
    step.nodes[1].look_up((b"a", b"b"), 0, step.end("none"))
    step.carry()
    assert {what: (status, data) for what, status, data in step.ends} == {
        "first": (SUCCESS, b""),
        "second": (ERR_DUPLICATE_KEY, b""),
        "not its own": (SUCCESS, b""),
        "some": (ERR_PARTIAL_SUCCESS, found((0, b"a", b"1"))),
        "all": (SUCCESS, b""),
        "none": (ERR_NOT_FOUND, found()),
    }


@pytest.mark.parametrize(
    "decode",
    [
        lambda: messages.Assembler().feed(b"\xc1", last=True),
        lambda: messages.Assembler().feed(b"\x93\x01\x02\x03", last=True),
        lambda: messages.decode_body(b"nonsense"),
    ],
)
def test_what_is_no_message_is_refused(decode: Callable[[], object]) -> None:
    with pytest.raises(protocol.ProtocolError):
        decode()
