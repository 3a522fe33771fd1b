"""Two lives of one run at once: the older one changes no checkpoint, and its last word does not count."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from spritz.experiments.checkpointing import Checkpointer, FencedOut
from spritz.experiments.errors import ExperimentError
from spritz.experiments.job import resuming, script, states
from spritz.experiments.job.settings import RunOptions
from spritz.experiments.records import lives, record
from spritz.experiments.results import metrics
from spritz.experiments.sweeps import trials
from tests.unit.experiments.test_resuming import Job, text

#: Does what the files of its life tell it: `save-LIFE` a checkpoint, `end-LIFE` its end with the status in it.
WORK = f"""exec {sys.executable} -c '
import os, sys, time
from pathlib import Path
from spritz_checkpointing import Checkpointer
here, life = Path(os.environ["SPRITZ_RUN_DIR"]), os.environ["SPRITZ_LIFE"]
checkpoints = Checkpointer(keep=1)
checkpoints.load()
step = 10 * int(life)
(here / f"ready-{{life}}").touch()
while True:
    if (save := here / f"save-{{life}}").exists():
        step += 1
        checkpoints.save(step, life=life)
        save.unlink()
    if (end := here / f"end-{{life}}").exists():
        sys.exit(int(end.read_text()))
    time.sleep(0.01)
'"""


