"""A training goes on exactly over a pause, a preemption and a node that dies: on a cluster of ours and a real Slurm."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from spritz.experiments.job import resuming, states
from spritz.experiments.records import record
from tests.conformance.cluster import SITE, node_command
from tests.e2e.cluster import until
from tests.e2e.experiments_lab import Lab, git

#: It goes no further than the number in the file GATE, so that each event finds it at a known step.
TRAIN = """\
import os, random, time
from spritz_checkpointing import Checkpointer

def gate():
    return int(open(os.environ["GATE"]).read() or 0)

checkpoints = Checkpointer()
state = checkpoints.load()
first, weight = (state["step"], state["weight"]) if state else (0, 5.0)
if state is None:
    random.seed(7)
print("from", os.environ.get("SPRITZ_RESUME_FROM", "nothing"), "in life", os.environ.get("SPRITZ_RESTART"), flush=True)
step = first
while step < 60:
    stop = checkpoints.should_stop()
    if stop or step % 7 == 6:
        checkpoints.save(step, weight=weight)
    if stop:
        checkpoints.leave()
    if step >= gate():
        time.sleep(0.05)
        continue
    weight -= 0.1 * (weight - random.random())
    print("loss", step, repr(weight), flush=True)
    step += 1
"""

TORCH = """\
import os, time
import torch
from spritz_checkpointing import Checkpointer

def gate():
    return int(open(os.environ["GATE"]).read() or 0)

checkpoints = Checkpointer()
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
state = checkpoints.load()
if state:
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
step = state["step"] if state else 0
while step < 60:
    stop = checkpoints.should_stop()
    if stop or step % 7 == 6:
        checkpoints.save(step, model=model, optimizer=optimizer)
    if stop:
        checkpoints.leave()
    if step >= gate():
        time.sleep(0.05)
        continue
    loss = ((model(torch.randn(16, 4)) - 1) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", step, repr(loss.item()), flush=True)
    step += 1
"""


@contextmanager
def site(directory: Path, which: str) -> Iterator[tuple[Path, str]]:
    """(slurm.conf, PATH) of a cluster whose nodes are daemons of their own."""
    needed = ("slurmctld", "slurmdbd", "munged", "mariadbd") if which == "real" else ("unshare",)
    if os.geteuid() != 0 or any(shutil.which(name, path=f"/usr/sbin:{os.environ['PATH']}") is None for name in needed):
        pytest.skip(f"nodes with host names of their own need root; and {', '.join(needed)}")
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.conformance.{which}", str(directory / which), "--site"],
        cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        conf = next((line.partition("=")[2].strip() for line in process.stdout if line.startswith("ready:")), "")
        assert conf, "the cluster did not start"
        path = "/usr/sbin:/usr/bin:/sbin:/bin"
        path = path if which == "real" else f"{Path(sys.executable).parent}:{path}"
        # A node that is silent so long is down.
        text = Path(conf).read_text()
        Path(conf).write_text(f"{text}SlurmdTimeout=15\n")
        environment = {**os.environ, "SLURM_CONF": conf, "PATH": path, "SPRITZ_NO_SERVER": "1"}
        subprocess.run(["scontrol", "reconfigure"], env=environment, check=True, timeout=100)
        yield Path(conf), path
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=100)


@pytest.fixture(scope="module", params=["ours", "real"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    with site(tmp_path_factory.mktemp("c"), request.param) as found:
        yield found


@pytest.fixture
def lab(cluster: tuple[Path, str], tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, *cluster)
    made.project.mkdir()
    git(made.project, "init", "-q", "-b", "main")
    (made.project / "train.py").write_text(TRAIN)
    (made.project / "train_torch.py").write_text(TORCH)
    open_to(made, 0)
    yield made
    made.slurm("scancel", "--me")
    until(lambda: not made.slurm("squeue", "-h", "--me"), "the jobs are gone")


pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("experiments_resume"), pytest.mark.timeout(400)]


def open_to(lab: Lab, step: int) -> None:
    scratch = lab.directory / "gate.new"
    scratch.write_text(str(step))
    scratch.rename(lab.directory / "gate")


def start(lab: Lab, *words: str, command: tuple[str, ...] = ("python3", "train.py")) -> str:
    given = ("--env", f"GATE={lab.directory}/gate", "--env", f"PYTHONDONTWRITEBYTECODE={1}")
    return lab("run", "-d", "--resumable", *given, *words, "--", *command).strip()


def directory(lab: Lab, name: str) -> Path:
    return lab.home / "runs" / name


def job(lab: Lab, name: str) -> str:
    return str(json.loads((directory(lab, name) / "run.json").read_text())["job_id"])


def losses(lab: Lab, name: str) -> list[tuple[int, str]]:
    """(step, loss) as printed, over all lives."""
    found = []
    for path in sorted((directory(lab, name) / "log").glob("*-0.log")):
        for line in path.read_text().splitlines():
            if line.startswith("loss "):
                _, step, loss = line.split()
                found.append((int(step), loss))
    return found


def reached(lab: Lab, name: str, step: int) -> None:
    def look() -> bool:
        looked(lab, name)
        return (step - 1) in {done for done, _ in losses(lab, name)}

    until(look, lambda: f"{name} does step {step - 1}\n{story(lab, name)}")


def looked(lab: Lab, name: str) -> bool:
    """Shorten Slurm's wait after a requeue, two minutes for a job that was requeued by itself; False."""
    # Not at once: a slurmd of 22.05 refuses a job that starts again within the second in which it was killed. And only
    # where the wait is long, or each look would postpone the start.
    shown = lab.slurm("scontrol", "-o", "show", "job", job(lab, name))
    eligible = re.search(r" Reason=BeginTime .* EligibleTime=(\S+)", shown)
    if eligible and states.seconds(eligible[1]) > time.time() + 3:
        lab.slurm("scontrol", "update", f"JobId={job(lab, name)}", "StartTime=now+2")
    return False


def story(lab: Lab, name: str) -> str:
    files = [*directory(lab, name).glob("events.*.jsonl"), *sorted((directory(lab, name) / "log").glob("*"))]
    return "\n".join(f"== {path.name}\n{path.read_text()}" for path in files if path.exists())


def events(lab: Lab, name: str) -> list[str]:
    return [str(event["event"]) for event in record.events(directory(lab, name))]


def nodes(lab: Lab, name: str) -> str:
    return [str(event["nodes"]) for event in record.events(directory(lab, name)) if event["event"] == "started"][-1]


def undisturbed(lab: Lab, script: str = "train.py") -> list[tuple[int, str]]:
    """What the program prints where nothing happens to it."""
    gate = lab.directory / "open"
    gate.write_text("1000")
    modules = resuming.install_module(lab.home)
    done = subprocess.run(
        [sys.executable, script], cwd=lab.project, capture_output=True, text=True, check=True,
        env={"GATE": str(gate), "PYTHONPATH": str(modules), "SPRITZ_CHECKPOINT_DIR": str(lab.directory / "own")},
    )  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("loss ")]
    return [(int(step), loss) for _, step, loss in lines]


