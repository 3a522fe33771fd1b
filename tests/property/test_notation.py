"""Notation: what is written reads back, and nothing but a NotationError comes out of any text."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from spritz.notation.dependency import Dependency
from spritz.notation.errors import NotationError
from spritz.notation.features import Constraint, Feature, Group
from spritz.notation.getopt import NONE, OPTIONAL, REQUIRED, Option, Options
from spritz.notation.gres import GresRequest
from spritz.notation.jobid import STEP_BATCH, STEP_EXTERN, STEP_ID_MAX, STEP_INTERACTIVE, JobReference
from spritz.notation.layout import cpubind, distribution, taskcounts
from spritz.notation.layout.distribution import Distribution
from spritz.notation.lines import shell
from spritz.notation.signals import SignalOption

WORD = st.text("abxyz", min_size=1, max_size=4)
HOST = st.from_regex(r"[a-c]{0,2}[0-2]{0,3}(-[a-b]{1,2}|[0-9]{1,3})", fullmatch=True)
IDS = st.sets(st.integers(0, 200), max_size=60)
COUNT = st.integers(1, 1 << 40)


@given(st.lists(HOST, max_size=40))
def test_expand_undoes_compress(hosts: list[str]) -> None:
    assert hostlist.expand(hostlist.compress(hosts)) == hosts


@given(st.lists(HOST, max_size=40))
def test_the_sorted_form_is_the_sorted_set(hosts: list[str]) -> None:
    ordered = hostlist.expand(hostlist.compress_sorted(hosts))
    assert ordered == hostlist.sort(set(hosts))
    assert sorted(ordered) == sorted(set(hosts))


@given(st.lists(HOST, max_size=20))
def test_sorting_does_not_depend_on_the_order_given(hosts: list[str]) -> None:
    shuffled = sorted(hosts, key=lambda name: name[::-1])
    assert hostlist.sort(shuffled) == hostlist.sort(hosts)


@given(IDS)
def test_id_sets_read_back(ids: set[int]) -> None:
    mask = ranges.mask_of(ids)
    assert list(ranges.ids_of(mask)) == sorted(ids)
    assert ranges.parse_ids(ranges.format_ids(ids)) == mask
    assert ranges.parse_ids(ranges.format_array(mask, length=0)) == mask
    assert [i for low, high in ranges.spans_of(mask) for i in range(low, high + 1)] == sorted(ids)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 40))
def test_stepped_ranges_are_pythons(low: int, length: int, step: int) -> None:
    assert ranges.parse_array(f"{low}-{low + length}:{step}").task_ids == list(range(low, low + length + 1, step))


@given(IDS.filter(bool), st.integers(0, 50))
def test_arrays_read_back_with_their_throttle(ids: set[int], throttle: int) -> None:
    spec = ranges.parse_array(ranges.format_array(ids, throttle, length=0))
    assert (spec.task_ids, spec.throttle) == (sorted(ids), throttle)


@given(IDS, st.integers(8, 80))
def test_cut_forms_keep_their_length(ids: set[int], length: int) -> None:
    assert len(ranges.format_array(ids, length=length)) < length


@given(st.integers(0, 10**9))
def test_durations_read_back(seconds: int) -> None:
    assert duration.parse_seconds(duration.format_duration(seconds)) == seconds
    assert duration.parse_seconds(duration.format_elapsed(seconds)) == seconds
    assert duration.parse_minutes(duration.format_minutes(seconds // 60)) == seconds // 60


@given(st.integers(0, 1 << 50))
def test_sizes_read_back_unless_they_show_halves(mib: int) -> None:
    text = memory.format_mib(mib)
    if "." in text:
        assert float(text[:-1]) * 2 == int(float(text[:-1]) * 2)
    else:
        assert memory.parse_mib(text) == mib
    assert memory.parse_mib(memory.format_mib(mib, convert=False)) == mib


@given(st.integers(1_000_000, 4_000_000_000))
def test_times_read_back(epoch: int) -> None:
    assert times.parse_time(times.format_time(epoch, zone=UTC), 0.0, UTC) == epoch
    assert times.parse_time(f"uts{epoch}", 0.0, UTC) == epoch


@given(st.integers(1_000_000_000, 4_000_000_000), st.integers(0, 23), st.integers(0, 59))
def test_a_time_of_day_is_the_next_one(now: int, hour: int, minute: int) -> None:
    when = times.parse_time(f"{hour}:{minute:02}", now, UTC)
    assert now - 60 < when <= now + 86400
    assert datetime.fromtimestamp(when, UTC).strftime("%H:%M") == f"{hour:02}:{minute:02}"


@given(st.dictionaries(st.sampled_from(["cpu", "node", "billing", "gres/gpu", "gres/gpu:a100", "license/x"]), COUNT))
def test_tres_lists_read_back(counts: dict[str, int]) -> None:
    pairs = tuple(counts.items())
    assert tres.parse(tres.format(pairs)) == pairs


REQUESTS = st.lists(
    st.builds(GresRequest, WORD, st.one_of(st.just(""), WORD), COUNT),
    unique_by=lambda request: (request.name, request.type),
)


@given(REQUESTS)
def test_gres_requests_read_back(requests: list[GresRequest]) -> None:
    names = [(":".join(filter(None, (request.name, request.type))), request.count) for request in requests]
    assert gres.parse(",".join(f"gres:{name}:{count}" for name, count in names)) == tuple(requests)
    assert gres.parse(",".join(f"gres/{name}={count}" for name, count in names)) == tuple(requests)


STEPS = st.one_of(st.none(), st.integers(0, STEP_ID_MAX), st.sampled_from([STEP_BATCH, STEP_EXTERN, STEP_INTERACTIVE]))
JOBS = st.integers(1, 0xFFFFFFFD)
REFERENCES = st.one_of(
    st.builds(JobReference, JOBS, component=st.one_of(st.none(), st.integers(0, 999)), step=STEPS),
    st.builds(JobReference, JOBS, IDS.filter(bool).map(ranges.mask_of), step=STEPS, throttle=st.integers(0, 9)),
)


@given(st.lists(REFERENCES, min_size=1, max_size=5))
def test_job_ids_read_back(references: list[JobReference]) -> None:
    texts = [jobid.format(reference, 0) for reference in references]
    assert [jobid.parse(text) for text in texts] == references
    assert jobid.parse_list(",".join(texts)) == references


FEATURE = st.builds(Feature, WORD)
PLAIN_GROUP = st.builds(
    Group, st.sampled_from(["and", "or"]), st.lists(FEATURE, min_size=2, max_size=4).map(tuple), st.just(0)
)


def counted(constraint: Constraint, count: int) -> Constraint:
    return (
        Feature(constraint.name, count)
        if isinstance(constraint, Feature)
        else Group(constraint.kind, constraint.parts, count)
    )


TERM = st.one_of(FEATURE, PLAIN_GROUP)
COUNTED_TERM = st.builds(counted, TERM, st.integers(0, 9))
ONE = st.builds(Group, st.just("one"), st.lists(TERM, min_size=2, max_size=3).map(tuple), st.just(0))
APART = st.builds(
    Group,
    st.just("apart"),
    st.lists(st.builds(counted, TERM, st.integers(1, 9)), min_size=2, max_size=3).map(tuple),
    st.just(0),
)
CONSTRAINT = st.one_of(
    COUNTED_TERM,
    ONE,
    st.builds(
        Group, st.just("and"), st.lists(st.one_of(COUNTED_TERM, ONE), min_size=2, max_size=4).map(tuple), st.just(0)
    ),
    st.builds(Group, st.just("or"), st.lists(TERM, min_size=2, max_size=4).map(tuple), st.just(0)),
    APART,
    st.builds(Group, st.just("and"), st.tuples(TERM, APART), st.just(0)),
)


@given(CONSTRAINT)
def test_constraints_read_back(constraint: Constraint) -> None:
    assert features.parse(features.format(constraint)) == constraint


@given(CONSTRAINT, st.sets(WORD))
def test_a_node_serves_if_it_serves_some_alternative(constraint: Constraint, node: set[str]) -> None:
    choices = features.alternatives(constraint)
    assert constraint.matches(node) == any(choice.matches(node) for choice in choices)


DEPENDENCIES = st.lists(
    st.one_of(
        st.just(Dependency("singleton")),
        st.builds(Dependency, st.just("after"), JOBS, st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 9)),
        st.builds(Dependency, st.sampled_from(["afterok", "aftercorr"]), JOBS, st.one_of(st.none(), st.integers(0, 9))),
    ),
    unique=True,
)


@given(DEPENDENCIES, st.sampled_from(["all", "any"]))
def test_dependencies_read_back(conditions: list[Dependency], mode: str) -> None:
    text = dependency.format(conditions, mode)
    assert dependency.parse(text) == (tuple(conditions), mode if len(conditions) > 1 else "all")


@given(
    st.builds(
        SignalOption,
        st.integers(1, 64).filter(lambda n: n not in (32, 33)),
        st.integers(0, 65535),
        st.booleans(),
        st.booleans(),
    )
)
def test_signal_options_read_back(option: SignalOption) -> None:
    flags = "R" * option.reservation + "B" * option.batch
    text = f"{signals.signal_name(option.number)}@{option.seconds}"
    assert signals.parse_signal_option(f"{flags}:{text}" if flags else text) == option


@given(st.lists(st.integers(0, 99), max_size=50))
def test_counts_per_node_read_back(counts: list[int]) -> None:
    assert taskcounts.parse(taskcounts.format(counts)) == counts


LEVEL = st.sampled_from(["", "block", "cyclic", "fcyclic"])


@given(st.sampled_from(["", "block", "cyclic"]), LEVEL, LEVEL, st.one_of(st.none(), st.booleans()))
def test_distributions_read_back(nodes: str, sockets: str, cores: str, pack: bool | None) -> None:
    value = Distribution(nodes, sockets, cores, pack=pack)
    text = distribution.format(value)
    if text:
        assert distribution.parse(text) == value


@given(
    st.sampled_from(["map_cpu", "mask_cpu", "map_ldom"]),
    st.lists(st.integers(0, 1 << 20), min_size=1).map(tuple),
    st.booleans(),
)
def test_bindings_read_back(kind: str, values: tuple[int, ...], verbose: bool) -> None:
    binding = cpubind.Binding(kind, values, verbose)
    assert cpubind.parse_cpu_bind(cpubind.format(binding)) == binding


@given(st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), min_size=1), max_size=6))
def test_quoted_words_read_back(words: list[str]) -> None:
    quoted = " ".join('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words)
    assert shell.split_words(quoted) == words


@given(st.text("ab%\\", max_size=8))
def test_patterns_without_letters_keep_their_text(pattern: str) -> None:
    expanded = filename.expand(pattern, {})
    assert expanded.replace("%", "") == (pattern.replace("%", "") if "\\" not in pattern else expanded.replace("%", ""))
    if "%%" not in pattern and "\\" not in pattern:
        assert expanded == pattern


TABLE = Options(
    [Option("alpha", "a"), Option("beta", "b", REQUIRED), Option("gamma", "g", OPTIONAL), Option("alps", "", NONE)]
)
VALUE = st.text("xyz=", min_size=1, max_size=3)


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str | None]], list[str]]:
    """A command line, the options in it and the rest."""
    line: list[str] = []
    found: list[tuple[str, str | None]] = []
    rest: list[str] = []
    for _ in range(draw(st.integers(0, 6))):
        match draw(st.integers(0, 7)):
            case 0:
                line.append(draw(st.sampled_from(["-a", "--alpha", "--alph"])))
                found.append(("alpha", None))
            case 1:
                value = draw(VALUE)
                line += draw(st.sampled_from([["-b", value], ["-b" + value], ["--beta", value], ["--b=" + value]]))
                found.append(("beta", value))
            case 2:
                value = draw(VALUE)
                line.append(draw(st.sampled_from(["-g", "--gamma=", "--g="])) + value)
                found.append(("gamma", value))
            case 3:
                line.append(draw(st.sampled_from(["-g", "--gam"])))
                found.append(("gamma", None))
            case 4:
                value = draw(VALUE)
                line.append("-ab" + value)
                found += [("alpha", None), ("beta", value)]
            case _:
                rest.append(draw(VALUE))
                line.append(rest[-1])
    return line, found, rest


@given(command_lines())
def test_command_lines_fall_into_options_and_rest(
    case: tuple[list[str], list[tuple[str, str | None]], list[str]],
) -> None:
    line, found, rest = case
    assert getopt.parse(line, TABLE) == (found, rest)
    assert getopt.parse([*line, "--", "-a"], TABLE) == (found, [*rest, "-a"])


@given(WORD, st.lists(WORD, min_size=1))
def test_a_known_word_is_nearest_to_itself(word: str, others: list[str]) -> None:
    assert names.nearest(word.upper(), [*others, word]) is not None
    assert names.nearest(word, [word]) == word


PARSERS = [
    hostlist.expand,
    ranges.parse_array,
    duration.parse_seconds,
    memory.parse_mib,
    tres.parse,
    gres.parse,
    gres.parse_gpus,
    jobid.parse_list,
    features.parse,
    dependency.parse,
    signals.parse_signal_option,
    nodecount.parse_node_count,
    nodecount.parse_extra_node_info,
    taskcounts.parse,
    distribution.parse,
    cpubind.parse_cpu_bind,
    cpubind.parse_mem_bind,
    cpubind.parse_gpu_bind,
    shell.option_lines,
]
SYNTAX = st.text(st.sampled_from("0123456789:-,[]()%*&|=@+._?/ aAbnkKMGTx#\"'\\\n\udcff٣"), max_size=24)


@pytest.mark.parametrize(
    "parser", PARSERS, ids=lambda parser: parser.__module__.rpartition(".")[2] + "." + parser.__name__
)
def test_any_text_is_answered_or_refused(parser: object) -> None:
    assert callable(parser)

    @given(st.one_of(SYNTAX, st.text()))
    def check(text: str) -> None:
        try:
            parser(text)
        except NotationError as error:
            message = str(error)
        else:
            return
        assert message

    check()


@given(st.one_of(SYNTAX, st.text()))
def test_any_text_as_a_time(text: str) -> None:
    try:
        assert times.parse_time(text, 1.8e9, UTC) >= -62_135_596_800
    except NotationError as error:
        message = str(error)
    else:
        return
    assert message.startswith("Invalid time specification")
