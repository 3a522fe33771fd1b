"""The parts of srun that need no step: labels, ends of tasks, streams, programs, settings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spritz.cli.call.context import Context
from spritz.cli.jobs.launch import programs, request
from spritz.cli.jobs.launch.endings import Endings, describe
from spritz.cli.jobs.launch.settings import Settings
from spritz.cli.jobs.launch.streams.redirection import Streams, open_input, open_output
from spritz.model.errors import SpritzError
from spritz.stepd import protocol
from spritz.stepd.pmix import binding
from spritz.stepd.streams.labels import Labels


def test_labels_are_as_wide_as_the_largest_rank_and_stand_before_each_line() -> None:
    labels = Labels(11)
    assert labels.apply(0, 1, b"a\nb\n\n") == b" 0: a\n 0: b\n 0: \n"
    assert labels.apply(10, 1, b"x\n") == b"10: x\n"


def test_a_line_in_pieces_has_one_label_and_a_last_one_without_end_gets_an_end() -> None:
    labels = Labels(2)
    assert labels.apply(1, 1, b"long") == b"1: long"
    assert labels.apply(1, 1, b" line\nc") == b" line\n1: c"
    assert labels.apply(0, 1, b"other\n") == b"0: other\n"
    assert labels.apply(1, 1, b"") == b"\n"
    assert labels.apply(1, 1, b"") == b""


def endings(tasks: int = 4, *, once: bool = False) -> tuple[Endings, list[str]]:
    said: list[str] = []
    return Endings(tasks, said.append, once=once), said


def test_equal_ends_of_a_node_are_told_together() -> None:
    ends, said = endings()
    for task, node in ((0, "n1"), (1, "n1"), (2, "n1"), (3, "n2")):
        ends.note(node, task, 9 << 8, 0)
    ends.flush()
    assert said == ["n1: tasks 0-2: Exited with exit code 9", "n2: task 3: Exited with exit code 9"]
    assert ends.exit_status() == 9
    assert ends.all_ended


@pytest.mark.parametrize(
    ("statuses", "exit_status"),
    [
        ([0, 0], 0),
        ([3 << 8, 5 << 8, 4 << 8], 5),
        ([3 << 8, 15], 143),
        ([15, 3 << 8], 143),
        ([11, 9], 139),
        ([0x8B], 139),
    ],
)
def test_the_highest_signal_counts_else_the_highest_code(statuses: list[int], exit_status: int) -> None:
    """srun(1) RETURN VALUE."""
    ends, _ = endings()
    for task, status in enumerate(statuses):
        ends.note("n1", task, status, 0)
    assert ends.exit_status() == exit_status


def test_ends_are_worded_as_slurm_words_them() -> None:
    assert describe(9) == "Killed"
    assert describe(11 | 0x80) == "Segmentation fault (core dumped)"
    assert describe(9, protocol.EXIT_OOM) == "Out Of Memory"
    assert describe(255 << 8) == "Exited with exit code 255"


@pytest.mark.parametrize("status", [9, 0, 7 << 8])
def test_out_of_memory_counts_as_exit_code_1_however_the_task_went_on(status: int) -> None:
    """22.05 does so for a task that was killed, and for a shell whose child was."""
    ends, said = endings()
    ends.note("n1", 0, status, protocol.EXIT_OOM)
    ends.flush()
    assert (ends.out_of_memory, ends.exit_status(), said) == (True, 1, ["n1: task 0: Out Of Memory"])


def test_an_end_is_noted_once_and_its_message_once_if_asked() -> None:
    ends, said = endings(once=True)
    ends.note("n1", 0, 256, 0)
    ends.note("n1", 0, 9, 0)
    ends.flush()
    ends.note("n2", 1, 256, 0)
    ends.flush()
    assert said == ["n1: task 0: Exited with exit code 1"]
    assert ends.ended == 2


def test_the_overview_names_every_state() -> None:
    ends, _ = endings()
    ends.started((0, 1, 2, 3))
    ends.note("n1", 1, 0, 0)
    ends.note("n1", 3, 256, 0)
    assert ends.overview() == ["tasks 0,2: running", "task 1: exited", "task 3: exited abnormally"]


@pytest.mark.parametrize(
    ("output", "remote", "own"),
    [("", "", ""), ("all", "", ""), ("none", "none", ""), ("3", "3", ""), ("o-%t", "o-%t", ""), ("o-%2n", "o-%2n", ""),
     ("o-%N", "o-%N", ""), ("o-%j", "", "o-%j"), ("file", "", "file"), ("\\%t", "", "\\%t")],
)  # fmt: skip
def test_files_by_task_or_node_are_the_supervisors_and_others_sruns_own(output: str, remote: str, own: str) -> None:
    streams = Streams({"output": output})
    assert (streams.remote_stdout, streams.stdout_file) == (remote, own)
    assert streams.remote_stderr == remote


def test_standard_error_follows_standard_output_unless_it_has_a_place() -> None:
    assert Streams({"output": "o"}).joined
    apart = Streams({"output": "none", "error": "e"})
    assert (apart.joined, apart.remote_stdout, apart.remote_stderr, apart.stderr_file) == (False, "none", "all", "e")


@pytest.mark.parametrize(
    ("given", "found"),
    [("", ("", "", None)), ("all", ("", "", None)), ("none", ("none", "", None)), ("2", ("2", "", 2)),
     ("in-%t", ("in-%t", "", None)), ("file", ("", "file", None))],
)  # fmt: skip
def test_standard_input_goes_to_all_one_none_or_comes_from_a_file(
    given: str, found: tuple[str, str, int | None]
) -> None:
    streams = Streams({"input": given})
    assert (streams.remote_stdin, streams.stdin_file, streams.stdin_task) == found


def test_own_files_are_opened_where_srun_stands_or_refused_in_its_words(tmp_path: Path) -> None:
    descriptor = open_output(
        "o-%4j", {"j": 7}, stream="stdout", append=False, cwd=str(tmp_path), await_reader=lambda: False
    )
    assert descriptor > 2
    assert (tmp_path / "o-0007").exists()
    with pytest.raises(SpritzError, match="Could not open stdout file: No such file or directory"):
        open_output("no/such", {}, stream="stdout", append=False, cwd=str(tmp_path), await_reader=lambda: False)
    with pytest.raises(SpritzError, match="Could not open stdin file: No such file or directory"):
        open_input("no", {}, cwd=str(tmp_path))
    with pytest.raises(SpritzError, match="Could not open stdin file: .*embedded null"):
        open_input("a\0b", {}, cwd=str(tmp_path))


def test_several_programs_are_laid_out_by_task(tmp_path: Path) -> None:
    (tmp_path / "prog").write_text("# comment\n0 echo zero %t %o\n1-2 echo 'a %t' %o\n* rest %t\n")
    found, total = programs.read_multi_prog("prog", ("more", "%t"), 4, str(tmp_path))
    assert total == 4
    assert found == (
        ("1", ("echo", "zero", "0", "0", "more", "%t")),
        ("2", ("echo", "a %t", "0", "more", "%t")),
        ("4", ("echo", "a %t", "1", "more", "%t")),
        ("8", ("rest", "3", "more", "%t")),
    )


def test_a_wrong_program_file_is_told_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("x echo\n")
    with pytest.raises(SpritzError) as caught:
        programs.read_multi_prog("bad", (), 1, str(tmp_path))
    assert caught.value.details == ("Invalid task range specification (x)",)
    assert caught.value.message == "Line 1 of configuration file bad invalid"
    with pytest.raises(SpritzError, match="Could not open multi_prog config file nosuch"):
        programs.read_multi_prog("nosuch", (), 1, str(tmp_path))


@pytest.mark.parametrize(
    ("given", "default", "kind"),
    [
        ("", "", "none"),
        ("NONE", "pmi2", "none"),
        ("pmi2", "", "pmi2"),
        (None, "mpi/pmi2", "pmi2"),
        (None, "pmix_v2", "none"),
        ("openmpi", "pmi2", "none"),
    ],
)
def test_mpi_is_as_asked_or_as_configured(given: str | None, default: str, kind: str) -> None:
    assert programs.mpi_kind(given, default) == kind


@pytest.mark.parametrize("value", ["x", "cray_shasta", "pmix_v2", "pmix_vx"])
def test_other_mpi_is_refused(value: str) -> None:
    with pytest.raises(SpritzError, match=f"Invalid MPI type '{value}', --mpi=list for acceptable types"):
        programs.mpi_kind(value, "")


@pytest.mark.parametrize(("given", "default"), [("pmix", ""), (None, "pmix"), ("pmix_v4", "none")])
def test_pmix_is_refused_where_there_is_no_library(
    monkeypatch: pytest.MonkeyPatch, given: str | None, default: str
) -> None:
    monkeypatch.setattr(binding, "NAME", "libnosuch.so.2")
    with pytest.raises(SpritzError, match="Invalid MPI type 'pmix") as caught:
        programs.mpi_kind(given, default)
    assert "can not load PMIx library" in caught.value.details[0]
    assert "libpmix2" in caught.value.hint
    assert programs.mpi_list() == "MPI plugin types are...\n\tnone\n\tpmi2\n"


@pytest.mark.parametrize("text", ["", "abc", "-1", "9" * 30])
def test_a_jobid_is_a_number(text: str) -> None:
    with pytest.raises(SpritzError, match="Invalid numeric value .* for --jobid."):
        request.job_id_of({"jobid": text})


def test_options_beat_slurm_conf() -> None:
    configured = {"killonbadexit": "1", "waittime": "60", "killwait": "5", "srunprolog": "/p", "srunepilog": "/e"}
    plain = Settings({}, configured, {})
    assert (plain.kill_on_bad_exit, plain.wait_seconds, plain.kill_wait_seconds) == (True, 60, 5)
    assert (plain.prolog, plain.epilog) == ("/p", "/e")
    given = Settings({"kill-on-bad-exit": "0", "wait": "3", "prolog": "none", "epilog": "mine"}, configured, {})
    assert (given.kill_on_bad_exit, given.wait_seconds, given.prolog, given.epilog) == (False, 3, "", "mine")


def test_a_step_inside_a_job_asks_for_nodes_and_memory_and_one_of_its_own_does_not() -> None:
    fields: dict[str, object] = {"nodes_given": True, "nodes_min": 2, "nodes_max": 2, "memory_mib_per_node": 5}
    assert request.size_fields(fields, inside=True) == {"nodes_min": 2, "nodes_max": 2, "memory_mib_per_node": 5}
    assert request.size_fields(fields, inside=False) == {}


def test_tasks_share_the_gpus_that_they_would_be_bound_to() -> None:
    fields: dict[str, object] = {"gres_flags": ("allow-task-sharing",)}
    assert request.size_fields(fields, inside=True) == {"gpu_bind": "none"}
    assert request.size_fields({**fields, "gpu_bind": "single:1"}, inside=True) == {"gpu_bind": "single:1"}


def test_exclusive_is_about_the_step_only_inside_a_job() -> None:
    context = Context("srun", {}, "/here", sys.stdin, sys.stdout, sys.stderr)
    inside = request.own_fields({"exclusive": ""}, ["true"], context, inside=True)
    outside = request.own_fields({"exclusive": ""}, ["true"], context, inside=False)
    assert (inside["exact"], inside["exclusive"]) == (True, True)
    assert (outside["exact"], outside["exclusive"]) == (False, False)


def test_a_step_of_an_allocation_refuses_a_signal_of_its_own() -> None:
    """Only a job's --signal is sent; taking a step's without a word would be decoration."""
    import io

    from spritz.cli.call.context import Context
    from spritz.cli.jobs.launch.request import own_fields
    from spritz.model.errors import SpritzError

    context = Context("srun", {}, "/", io.StringIO(), io.StringIO(), io.StringIO())
    with pytest.raises(SpritzError, match="--signal is not supported by Spritz for a step"):
        own_fields({"signal": "USR1@10"}, ["true"], context, inside=True)
    assert own_fields({"signal": "USR1@10"}, ["true"], context, inside=False)["argv"] == ("true",)
