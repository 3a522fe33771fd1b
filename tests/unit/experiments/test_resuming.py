"""Options of resumable runs, and the job's side of the contract, with Slurm's commands replaced by notes of calls."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spritz.experiments.cluster.slurm import JobState
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import resuming, script, states
from spritz.experiments.job.settings import RunOptions, Settings, merged, read
from spritz.experiments.records import record
from spritz.experiments.records.store import Entry


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7d", 604_800), ("90m", 5400), ("1.5h", 5400), ("30", 1800), ("2:00:00", 7200), ("1-12", 129_600), ("45s", 45)],
)
def test_total_times(text: str, seconds: int) -> None:
    assert resuming.total_seconds(text) == seconds


@pytest.mark.parametrize(
    "options",
    [
        {"max_time": "soon"}, {"max_time": "1.2.3d"}, {"grace": "1m"}, {"grace": "70000"}, {"max_stalls": "-1"},
        {"stop_signal": "KILL"}, {"checkpoint": "criu"}, {"checkpoint": "dmtcp"},
    ],
)  # fmt: skip
def test_values_that_mean_nothing_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ExperimentError, match=next(iter(options.values())).replace(".", r"\.")):
        resuming.check(RunOptions(**options))  # type: ignore[arg-type]  # by name


def test_a_project_says_resumable_once(tmp_path: Path) -> None:
    (tmp_path / "spritz.yaml").write_text("run: {resumable: true}\n")
    assert merged(read(tmp_path), {"resumable": False}).resumable
    assert not merged(Settings(), {"resumable": False}).resumable
    (tmp_path / "spritz.yaml").write_text("run: {resumable: 7}\n")
    with pytest.raises(ExperimentError, match="true or false"):
        read(tmp_path)


def text(directory: Path, template: str = "", **options: Any) -> str:
    return script.text(
        script.Job(
            name="r-1", directory=directory, options=RunOptions(template=template, **options),
            command=("bash", "work.sh"), hidden={}, tree="", repository=directory, work_directory=str(directory),
            inside=directory / "inside.py", event_files=directory / "events.py", data_states=directory / "data.py",
            tracked=True, mark="0" * 64,
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "text", "handles"),
    [
        (("bash", "train.sh"), "#!/bin/bash\ntrap 'save; exit 75' USR1\n", True),
        (("bash", "-eu", "train.sh", "x"), "trap save SIGUSR1 TERM\n", True),
        (("./train.sh",), "trap save USR1\n", True),
        (("./train",), "#!/usr/bin/env bash\ntrap save USR1\n", True),
        (("sh", "-c", "trap save USR1; work"), "", True),
        (("bash", "train.sh"), "# trap save USR1\npython train.py\n", False),
        (("bash", "train.sh"), "trap save USR2\n", False),
        (("python", "train.sh"), "trap save USR1\n", False),
        (("./train",), "#!/usr/bin/python\n# trap save USR1\n", False),
        (("bash", "none.sh"), "", False),
        (("bash",), "", False),
    ],
)
def test_a_shell_script_that_traps_the_signal_is_not_guarded(
    tmp_path: Path, command: tuple[str, ...], text: str, handles: bool
) -> None:
    for name in ("train.sh", "train"):
        (tmp_path / name).write_text(text)
    options = RunOptions(resumable=True)
    assert resuming.handles_signal(command, tmp_path, options) is handles
    assert not resuming.handles_signal(command, tmp_path, RunOptions())
    assert bool(resuming.guard(options, handled=handles)) is not handles


@pytest.mark.parametrize("template", script.TEMPLATES)
def test_scripts_of_resumable_runs_are_shell_scripts(template: str, tmp_path: Path) -> None:
    made = text(tmp_path, template, resumable=True, gpus="2", stop_signal="USR2", grace="90")
    assert "#SBATCH --signal=B:USR2@90\n#SBATCH --requeue\n" in made or (
        "#SBATCH --requeue\n#SBATCH --signal=B:USR2@90\n" in made
    )
    assert "--requeue" not in text(tmp_path, template, gpus="2")
    for shell in (made, resuming.SCRIPT):
        assert subprocess.run(["bash", "-n"], input=shell, text=True, capture_output=True).stderr == ""


class Job:
    """job.sh with stand-ins for Slurm's commands: `srun` runs the command, `scontrol` notes what it was asked."""

    def __init__(self, directory: Path, work: str, **options: Any) -> None:
        self.directory = directory
        self.lives = 0
        (directory / "log").mkdir()
        (directory / "bin").mkdir()
        self.program("srun", 'while [[ $1 == --* ]]; do shift; done; exec "$@"')
        self.program("scontrol", f'case "$*" in *hostnames*) echo n1;; *) echo "$@" >> {directory}/asked;; esac')
        self.program("squeue", "")
        self.program("sinfo", "printf 'n1\\nn2\\n'")
        (directory / "work.sh").write_text(work)
        (directory / "job.sh").write_text(text(directory, resumable=True, **options))
        (directory / "resume.sh").write_text(resuming.SCRIPT)

    def program(self, name: str, body: str) -> None:
        path = self.directory / "bin" / name
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    def live(self, **environment: str) -> int:
        """One life; its status."""
        variables = {
            "PATH": f"{self.directory}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1",
            "SLURM_RESTART_COUNT": str(self.lives), "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1",
            "SLURM_JOB_PARTITION": "p",
        }  # fmt: skip
        self.lives += 1
        done = subprocess.run(["bash", self.directory / "job.sh"], env={**variables, **environment}, timeout=60)
        return done.returncode

    def events(self) -> list[str]:
        return [event["event"] for event in record.events(self.directory)]

    def asked(self) -> list[str]:
        path = self.directory / "asked"
        return path.read_text().splitlines() if path.exists() else []


