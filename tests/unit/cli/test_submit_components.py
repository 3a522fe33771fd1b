"""Components of heterogeneous jobs on command lines and in scripts. Source: sbatch(1), srun(1)."""

from __future__ import annotations

import io

import pytest

from spritz.cli import sbatch
from spritz.cli.call.context import Context
from spritz.cli.jobs.launch import het_step
from spritz.cli.jobs.submit import components
from spritz.cli.jobs.submit import script as scripts
from spritz.cli.jobs.submit.rows import rows_of
from spritz.model.errors import SpritzError


def context(**environ: str) -> Context:
    """A call with this environment."""
    return Context("sbatch", environ, "/", io.StringIO(), io.StringIO(), io.StringIO())


def merged(argv: list[str], script: str = "#!/bin/sh\n", **environ: str) -> list[dict[str, str]]:
    """Options in force for each component, as sbatch merges them."""
    call = context(**environ)
    found = components.parse(rows_of("b"), argv, call)
    assert not isinstance(found, int)
    parts = found[0]
    read = scripts.BatchScript(script.encode(), "/x", "x")
    answer = sbatch.in_force(parts, components.command_options(parts), read, call)
    assert not isinstance(answer, int)
    return answer


def test_sizes_hold_for_one_component_and_the_rest_for_those_after_it() -> None:
    first, second, third = merged(["-n2", "-t5", "-Jx", ":", "-N3", "-t7", ":", "-c2"])
    assert (first["ntasks"], first["time"], first["job-name"]) == ("2", "5", "x")
    assert second == {"nodes": "3", "time": "7", "job-name": "x"}
    assert third == {"cpus-per-task": "2", "time": "7", "job-name": "x"}


def test_what_is_said_of_a_later_component_does_not_come_back_to_the_first() -> None:
    first, second = merged(["-N1", ":", "-N1", "-w", "n1", "-t", "9", "--parsable"])
    assert first == {"nodes": "1", "parsable": ""}
    assert second["nodelist"] == "n1"
    assert second["time"] == "9"


def test_lines_of_a_script_divide_components_too() -> None:
    text = "#!/bin/sh\n#SBATCH -n2 --mem=10\n#SBATCH hetjob\n#SBATCH -n3\n#SBATCH packjob\n#SBATCH -c4\n"
    first, second, third = merged([], text)
    assert first == {"ntasks": "2", "mem": "10"}
    assert second == {"ntasks": "3", "mem": "10"}
    assert third == {"cpus-per-task": "4", "mem": "10"}


def test_the_command_line_is_stronger_than_the_script_component_by_component() -> None:
    text = "#!/bin/sh\n#SBATCH -n2 -p a\n#SBATCH hetjob\n#SBATCH -n3 -p b\n"
    first, second = merged(["-n4", ":", "-n5"], text, SBATCH_PARTITION="env")
    assert (first["ntasks"], first["partition"]) == ("4", "env")
    assert (second["ntasks"], second["partition"]) == ("5", "env")


def test_what_goes_on_from_the_command_line_beats_the_script_in_all_components() -> None:
    first, second = merged(["-J", "x"], "#!/bin/sh\n#SBATCH -J a\n#SBATCH hetjob\n#SBATCH -J b\n")
    assert first["job-name"] == second["job-name"] == "x"


def test_what_goes_on_from_the_command_line_beats_the_environment() -> None:
    first, second = merged(["-t5", ":", "-n2"], SBATCH_TIMELIMIT="3", SBATCH_PARTITION="p")
    assert first["time"] == second["time"] == "5"
    assert first["partition"] == second["partition"] == "p"


def test_more_components_on_the_command_line_than_in_the_script() -> None:
    assert len(merged(["-n1", ":", "-n2", ":", "-n3"], "#!/bin/sh\n#SBATCH -t 4\n")) == 3


def test_programs_of_srun_are_divided_and_a_missing_one_is_that_of_the_next() -> None:
    found = het_step.programs(["-n1", "a", "x", ":", "-n2", ":", "-n3", "b"], context(), inside=False)
    assert not isinstance(found, int)
    assert [(group, given["ntasks"], command) for group, given, command in found] == [
        (0, "1", ["a", "x"]),
        (1, "2", ["b"]),
        (2, "3", ["b"]),
    ]


def test_what_is_said_of_one_program_does_not_go_on_to_the_next() -> None:
    argv = ["-l", "--multi-prog", "-o", "f", "conf", ":", "-n1", "echo"]
    found = het_step.programs(argv, context(), inside=False)
    assert not isinstance(found, int)
    assert [sorted(given) for _group, given, _command in found] == [
        ["label", "multi-prog", "output"],
        ["label", "ntasks"],
    ]


INSIDE = {
    "SLURM_JOB_ID": "5",
    "SLURM_HET_SIZE": "3",
    "SLURM_NTASKS": "2",
    "SLURM_NTASKS_HET_GROUP_0": "2",
    "SLURM_NTASKS_HET_GROUP_1": "7",
    "SLURM_NNODES": "1",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_JOB_NUM_NODES_HET_GROUP_0": "1",
    "SLURM_JOB_NUM_NODES_HET_GROUP_1": "4",
    "SLURM_JOB_NUM_NODES_HET_GROUP_2": "2",
    "SLURM_JOB_ID_HET_GROUP_1": "6",
}


def test_a_step_of_a_component_sees_what_that_component_has() -> None:
    seen = het_step.environment_of(INSIDE, 1)
    assert (seen["SLURM_NTASKS"], seen["SLURM_NNODES"], seen["SLURM_JOB_ID"]) == ("7", "4", "5")
    assert "SLURM_NTASKS" not in het_step.environment_of(INSIDE, 2)


def test_one_program_in_several_components() -> None:
    found = het_step.programs(["--het-group=0,2", "hostname"], context(**INSIDE), inside=True)
    assert not isinstance(found, int)
    assert [(group, command) for group, _given, command in found] == [(0, ["hostname"]), (2, ["hostname"])]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--het-group=x", "a"], "Invalid --het-group value: x"),
        (["--het-group=7", "a"], "het group value of 7, but the job allocation has maximum value of 2"),
        (["--het-group=1", "a", ":", "--het-group=1", "b"], "component 1 is named twice"),
    ],
)
def test_components_that_there_are_not_are_refused(argv: list[str], words: str) -> None:
    with pytest.raises(SpritzError, match=words):
        het_step.programs(argv, context(**INSIDE), inside=True)