def until(condition: Callable[[], bool], story: Callable[[], str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, story()
        time.sleep(0.02)


class Twice(Job):
    """A run whose lives run at the same time; `srun` marks its tasks as Slurm does."""

    def __init__(self, directory: Path, work: str = WORK) -> None:
        super().__init__(directory, work)
        self.program("srun", 'while [[ $1 == --* ]]; do shift; done; export SLURM_STEP_ID=0; "$@"; exit $?')
        self.modules = resuming.install_module(directory / "home")

    @contextmanager
    def life(self, **environment: str) -> Iterator[subprocess.Popen[str]]:
        variables = {
            "PATH": f"{self.directory}/bin:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1",
            "SLURM_RESTART_COUNT": str(self.lives), "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1",
            "SLURM_JOB_PARTITION": "p", "PYTHONPATH": str(self.modules), "SLURMD_NODENAME": f"n{self.lives + 1}",
        }  # fmt: skip
        self.lives += 1
        process = subprocess.Popen(
            ["bash", self.directory / "job.sh"], env={**variables, **environment}, text=True,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def wait(self, name: str, *, there: bool = True) -> None:
        until(lambda: os.path.lexists(self.directory / name) is there, lambda: f"{name}\n{self.story()}")

    def save(self, life: int) -> None:
        (self.directory / f"save-{life}").touch()

    def end(self, life: int, status: int) -> None:
        scratch = self.directory / "end.new"
        scratch.write_text(str(status))
        scratch.rename(self.directory / f"end-{life}")

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.directory / "checkpoints").glob("step-*"))

    def asked(self) -> list[str]:
        """What it asked of Slurm, without questions."""
        return [words for words in super().asked() if not words.startswith("-o show")]

    def story(self) -> str:
        files = [*self.directory.glob("events.*.jsonl"), *sorted((self.directory / "log").glob("*"))]
        return "\n".join(f"== {path.name}\n{path.read_text()}" for path in files if path.exists())


@pytest.mark.parametrize("job_id", ["7", "3"], ids=["a restart of the job", "another job, of a smaller id"])
def test_an_older_life_that_was_not_dead_changes_no_checkpoint_and_not_the_result(tmp_path: Path, job_id: str) -> None:
    run = Twice(tmp_path)
    with run.life() as older:
        run.wait("ready-1")
        run.save(1)
        run.wait("save-1", there=False)
        assert run.checkpoints() == ["step-0000000011.ckpt"]
        # Stopped, so that it sees nothing of the newer life before its next save.
        os.killpg(older.pid, signal.SIGSTOP)
        with run.life(SLURM_JOB_ID=job_id, SLURM_RESTART_COUNT="1" if job_id == "7" else "0") as newer:
            run.wait("ready-2")
            run.save(2)
            run.wait("save-2", there=False)
            assert run.checkpoints() == ["step-0000000021.ckpt"]
            run.save(1)
            os.killpg(older.pid, signal.SIGCONT)
            error = older.communicate(timeout=60)[1]
            assert "a newer start of this run has begun" in error, run.story()
            assert run.checkpoints() == ["step-0000000021.ckpt"]
            assert not list((tmp_path / "checkpoints").glob(".life-1-*"))
            run.end(2, 0)
            assert newer.wait(60) == 0, run.story()
    kinds = [(event["event"], event["life"]) for event in record.events(tmp_path)]
    assert kinds == [("started", 1), ("superseded", 1), ("started", 2), ("lost", 2), ("ended", 2)]
    assert states.from_events(record.events(tmp_path))["state"] == "COMPLETED"
    assert run.asked() == [], "the older life requeued or ended nothing"
    assert not list((tmp_path / "checkpoints").glob(".*life-*"))


@pytest.mark.parametrize("work", ["end", "saved"])
def test_an_older_life_that_ends_after_the_newer_one_asks_for_nothing(tmp_path: Path, work: str) -> None:
    """Status 75, or the file, would requeue the job, which is that of the newer life."""
    program = 'touch "$SPRITZ_SAVED_FILE"; exit 0' if work == "saved" else "exit 75"
    wait = "until [ -e end-$SPRITZ_LIFE ]; do sleep 0.02; done"
    run = Twice(tmp_path, f'{wait}; [ "$SPRITZ_LIFE" = 2 ] || {{ {program}; }}')
    with run.life() as older:
        until(lambda: "started" in run.events(), run.story)
        os.killpg(older.pid, signal.SIGSTOP)
        with run.life() as newer:
            until(lambda: run.events().count("started") == 2, run.story)
            run.end(1, 0)
            os.killpg(older.pid, signal.SIGCONT)
            older.communicate(timeout=60)
            assert newer.poll() is None
            run.end(2, 0)
            assert newer.wait(60) == 0, run.story()
    assert run.asked() == []
    assert states.from_events(record.events(tmp_path)) | {"started_at": 0, "ended_at": 0} == {
        "state": "COMPLETED", "exit_code": 0, "started_at": 0, "ended_at": 0,
    }  # fmt: skip


def test_a_program_without_a_checkpointer_is_ended_without_a_signal_that_it_could_answer(tmp_path: Path) -> None:
    run = Twice(
        tmp_path,
        "trap 'touch answered' TERM USR1\ntouch ready-$SPRITZ_LIFE\n"
        "until [ -e end-$SPRITZ_LIFE ]; do sleep 0.02; done\n",
    )
    with run.life() as older:
        run.wait("ready-1")
        with run.life() as newer:
            run.wait("ready-2")
            older.communicate(timeout=60)
            assert newer.poll() is None
            run.end(2, 0)
            assert newer.wait(60) == 0, run.story()
    assert not (tmp_path / "answered").exists()
    assert ("superseded", 137) in [(event["event"], event.get("status")) for event in record.events(tmp_path)]


def test_an_older_start_that_comes_late_leaves(tmp_path: Path) -> None:
    run = Twice(tmp_path, "echo in $SPRITZ_LIFE; until [ -e end-$SPRITZ_LIFE ]; do sleep 0.02; done")
    with run.life(SLURM_RESTART_COUNT="1") as newer:
        until(lambda: "started" in run.events(), run.story)
        with run.life(SLURM_RESTART_COUNT="0") as late:
            assert "7.1@n1, has begun" in late.communicate(timeout=60)[1]
            assert late.returncode == 1
        run.end(1, 0)
        assert newer.wait(60) == 0
    assert run.events() == ["started", "ended"]


@pytest.fixture
def in_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    kept = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)}
    monkeypatch.setenv("SPRITZ_RUN", "r-1")
    monkeypatch.setenv("SPRITZ_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("SPRITZ_LIFE", "1")
    (tmp_path / "lives").mkdir()
    (tmp_path / "lives" / "1").symlink_to("7.0@a")
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_a_newer_life_that_begins_between_the_look_and_the_rename_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_life: None
) -> None:
    older = Checkpointer(tmp_path / "c", keep=1)
    older.save(1)
    looked = older._life.check

    def look_and_sleep() -> None:
        """The node stops after its look, and wakes when the newer life has saved."""
        looked()
        monkeypatch.setattr(older._life, "check", lambda: None)
        (tmp_path / "lives" / "2").symlink_to("7.1@b")
        monkeypatch.setenv("SPRITZ_LIFE", "2")
        Checkpointer(tmp_path / "c", keep=1).save(5)
        monkeypatch.setattr(older._life, "check", looked)

    older._life.begin()
    scratch = older.need_life() / ".x.tmp"
    scratch.write_text("x")
    monkeypatch.setattr(older._life, "check", look_and_sleep)
    with pytest.raises(FencedOut, match=r"start 2 \(job 7, restart 1, on b\) has begun; this is start 1 "):
        older.publish(scratch, tmp_path / "c" / "step-0000000009.ckpt")
    names = [path.name for path in (tmp_path / "c").iterdir() if not path.name.startswith(".")]
    assert sorted(names) == ["latest", "step-0000000005.ckpt"]


