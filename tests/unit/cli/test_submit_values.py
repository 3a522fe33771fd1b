"""Who said what: command line over environment over script, and which variables are read."""

from __future__ import annotations

import pytest

from spritz.cli import salloc, sbatch, srun
from spritz.cli.call.options import Fatal
from spritz.cli.jobs.submit import setters, values, variables
from spritz.model.errors import SpritzError
from spritz.notation.errors import NotationError

COMMANDS = {"sbatch": sbatch.OPTIONS, "salloc": salloc.OPTIONS, "srun": srun.OPTIONS}

#: options that the commands themselves act on, in addition to those that become fields of the request
OWN = {
    "sbatch": "clusters export export-file get-user-env help ignore-pbs parsable propagate quiet test-only usage "
    "verbose version wait wrap",
    "salloc": "bell clusters get-user-env help immediate kill-command no-bell no-shell quiet usage verbose version",
    # `whole` asks for what is done anyway.
    "srun": "bcast clusters compress debugger-test disable-status epilog exact export het-group "
    "help immediate interactive "
    "jobid kill-on-bad-exit label mpi multi-prog overlap preserve-env prolog propagate pty quiet quit-on-interrupt "
    # Without effect, as the page of options says: how many threads launch a step changes nothing that is seen.
    "relative resv-ports task-epilog task-prolog test-only threads treewidth unbuffered usage verbose version wait "
    "whole",
}


def test_a_stronger_source_wins_and_displaces_rivals() -> None:
    merged = values.merge({"mem": "1G", "job-name": "a"}, {"mem-per-cpu": "2G"})
    assert merged == {"job-name": "a", "mem-per-cpu": "2G"}


def test_the_last_of_several_counts_and_repeated_flags_are_counted() -> None:
    assert values.from_parsed([("nodes", "1"), ("nodes", "2"), ("verbose", None), ("verbose", None)]) == {
        "nodes": "2",
        "verbose": "11",
    }


def test_what_is_displaced_must_make_sense_too() -> None:
    """As in Slurm, which reads the script, the environment and all of the command line."""
    with pytest.raises((SpritzError, NotationError), match="Invalid --time specification"):
        values.from_parsed([("time", "abc"), ("time", "10")])
    with pytest.raises((SpritzError, NotationError), match='Invalid numeric value "x" for --ntasks'):
        values.merge({"ntasks": "x"}, {"ntasks": "2"})
    assert values.merge({"nodelist": "no/such/file"}, {"nodelist": "n1"}) == {"nodelist": "n1"}


def test_two_sizes_of_memory_in_one_source_are_refused() -> None:
    with pytest.raises(Fatal, match="mutually exclusive"):
        values.from_parsed([("mem", "1"), ("mem-per-cpu", "2")])


@pytest.mark.parametrize("keys", [("exclusive", "overlap"), ("overlap", "exclusive")])
def test_a_command_line_cannot_ask_for_its_own_and_for_shared_processors(keys: tuple[str, str]) -> None:
    with pytest.raises(SpritzError, match="^--exclusive and --overlap are mutually exclusive$"):
        values.from_parsed([(key, "") for key in keys])
    # As in Slurm, an option displaces nothing of the environment's that it does not rival.
    assert values.merge({"overlap": "1"}, {"exclusive": ""}) == {"overlap": "1", "exclusive": ""}


@pytest.mark.parametrize("keys", [("gpus-per-task", "ntasks-per-gpu"), ("ntasks-per-gpu", "gpus-per-task")])
def test_tasks_are_counted_by_gpus_or_gpus_by_tasks(keys: tuple[str, str]) -> None:
    with pytest.raises(Fatal, match="--gpus-per-task is mutually exclusive with --ntasks-per-gpu"):
        values.from_parsed([(key, "1") for key in keys])


@pytest.mark.parametrize(("value", "isset"), [("", True), ("yes", True), ("1", True), ("0", False), ("no", False)])
def test_a_flag_variable_is_set_by_nothing_yes_or_a_number(value: str, isset: bool) -> None:
    """srun(1) INPUT ENVIRONMENT VARIABLES."""
    assert ("overlap" in variables.read("srun", srun.OPTIONS, {"SLURM_OVERLAP": value})) is isset


def test_later_variables_win_over_earlier_names_of_the_same_option() -> None:
    read = variables.read("srun", srun.OPTIONS, {"SLURM_EXPORT_ENV": "NONE", "SRUN_EXPORT_ENV": "ALL"})
    assert read["export"] == "ALL"


def test_a_step_does_not_ask_by_number_for_what_its_job_has() -> None:
    environ = {"SLURM_MEM_PER_NODE": "100", "SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NAME": "job"}
    inside = variables.read("srun", srun.OPTIONS, environ, inside=True)
    assert inside == {"ntasks": "4", "nodes": "2"}
    assert variables.read("srun", srun.OPTIONS, environ)["mem"] == "100"


def test_the_binding_of_a_step_is_not_that_of_steps_made_inside_it() -> None:
    environ = {"SLURM_CPU_BIND": "quiet,mask_cpu:0x1", "SLURM_STEP_ID": "0"}
    assert variables.read("srun", srun.OPTIONS, environ, inside=True) == {}
    assert "cpu-bind" in variables.read("srun", srun.OPTIONS, {"SLURM_CPU_BIND": "cores"}, inside=True)


def test_a_variable_of_a_refused_option_is_refused_too() -> None:
    with pytest.raises(SpritzError, match="--container-id"):
        variables.read("sbatch", sbatch.OPTIONS, {"SBATCH_CONTAINER_ID": "r"})


@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
def test_every_variable_leads_to_an_option(command: str) -> None:
    names = {row.name for row in COMMANDS[command]}
    unknown = {option for _, option in variables.table(command)} - names
    assert unknown <= {"container", "mem-bind", "container-id"} - names


@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
def test_no_option_is_accepted_and_ignored(command: str) -> None:
    """Whatever is not refused becomes a field of the request, is acted upon by the command itself, or is warned of."""
    working = {row.key for row in COMMANDS[command] if not row.refused and not row.no_effect}
    assert working - set(setters.SETTERS) == set(OWN[command].split())


@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
def test_short_options_are_unique(command: str) -> None:
    letters = [row.short for row in COMMANDS[command] if row.short]
    assert len(letters) == len(set(letters))


def test_failures_exit_as_the_variables_say() -> None:
    error = SpritzError("no", code="ESLURM_NODES_BUSY")
    values.apply_exit_code(error, {"SLURM_EXIT_IMMEDIATE": "66", "SLURM_EXIT_ERROR": "77"})
    assert error.exit_code == 66
    error = SpritzError("no")
    values.apply_exit_code(error, {"SLURM_EXIT_IMMEDIATE": "66", "SLURM_EXIT_ERROR": "77"})
    assert error.exit_code == 77
    values.apply_exit_code(error, {"SLURM_EXIT_ERROR": "many"})
    assert error.exit_code == 77
