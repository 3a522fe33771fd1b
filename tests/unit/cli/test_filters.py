"""CliFilterPlugins: defaults, options changed and refused, what is told afterwards. Lines as of Slurm 22.05."""

from __future__ import annotations

import io
import json
import syslog
from pathlib import Path

import pytest

from spritz.cli.call.context import Context
from spritz.cli.jobs.filters import defaults, filters_of
from spritz.cli.jobs.filters.chain import Filters
from spritz.cli.sbatch import OPTIONS
from spritz.model.errors import SpritzError

LUA = """
function slurm_cli_setup_defaults(options, early)
  options['comment'] = "default"
  return slurm.SUCCESS
end
function slurm_cli_pre_submit(options, offset)
  if options['job-name'] == "no" then slurm.log_error("not %s", "so"); return slurm.ERROR end
  if options['job-name'] == "boom" then local x; return x.y end
  if options['job-name'] == "bad" then options['frobnicate'] = "1" end
  slurm.log_info("%s %s %s %s", options.argv[1], tostring(options.time), tostring(options.exclusive), options.type)
  options.time = "5"; options.hold = "set"; options.qos = nil
  slurm.cli_store(offset, slurm.json_cli_options(options))
  return slurm.SUCCESS
end
function slurm_cli_post_submit(offset, jobid, stepid)
  slurm.log_info("post %d %d %d %s", offset, jobid, stepid, slurm.cli_retrieve(offset) .. slurm.json_env())
  return slurm.SUCCESS
end
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with slurm.conf, which names no filters yet."""
    (tmp_path / "slurm.conf").write_text("ClusterName=lab\nSlurmctldHost=localhost\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    return tmp_path


def context() -> Context:
    return Context("sbatch", {"A": "b", "SLURM_X": "y"}, "/w", io.StringIO(), io.StringIO(), io.StringIO())


def configured(site: Path, names: str, script: str = LUA) -> tuple[Filters, Context]:
    with open(site / "slurm.conf", "a") as file:
        file.write(f"CliFilterPlugins={names}\n")
    (site / "cli_filter.lua").write_text(script)
    here = context()
    found = filters_of("sbatch", OPTIONS, here)
    assert found is not None
    return found, here


def said(here: Context) -> str:
    assert isinstance(here.stderr, io.StringIO)
    return here.stderr.getvalue()


def test_without_filters_there_is_nothing(site: Path) -> None:
    assert filters_of("sbatch", OPTIONS, context()) is None


def test_a_script_gives_defaults_and_changes_options(site: Path) -> None:
    chain, here = configured(site, "cli_filter/lua")
    assert chain.defaults() == {"comment": "default"}
    given = chain.before({"job-name": "x", "qos": "q", "exclusive": ""}, ("/w/j.sh", "a"))
    assert given == {"job-name": "x", "exclusive": "", "time": "5", "hold": ""}
    chain.after(7)
    first, second = said(here).splitlines()
    assert first == "sbatch: lua: /w/j.sh nil exclusive sbatch"
    before, _, after = second.partition("{")
    assert before == "sbatch: lua: post 0 7 4294967294 "
    options, _, environment = after.rpartition("{")
    assert json.loads("{" + options)["argv"] == ["/w/j.sh", "a"]
    assert json.loads("{" + environment) == {"A": "b"}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("no", ""),
        ("boom", "cli_filter/lua: cli_filter.lua:8: attempt to index a nil value (local 'x')"),
        ("bad", "cli_filter/lua: cli_filter.lua:9: sbatch has no option --frobnicate"),
    ],
)
def test_a_script_that_refuses_or_fails_ends_the_command(site: Path, name: str, line: str) -> None:
    chain, here = configured(site, "lua")
    with pytest.raises(SpritzError, match="^cli_filter plugin terminated with error$") as caught:
        chain.before({"job-name": name}, ())
    assert caught.value.details == ((line,) if line else ())
    assert said(here) == ("sbatch: error: lua: not so\n" if name == "no" else "")


def test_a_filter_that_cannot_be_used_is_told(site: Path) -> None:
    with pytest.raises(SpritzError) as caught:
        configured(site, "lua", "function (")
    assert caught.value.details[0].startswith("cli_filter/lua: cli_filter.lua:1: ")
    with pytest.raises(SpritzError, match="cannot create cli_filter context for nosuch"):
        configured(site, "nosuch")


def test_defaults_of_a_user_are_for_commands_and_clusters() -> None:
    text = """
    # a comment = 1
    time = 60
    sbatch:*:mail-type = FAIL
    srun:lab:pty = set
    *:other:qos = x
    lab:account=mine
    nonsense:*:time = 1
    no sign
    """
    found = list(defaults.read(text, "sbatch", "lab"))
    assert found == [
        ("time", "60", ""),
        ("mail-type", "FAIL", ""),
        ("account", "mine", ""),
        ("", "", 'Unknown command "nonsense" in ~/.slurm/defaults, line 8'),
    ]


def test_defaults_of_a_user_reach_the_options(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = site / "defaults"
    monkeypatch.setattr(defaults, "path_of_user", lambda: str(path))
    chain, _here = configured(site, "user_defaults")
    assert chain.defaults() == {}
    path.write_text("time = 60\nexclusive = set\npty = set\n")  # the last one is srun's
    assert chain.defaults() == {"time": "60", "exclusive": "set"}


def test_syslog_has_options_and_environment_of_each_submission(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(syslog, "syslog", lambda priority, text: lines.append(text))
    chain, _here = configured(site, "syslog")
    assert chain.before({"time": "5"}, ("j.sh",)) == {"time": "5"}
    chain.after(9, 0)
    (line,) = lines
    assert json.loads(line.removeprefix("post_submit: ")) == {
        "jobid": 9,
        "stepid": 0,
        "options": {"time": "5", "argv": ["j.sh"]},
        "env": {"A": "b"},
    }


def test_the_script_may_lie_elsewhere(site: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "scripts" / "filter.lua"
    elsewhere.parent.mkdir()
    elsewhere.write_text(LUA.replace('"default"', '"elsewhere"'))
    (site / "slurm.conf").write_text(
        f"ClusterName=lab\nSlurmctldHost=localhost\nCliFilterParameters=cli_filter_lua_path={elsewhere}\n"
    )
    chain, _ = configured(site, "lua")
    assert chain.defaults() == {"comment": "elsewhere"}