@pytest.mark.parametrize("act", ["save", "point"])
def test_a_directory_that_is_removed_right_after_the_look_is_the_newer_lifes_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_life: None, act: str
) -> None:
    older = Checkpointer(tmp_path / "c")
    path = older.save(1)
    begin = older._life.begin

    def look_and_lose() -> Path:
        scratch = begin()
        (tmp_path / "lives" / "2").symlink_to("7.1@b")
        scratch.rename(tmp_path / "over")
        return scratch

    monkeypatch.setattr(older._life, "begin", look_and_lose)
    with pytest.raises(FencedOut, match="start 2"):
        older.save(2) if act == "save" else older.point(path)


def test_an_older_life_prunes_loads_points_and_leaves_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_life: None
) -> None:
    older = Checkpointer(tmp_path / "c")
    path = older.save(1)
    (tmp_path / "lives" / "2").symlink_to("9.0@b")
    monkeypatch.setenv("SPRITZ_SAVED_FILE", str(tmp_path / "saved"))
    for act in (older.load, older.leave, older.need_life, lambda: older.remove(path), lambda: older.point(path)):
        with pytest.raises(FencedOut, match="job 9, restart 0, on b"):
            act()
    assert path.exists()
    assert not (tmp_path / "saved").exists()


def test_runs_that_share_a_directory_do_not_end_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_life: None
) -> None:
    first = Checkpointer(tmp_path / "c")
    first.save(1)
    monkeypatch.setenv("SPRITZ_RUN", "r-2")
    monkeypatch.setenv("SPRITZ_LIFE", "4")
    monkeypatch.setenv("SPRITZ_RUN_DIR", str(tmp_path / "other"))
    Checkpointer(tmp_path / "c").save(2)
    first.save(3)


def line(**values: object) -> str:
    return json.dumps(values) + "\n"


def test_what_an_older_life_says_after_the_newer_one_decides_nothing(tmp_path: Path) -> None:
    begun = line(event="started", at=1.0, restart=0, life=1) + line(event="started", at=2.0, restart=1, life=2)
    stale = line(event="ended", at=4.0, restart=1, life=1, status=0)
    (tmp_path / "events.jsonl").write_text(begun + stale)
    assert states.from_events(record.events(tmp_path)) == {"started_at": 1.0}
    (tmp_path / "s.1").symlink_to(".")
    for status, state in ((0, "COMPLETED"), (3, "FAILED")):
        end = line(event="ended", at=3.0, restart=1, life=2, status=status)
        (tmp_path / "events.jsonl").write_text(begun + end + stale.replace('"status": 0', '"status": 9'))
        values = states.from_events(record.events(tmp_path))
        assert (values["state"], values["exit_code"], values["ended_at"]) == (state, status, 3.0)
        assert trials.read(tmp_path, "s", 1, "loss").state == state


