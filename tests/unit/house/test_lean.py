"""Commands load msgspec without what they do not use, and everything of ours works with it all the same."""

from __future__ import annotations

import subprocess
import sys


def printed(program: str) -> str:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=100)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_msgspec_is_loaded_without_its_costly_companions() -> None:
    program = """
import sys
from spritz.lean import load_msgspec
assert load_msgspec()
assert not load_msgspec()
import spritz.client.sync, spritz.client.locate
print(sorted({"typing_extensions", "inspect", "uuid", "decimal", "platform", "msgspec.json"} & set(sys.modules)))
"""
    assert printed(program) == "[]"


def test_the_real_modules_can_be_imported_afterwards() -> None:
    program = """
from spritz.lean import load_msgspec
assert load_msgspec()
import decimal, uuid, typing_extensions, inspect, msgspec, msgspec.json, msgspec.inspect, msgspec.structs
print(decimal.Decimal("1.5") + 1, uuid.UUID(int=1), typing_extensions.Self is not None)
class Point(msgspec.Struct, frozen=True):
    x: int = msgspec.field(default=3, name="X")
    y: list[int] = msgspec.field(default_factory=list)
print(msgspec.json.encode(Point(x=5)), msgspec.structs.replace(Point(), x=1), msgspec.structs.asdict(Point()))
print([field.encode_name for field in msgspec.structs.fields(Point)], hasattr(msgspec.structs, "nothing"))
"""
    assert printed(program).splitlines() == [
        "2.5 00000000-0000-0000-0000-000000000001 True",
        """b'{"X":5,"y":[]}' Point(x=1, y=[]) {'x': 3, 'y': []}""",
        "['X', 'y'] False",
    ]


def test_every_record_of_the_model_is_encoded_and_decoded_as_with_the_whole_of_msgspec() -> None:
    program = """
import sys
if sys.argv[1:] != ["whole"]:
    from spritz.lean import load_msgspec
    assert load_msgspec()
import importlib, pkgutil
import spritz.model
from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder
for found in sorted(pkgutil.walk_packages(spritz.model.__path__, "spritz.model."), key=lambda found: found.name):
    module = importlib.import_module(found.name)
    for name, value in sorted(vars(module).items()):
        if isinstance(value, type) and issubclass(value, Struct) and value.__module__ == module.__name__:
            try:
                blank = value()
            except TypeError:
                blank = None
                Decoder(value)
            if blank is not None:
                assert Decoder(value).decode(Encoder().encode(blank)) == blank
            print(name, end=" ")
"""
    lean = printed(program)
    whole = printed(program.replace('sys.argv[1:] != ["whole"]', "False"))
    assert lean == whole
    assert len(lean.split()) > 10


def test_another_msgspec_than_expected_is_imported_as_usual() -> None:
    program = """
import sys
import _frozen_importlib_external as finder
real = finder.PathFinder.find_spec
finder.PathFinder.find_spec = lambda name, *rest: None if name == "msgspec" else real(name, *rest)
from spritz.lean import load_msgspec
assert not load_msgspec()
finder.PathFinder.find_spec = real
import msgspec
print(msgspec.json.encode([1]))
"""
    assert printed(program) == "b'[1]'"


def test_a_journals_events_are_read_by_commands_too() -> None:
    """`spritz simulate` of a state directory."""
    program = """
from spritz.lean import load_msgspec
assert load_msgspec()
from spritz.controller.events import decode_group
from spritz.controller.journal import Group
from spritz.model.events.codec import encode_events
from spritz.model.events.job import JobsPurged
from msgspec import msgpack
events = [JobsPurged(at=1.0, job_ids=(7,))]
for payload in (encode_events(events), msgpack.encode(events)):
    print(decode_group(Group(first=1, last=1, payload=payload, at=1.0)))
"""
    assert printed(program).count("JobsPurged") == 2, "also those of the first format"