def test_status_75_and_the_file_start_it_again_and_others_end_it(tmp_path: Path) -> None:
    job = Job(tmp_path, 'case $SPRITZ_RESTART in 0) exit 75;; 1) touch "$SPRITZ_SAVED_FILE"; exit 1;; 2) exit 3;; esac')
    assert [job.live(), job.live(), job.live()] == [75, 75, 3]
    assert job.asked() == ["requeue 7", "requeue 7"]
    assert job.events() == ["started", "requeued", "started", "requeued", "started", "ended"]


def test_a_wanted_pause_holds_the_job_and_is_done_with(tmp_path: Path) -> None:
    job = Job(tmp_path, "exit 75")
    (tmp_path / resuming.PAUSE).touch()
    assert job.live() == 75
    assert job.asked() == ["requeuehold 7"]
    assert job.events()[-1] == "paused"
    assert not (tmp_path / resuming.PAUSE).exists()


def test_the_next_life_is_told_where_to_start(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        'echo "$SPRITZ_RESTART ${SPRITZ_RESUME_FROM-none}" >> "$SPRITZ_RUN_DIR/told"; cd "$SPRITZ_CHECKPOINT_DIR"\n'
        'case $SPRITZ_RESTART in 1) ln -s a latest;; *) touch a; touch .b c.tmp;; esac; exit 75',
    )  # fmt: skip
    for _ in range(3):
        job.live()
    place = f"{tmp_path}/checkpoints/a"
    assert (tmp_path / "told").read_text() == f"0 none\n1 {place}\n2 {place}\n"


def test_restarts_without_a_checkpoint_end_and_progress_resets_the_count(tmp_path: Path) -> None:
    job = Job(tmp_path, '[ "$SPRITZ_RESTART" = 1 ] && touch "$SPRITZ_CHECKPOINT_DIR/one"; exit 75', max_stalls="1")
    assert [job.live() for _ in range(5)] == [75, 75, 75, 75, resuming.STALLED]
    assert job.events()[-2:] == ["stalled", "ended"]


def test_a_life_that_ended_without_a_word_excludes_its_failed_node(tmp_path: Path) -> None:
    job = Job(tmp_path, 'if [ "$SPRITZ_RESTART" = 0 ]; then kill -9 $PPID; else exit 0; fi')
    job.live()
    shown = "NodeName=n1 State=DOWN* SlurmdStartTime=2026-01-01T00:00:00"
    job.program(
        "scontrol",
        f'case "$*" in *hostnames*) echo n1;; *"show node"*) echo "{shown}";; *"show job"*) echo "ExcNodeList=n9";;'
        f' *) echo "$@" >> {tmp_path}/asked;; esac',
    )
    assert job.live() == 75
    assert job.asked() == ["requeue 7", "update JobId=7 ExcNodeList=n9,n1"]
    assert job.events() == ["started", "started", "lost", "excluded"]
    job.program("sinfo", "echo n1")
    assert job.live() == 0, "with no other node up it runs where it is"


@pytest.mark.slow
def test_the_total_time_ends_the_chain(tmp_path: Path) -> None:
    job = Job(tmp_path, "trap 'exit 75' USR1; while :; do sleep 0.05; done", max_time="3s", grace="2")
    assert job.live() == resuming.TIME_UP
    assert record.events(tmp_path)[-1]["status"] == resuming.TIME_UP


def test_a_run_is_paused_while_it_is_held(tmp_path: Path) -> None:
    values = dict.fromkeys(Entry.__dataclass_fields__)
    entry = Entry(**{**values, "created_at": 0.0, "directory": str(tmp_path)})  # type: ignore[arg-type]  # by name

    def state(reason: str, now: str = "PENDING") -> object:
        return states.values_of(entry, JobState("7", now, reason), None)["state"]

    record.append(tmp_path, "started", 1.0, restart=0)
    record.append(tmp_path, "paused", 2.0, restart=0)
    record.append(tmp_path, "stopped", 3.0, restart=0, status=143)
    assert state("job requeued in held state") == state("JobHeldUser") == "PAUSED"
    assert state("Priority") == "PENDING"
    assert state("None", "COMPLETING") == "COMPLETING"
    # A forced pause may be recorded before the end of the attempt that Slurm kills.
    record.append(tmp_path, "paused", 3.5, forced=True)
    record.append(tmp_path, "ended", 3.6, restart=0, status=143)
    assert state("JobHeldUser") == "PAUSED"
    record.append(tmp_path, "resumed", 4.0)
    assert state("JobHeldUser") == "PENDING"