def test_metrics_of_an_older_life_are_not_mixed_in(tmp_path: Path) -> None:
    lines = [
        line(step=1, loss=5.0, life=1), line(step=2, loss=4.0, life=2), line(step=9, loss=1.0, life=1),
        line(step=3, loss=3.0, life=2), line(step=4, other=2.0),
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    values = [(point.name, point.step, point.value) for point in metrics.written(tmp_path)]
    assert values == [("loss", 1.0, 5.0), ("loss", 2.0, 4.0), ("loss", 3.0, 3.0), ("other", 4.0, 2.0)]
    assert trials.metrics_of(tmp_path) == {"loss": 3.0, "other": 2.0}
    assert trials.Reports(tmp_path, "loss").read() == {1: 5.0, 2: 4.0, 3: 3.0}


def test_who_has_taken_over_is_known_in_the_job(tmp_path: Path) -> None:
    inside = {"SPRITZ_RUN_DIR": str(tmp_path), "SPRITZ_LIFE": "1"}
    assert lives.newer(inside) == lives.newer({}) == ""
    (tmp_path / "lives").mkdir()
    (tmp_path / "lives" / "2").symlink_to("7.1@b")
    assert lives.newer(inside) == "7.1@b"


TRIALS = script.Trials(
    sweep=Path("s"), shared=Path("s"), version=1, variables={}, python="python3", asks=False, watched=False, retries=0,
    size=2,
)  # fmt: skip


@pytest.mark.parametrize("trials", [None, TRIALS], ids=["run", "trial"])
@pytest.mark.parametrize(
    ("said", "runs"),
    [
        ([], True),
        ([("started", 1), ("ended", 1, 0)], False),
        ([("started", 1), ("ended", 1, 1)], True),
        ([("started", 1)], True),
        ([("started", 1), ("started", 2), ("ended", 2, 0)], False),
        ([("started", 1), ("started", 2), ("ended", 1, 0)], True),
        ([("started", 9), ("started", 10), ("ended", 10, 0)], False),
        ([("started", None), ("ended", None, 0)], False),
    ],
)
def test_a_job_that_slurm_starts_again_does_not_run_over_a_result(
    tmp_path: Path, trials: script.Trials | None, said: list[tuple[str, int | None, int]], runs: bool
) -> None:
    """Slurm requeues a job whose node was lost before it could report its end."""
    (tmp_path / "lives").mkdir()
    for event, life, *status in said:
        numbers = {} if life is None else {"life": life}
        with (tmp_path / f"events.n{life}.jsonl").open("a") as file:
            file.write(line(event=event, at=1.0, restart=0, **numbers, **({"status": status[0]} if status else {})))
        if life is not None:
            with suppress(FileExistsError):
                (tmp_path / "lives" / str(life)).symlink_to("7.0@n1")
    lines = f"{script._life(trials)}\necho runs\n"
    variables = {"PATH": os.environ["PATH"], "SPRITZ_RUN_DIR": str(tmp_path), "SPRITZ_RUN": "r-1"}
    done = subprocess.run(
        ["bash", "-c", lines], env={**variables, "SLURM_ARRAY_JOB_ID": "7"}, text=True, capture_output=True
    )
    assert done.stdout == ("runs\n" if runs else "")
    assert ("has its result already" in done.stderr) is not runs


def test_a_run_whose_job_is_started_again_keeps_its_result(tmp_path: Path) -> None:
    run = Twice(tmp_path, "echo ran >> ran; exit 0")
    for _ in range(2):
        with run.life() as process:
            assert process.wait(60) == 0, run.story()
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert run.events() == ["started", "ended"]


def claiming(directory: Path, *, mark: str) -> Twice:
    """A run of the name `r-1` that keeps its checkpoints outside of its directory."""
    directory.mkdir()
    run = Twice(directory, "ls -A $SPRITZ_CHECKPOINT_DIR; touch $SPRITZ_CHECKPOINT_DIR/step-1.ckpt")
    made = text(directory, resumable=True, checkpoint_dir=str(directory.parent / "kept")).replace("0" * 64, mark * 64)
    (directory / "job.sh").write_text(made)
    return run


def test_another_run_of_the_name_gets_no_checkpoints_of_a_directory_outside(tmp_path: Path) -> None:
    """Names are those of a user in a home, and a removed run leaves its name, and its checkpoints there."""
    run, other = claiming(tmp_path / "a", mark="0"), claiming(tmp_path / "b", mark="1")
    with run.life() as first:
        assert first.wait(60) == 0, run.story()
    (tmp_path / "kept" / "r-1" / ".life-1-0@r-1").mkdir()  # of a start that runs
    with other.life() as second:
        said = second.communicate(timeout=60)[1]
    assert f"kept/r-1 has the checkpoints of another run, {tmp_path}/a" in said
    assert other.events() == ["started", "ended"]
    assert states.from_events(record.events(tmp_path / "b"))["exit_code"] == 66
    assert (tmp_path / "kept" / "r-1" / ".life-1-0@r-1").is_dir()
    options = RunOptions(checkpoint_dir=str(tmp_path / "kept"))
    (tmp_path / "a" / "r-1").mkdir()
    with pytest.raises(ExperimentError, match=rf"checkpoints of another run, {tmp_path}/a"):
        resuming.need_own_directory(tmp_path / "a" / "r-1", options, "1" * 64)
    resuming.need_own_directory(tmp_path / "a" / "r-2", options, "1" * 64)


def test_a_run_that_starts_again_has_its_checkpoints_outside(tmp_path: Path) -> None:
    run = claiming(tmp_path / "a", mark="0")
    (tmp_path / "a" / "work.sh").write_text("cd $SPRITZ_CHECKPOINT_DIR; [ -e x ] && exit; touch x; exit 1")
    for status in (1, 0):
        with run.life() as process:
            assert process.wait(60) == status, run.story()