def daemon(lab: Lab, node: str) -> int:
    """The process of the node's slurmd."""
    return next(
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if (words := _words(path))[-2:] == ["-N", node] and "slurmd" in " ".join(words)
        and f"SLURM_CONF={lab.conf}" in _words(path.with_name("environ"))
    )  # fmt: skip


def kill_node(lab: Lab, node: str) -> None:
    """SIGKILL for the node's daemon and all that it started: they have its host name's namespace."""
    pid = daemon(lab, node)
    namespace = os.readlink(f"/proc/{pid}/ns/uts")
    assert namespace != os.readlink("/proc/self/ns/uts")
    while members := [path for path in Path("/proc").glob("[0-9]*") if _namespace(path) == namespace]:
        for path in members:
            with suppress(ProcessLookupError):
                os.kill(int(path.name), signal.SIGKILL)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return []


def _namespace(process: Path) -> str:
    try:
        if (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return ""
        return os.readlink(process / "ns" / "uts")
    except OSError:
        return ""


def test_losses_continue_exactly_over_a_pause_a_preemption_and_a_dead_node(lab: Lab) -> None:
    check_training(lab, "train.py", "python3")


def test_a_pytorch_training_continues_exactly(lab: Lab) -> None:
    pytest.importorskip("torch")
    check_training(lab, "train_torch.py", sys.executable)


def check_training(
    lab: Lab, script: str, python: str, paused: str = "step-0000000010.ckpt", *, prompt: bool = True
) -> None:
    """`paused` is the checkpoint of a pause at step 10; `prompt` programs save before a preemption ends them.

    Where the QOS has no GraceTime, srun kills its tasks as soon as SIGTERM reaches the job's script.
    """
    name = start(lab, "-q", "low", "--slurm=--exclusive", "-C", "b", command=(python, script))
    open_to(lab, 10)
    reached(lab, name, 10)
    # A pause: nodes are given back, and the same run and job go on.
    assert f"is paused at {paused}" in lab("pause", name)
    assert lab.state(name) == "PAUSED"
    assert "PAUSED" in lab("runs")
    assert lab.slurm("squeue", "-h", "-t", "R", "-j", job(lab, name)) == ""
    open_to(lab, 20)
    lab("resume", name)
    reached(lab, name, 20)
    assert json.loads(lab("show", name, "--json"))["index"]["job_id"] == job(lab, name)
    # A preemption: SIGTERM, and Slurm requeues.
    wall = ("sbatch", "--parsable", "-q", "high", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1000")
    other = lab.slurm(*wall[:-2], "-w", nodes(lab, name), *wall[-2:]).strip()
    until(lambda: lab.slurm("squeue", "-h", "-t", "R", "-j", other), lambda: f"it preempts\n{story(lab, name)}")
    open_to(lab, 30)
    reached(lab, name, 30)
    steps = [step for step, _ in losses(lab, name)]
    assert (steps if prompt else sorted(set(steps))) == list(range(30)), "every step once"
    # kill -9 of the node and all on it: Slurm finds it down, and requeues.
    victim = nodes(lab, name)
    kill_node(lab, victim)
    open_to(lab, 1000)
    until(lambda: lab.slurm("sinfo", "-h", "-n", victim, "-t", "down", "-o", "%N"), f"{victim} is down")
    reached(lab, name, 60)
    until(lambda: lab.state(name) == "COMPLETED", lambda: f"it ends\n{story(lab, name)}")
    assert "lost" in events(lab, name)
    assert nodes(lab, name) != victim
    done = losses(lab, name)
    assert sorted(set(done)) == undisturbed(lab, script), story(lab, name)
    # Only the steps since the last checkpoint are done twice, with the same losses.
    assert len(done) - len(set(done)) <= (7 if prompt else 14)


def test_a_node_that_failed_under_a_run_and_is_back_is_not_used_again(lab: Lab) -> None:
    name = start(lab, "--slurm=--exclusive", "-C", "b")
    open_to(lab, 10)
    reached(lab, name, 10)
    victim = nodes(lab, name)
    others = ",".join(node for node in ("node5", "node6", "node7", "node8") if node != victim)
    slurmd = shutil.which("slurmd", path=lab.path)
    assert slurmd is not None
    # When it is back, it is the only node that the job can have.
    lab.slurm("scontrol", "update", f"NodeName={others}", "State=DRAIN", "Reason=test")
    kill_node(lab, victim)
    lab.slurm("scontrol", "update", f"NodeName={victim}", "State=DOWN", "Reason=killed")
    until(lambda: lab.slurm("squeue", "-h", "-t", "PD", "-j", job(lab, name)), "it is requeued")
    with subprocess.Popen(node_command(SITE, slurmd, victim), env=lab.variables(), stderr=subprocess.DEVNULL) as daemon:
        try:
            lab.slurm("scontrol", "update", f"NodeName={victim}", "State=RESUME")
            until(lambda: looked(lab, name) or "excluded" in events(lab, name), lambda: story(lab, name))
            lab.slurm("scontrol", "update", f"NodeName={others}", "State=RESUME")
            open_to(lab, 1000)
            reached(lab, name, 60)
            until(lambda: lab.state(name) == "COMPLETED", lambda: f"it ends\n{story(lab, name)}")
        finally:
            daemon.terminate()
    assert nodes(lab, name) != victim


@pytest.mark.parametrize("as_file", [True, False])
def test_a_shell_script_that_traps_the_signal_is_paused(lab: Lab, as_file: bool) -> None:
    text = "trap 'exit 75' USR1\necho life $SPRITZ_RESTART\nwhile ! [ -e over ]; do sleep 0.1 & wait $!; done\n"
    (lab.project / "train.sh").write_text(text.replace("over", f"{lab.directory}/over"))
    command = ("bash", "-e", "train.sh") if as_file else ("bash", "-c", (lab.project / "train.sh").read_text())
    name = start(lab, command=command)
    until(lambda: looked(lab, name) or "\nlife " in story(lab, name), lambda: story(lab, name))
    lab("pause", name)
    assert lab.state(name) == "PAUSED"
    lab("resume", name)
    (lab.directory / "over").touch()
    until(lambda: looked(lab, name) or lab.state(name) == "COMPLETED", lambda: story(lab, name))
    assert story(lab, name).count("\nlife ") == 2


def test_a_run_that_does_not_answer_goes_on_unless_forced(lab: Lab) -> None:
    name = start(lab, command=("bash", "-c", "echo ready; until [ -e /nonexistent ]; do read -t 0.1 < <(:); done"))
    until(lambda: lab.state(name) == "RUNNING", "it runs")
    process = lab.start("pause", name, "--grace", "1")
    _, error = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "It goes on running" in error
    assert "it has no checkpoint" in error
    assert f"`spritz pause --force --grace 0 {name}` stops it now" in error
    assert lab.state(name) == "RUNNING"
    assert "taken back" in lab("resume", name)
    lab("resume", name, status=1)
    assert "is paused, without a checkpoint" in lab("pause", "--force", "--grace", "0", name)
    assert lab.state(name) == "PAUSED"
    lab.slurm("scancel", job(lab, name))
    until(lambda: lab.state(name) == "CANCELLED", "it is cancelled")
    lab("resume", name, status=1)
    lab("pause", name, status=1)


def test_what_is_not_resumable_is_not_paused_once_it_runs(lab: Lab) -> None:
    name = lab("run", "-d", "--slurm=--hold", "--", "sleep", "1000").strip()
    assert "it had not been running" in lab("pause", name)
    assert lab.state(name) == "PAUSED"
    lab("resume", name)
    until(lambda: lab.state(name) == "RUNNING", "it runs")
    process = lab.start("pause", name)
    assert "was not started as resumable" in process.communicate(timeout=100)[1]
    assert lab.state(name) == "RUNNING"


def test_the_total_time_is_a_chain_of_lives_and_a_crash_loop_ends(lab: Lab) -> None:
    open_to(lab, 5)
    # The signal comes 20 s before the limit of a minute and before the total. A real Slurm looks every half minute and
    # sends it up to 30 s early: each life has at least 10 s, however its start falls between two looks.
    chain = lab("run", "-d", "-t", "1", "--max-time", "70s", "--grace", "20", "--env", f"GATE={lab.directory}/gate",
                "--", "python3", "train.py").strip()  # fmt: skip
    loop = start(lab, "--max-stalls", "1", command=("bash", "-c", "exit 75"))

    def ended(name: str) -> bool:
        looked(lab, name)
        return lab.state(name) == "FAILED"

    until(lambda: ended(loop), lambda: f"the loop ends\n{story(lab, loop)}")
    assert events(lab, loop).count("started") == 3
    assert "without a new checkpoint" in lab.start("logs", loop).communicate(timeout=100)[1]
    # Two to five lives; a real Slurm waits up to half a minute before each.
    until(lambda: ended(chain), lambda: f"the chain ends\n{story(lab, chain)}", 240)
    assert "requeued" in events(lab, chain)
    assert "--max-time" in lab.start("logs", chain).communicate(timeout=100)[1]
    assert [step for step, _ in losses(lab, chain)] == list(range(5))


def test_a_node_that_was_lost_but_is_not_dead_changes_no_checkpoint_and_no_result(lab: Lab) -> None:
    name = start(lab, "--slurm=--exclusive", "-C", "b")
    open_to(lab, 10)
    reached(lab, name, 10)
    victim = nodes(lab, name)
    # Its daemon is silent, and what it has started goes on.
    os.kill(daemon(lab, victim), signal.SIGSTOP)
    try:
        lab.slurm("scontrol", "update", f"NodeName={victim}", "State=DOWN", "Reason=silent")
        until(lambda: looked(lab, name) or events(lab, name).count("started") == 2, lambda: story(lab, name))
        assert nodes(lab, name) != victim
        open_to(lab, 1000)
        until(lambda: "superseded" in events(lab, name), lambda: f"the older life ends\n{story(lab, name)}")
        reached(lab, name, 60)
        until(lambda: lab.state(name) == "COMPLETED", lambda: f"it ends\n{story(lab, name)}")
    finally:
        kill_node(lab, victim)
    lines = record.events(directory(lab, name))
    assert {event["life"] for event in lines if event["event"] == "ended"} == {2}
    assert sorted(set(losses(lab, name))) == undisturbed(lab), story(lab, name)
