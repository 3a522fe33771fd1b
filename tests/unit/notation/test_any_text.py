"""Every parser answers any text, or refuses it with one short printable line, in time linear in its length."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC

import pytest

from spritz.notation import (
    dependency,
    duration,
    features,
    filename,
    getopt,
    gres,
    hostlist,
    jobid,
    memory,
    names,
    nodecount,
    ranges,
    signals,
    times,
    tres,
)
from spritz.notation.errors import NotationError, shown
from spritz.notation.layout import cpubind, distribution, taskcounts
from spritz.notation.lines import multiprog, shell

TABLE = getopt.Options([getopt.Option("nodes", "N", getopt.REQUIRED), getopt.Option("name", "J", getopt.REQUIRED)])

PARSERS: dict[str, Callable[[str], object]] = {
    "hostlist": hostlist.expand,
    "hostlist.compress": lambda text: hostlist.compress(text.split(",")),
    "hostlist.sort": lambda text: hostlist.sort(text.split(",")),
    "array": ranges.parse_array,
    "ids": ranges.parse_ids,
    "duration": duration.parse_minutes,
    "memory": memory.parse_mib,
    "times": lambda text: times.parse_time(text, 1.8e9, UTC),
    "tres": tres.parse,
    "gres": gres.parse,
    "gpus": gres.parse_gpus,
    "jobid": jobid.parse,
    "jobid.list": jobid.parse_list,
    "features": features.parse,
    "dependency": dependency.parse,
    "signal": signals.parse_signal,
    "signal option": signals.parse_signal_option,
    "node count": nodecount.parse_node_count,
    "count": lambda text: nodecount.parse_count(text, "--ntasks", suffix=True),
    "signed": lambda text: nodecount.parse_signed(text, "--nice", minimum=-5, maximum=5),
    "-B": nodecount.parse_extra_node_info,
    "filename": lambda text: filename.expand(text, {"j": 1}),
    "taskcounts": taskcounts.parse,
    "distribution": distribution.parse,
    "cpu-bind": cpubind.parse_cpu_bind,
    "mem-bind": cpubind.parse_mem_bind,
    "gpu-bind": cpubind.parse_gpu_bind,
    "words": shell.split_words,
    "script": shell.option_lines,
    "script problem": lambda text: shell.script_problem(text.encode(errors="surrogateescape")),
    "multi-prog": lambda text: multiprog.parse(text, "f", None),
    "multi-prog command": lambda text: multiprog.parse("0 " + text, "f", None)[0][0].command(0),
    "getopt": lambda text: getopt.parse(["--" + text, text], TABLE),
    "nearest": lambda text: names.nearest(text, ["gpu", text[:70]]),
    "bitstr": ranges.bitstr_length,
}

UNITS = [
    *"09aZ-_=+:;,.*%@!?&|()[]<>#'\"\\/ \t\n\r\0",
    "1,",
    "1-2,",
    "1:",
    "1-",
    "a&",
    "(",
    "(a|b)&",
    "[a]",
    "[1-2]",
    "n[1-2],",
    "afterok:1,",
    ":1",
    "1(x2),",
    "gpu:1,",
    "cpu=1,",
    "0x",
    "a,map_cpu:1,",
    "mask_cpu:f,",
    "%9j",
    "%",
    "a ",
    '" ',
    "#SBATCH\n",
    "#SBATCH -N1\n",
    "no",
    "now",
    "now+1",
    "today",
    "10:00 ",
    "1*2,",
    "n1,",
    "n01x,",
    "\udcff",
    "é",
    "٣",
    "\U0001f600",
    "\u2028",
]


def answer(parser: Callable[[str], object], text: str) -> str | None:
    """The message if the text is refused."""
    try:
        parser(text)
    except NotationError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", PARSERS)
def test_short_nonsense_is_answered(name: str) -> None:
    for unit in UNITS:
        for text in (unit, unit * 2, unit * 3, "1" + unit, unit + "1", "a" + unit + "a", "uts" + unit, "gpu:" + unit):
            message = answer(PARSERS[name], text)
            assert message is None or len(message) < 600


@pytest.mark.parametrize("name", PARSERS)
def test_a_hundred_thousand_characters_are_answered_in_linear_time(name: str) -> None:
    """A quadratic pass over them would take many seconds; two are plenty on a busy machine for a linear one."""
    slow = []
    for unit in UNITS:
        text = unit * (100_000 // len(unit))
        start = time.process_time()
        message = answer(PARSERS[name], text)
        seconds = time.process_time() - start
        assert message is None or len(message) < 600, (unit, len(message))
        if seconds > 2:
            slow.append((unit, seconds))
    assert not slow


def test_messages_repeat_input_on_one_printable_line() -> None:
    assert shown("plain") == "plain"
    assert shown("a\nb\0") == "a\\nb\\x00"
    assert shown("\udcff") == "\\udcff"
    assert len(shown("\udcff" * 1000)) == 80
    assert len(shown("x" * 1000)) == 80
    for name, parser in PARSERS.items():
        message = answer(parser, "\x1b[31m\n")
        assert message is None or message.replace("\n", "").isprintable(), name
