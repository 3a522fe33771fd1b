"""Configuration files: no text crashes the reader, and what is written reads back as the same values."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spritz.config import gres, typed
from spritz.config.diagnostics import Diagnostics, report
from spritz.config.grammar import Token, lines, tokens
from spritz.config.kinds import Value
from spritz.config.load import examine
from spritz.config.render import quoted, slurm_conf, whole
from spritz.config.schema import record_keys, slurm_keys

_NAMES = sorted(
    {key.name for key in slurm_keys().values()}
    | {key.name for table in record_keys().values() for key in table.values()}
    | {"Include", "Nonsense", "killwait", "SlurmctldProt", "ControlMachine", "FrontendName"}
)
_VALUES = st.one_of(
    st.sampled_from(
        [
            *("DEFAULT", "ALL", "NO", "YES", "-1", "0", "65536", "UNLIMITED", "n[1-3]", "n[1-", "gpu:2", "1-2:03:04"),
            *("a,b", "%c", "", '"x y"', "/tmp", "x(y)", "FORCE:3", "CR_Core", "none", "[7-9]", "bf_window=3", "1.5"),
        ]
    ),
    st.integers(-(2**70), 2**70).map(str),
    st.text(max_size=20),
)
_EQUALS = st.sampled_from(["=", " = ", "+=", " ", ""])
_ENDS = st.sampled_from([" ", "\n", "\\\n", "#"])
_SOUP = st.lists(st.tuples(st.sampled_from(_NAMES), _EQUALS, _VALUES, _ENDS).map("".join), max_size=40).map("".join)
_GRES_NAMES = st.sampled_from(
    ["Name", "Type", "File", "Count", "Cores", "Links", "Flags", "AutoDetect", "NodeName", "MultipleFiles"]
)
_QUICK = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


def examined(text: str, gres_text: str = "", cgroup_text: str = "") -> str:
    """Examine a configuration and report on it; the report."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        for file, content in (("slurm", text), ("gres", gres_text), ("cgroup", cgroup_text)):
            (directory / f"{file}.conf").write_bytes(content.encode("utf-8", "surrogatepass"))
        config, diagnostics = examine(str(directory / "slurm.conf"))
        assert (config is None) == any(item.severity == "error" for item in diagnostics)
        if config is not None:
            whole(config)
        return report(diagnostics, color=True)


@_QUICK
@given(_SOUP)
def test_no_soup_of_keys_crashes_the_reader(soup: str) -> None:
    examined("ClusterName=c\nSlurmctldHost=h\nNodeName=a[1-3]\nPartitionName=p Nodes=ALL\n" + soup)


@_QUICK
@given(st.text(max_size=200), st.text(max_size=100), st.text(max_size=100))
def test_no_text_at_all_crashes_the_reader(text: str, gres_text: str, cgroup_text: str) -> None:
    examined(text, gres_text, cgroup_text)


@_QUICK
@given(st.lists(st.tuples(_GRES_NAMES, _VALUES).map("=".join), max_size=8).map(" ".join))
def test_no_line_of_gres_conf_crashes_the_reader(text: str) -> None:
    gres.read(lines(text, "gres.conf"), Diagnostics())
    examined("ClusterName=c\nSlurmctldHost=h\nGresTypes=gpu\nNodeName=n1 Gres=gpu:2\nPartitionName=p Nodes=n1\n", text)


@_QUICK
@given(st.text(max_size=40))
def test_a_value_that_can_be_written_reads_back(value: str) -> None:
    try:
        written = quoted(value)
    except ValueError:
        assume(False)
    (line,) = lines(f"Key={written} Next=1", "f")
    first, second = tokens(line)
    assert isinstance(first, Token)
    assert isinstance(second, Token)
    assert (first.value, second.key) == (value, "Next")


_TEXTS = ("1", "7", "YES", "3-5", "10:00", "2-0", "/a b/%n", "a=1,b=2", "name", "UNLIMITED", "x(1.2.3.4)")


def _values_of(name: str) -> st.SearchStrategy[Value]:
    """Values that this key can hold, drawn from what its kind makes of many texts."""
    kind = slurm_keys()[name.lower()].kind
    found: list[Value] = []
    for text in (*kind.words, *_TEXTS):
        try:
            value = kind.parse(text)
        except ValueError:
            continue
        if value not in (None, "", ()):
            found.append(value)
    return st.sampled_from(found)


_SINGLE = sorted({key.name for key in slurm_keys().values()} - {"SlurmctldHost"})
_SETTINGS = (
    st.lists(st.sampled_from(_SINGLE), unique=True, max_size=12)
    .map(lambda names: {name: _values_of(name) for name in names})
    .flatmap(st.fixed_dictionaries)
)


@_QUICK
@given(_SETTINGS)
def test_settings_that_are_written_read_back_as_the_same_values(values: dict[str, Value]) -> None:
    diagnostics = Diagnostics()
    parsed = typed.read(lines(slurm_conf(values), "f"), diagnostics)
    assert diagnostics.errors == ()
    assert parsed.settings.values == values
