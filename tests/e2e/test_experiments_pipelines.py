"""Pipelines on a cluster of ours and on a real Slurm: fan-out, failure and retry, cache, submissions cut short."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.e2e.cluster import until
from tests.e2e.experiments_lab import Lab, cluster, lab

__all__ = ["cluster", "lab"]  # fixtures

pytestmark = [pytest.mark.xdist_group("experiments_pipelines"), pytest.mark.timeout(300)]

#: every call of a step leaves a line in `told`
PIPELINE = """\
import os, pathlib
from spritz.experiments.pipelines.definition import command, pipeline, step

def tell(text):
    with open(os.environ["TOLD"], "a") as file:
        file.write(text + "\\n")

@step(time="5m")
def shards(count):
    tell("shards")
    return [f"shard {n}" for n in range(count)]

@step(cpus_per_task=1, time="5m")
def train(shard, lr):
    tell(f"train {shard}")
    if pathlib.Path(os.environ["TOLD"] + ".fail").exists() and shard.endswith("1"):
        raise ValueError("no data in " + shard)
    return {"shard": shard, "loss": lr}

@step
def evaluate(model):
    tell(f"evaluate {model['shard']}")
    return model["loss"] * 2

@step
def report(losses, words):
    tell("report")
    return [sum(losses), words]

TEXT = r'echo words >> "$TOLD"; echo "\\"$GREETING\\"" > "$SPRITZ_OUTPUT"'

@pipeline
def nightly(count=3, lr=0.5):
    made = shards(count)
    losses = evaluate.map(train.map(made, lr=lr))
    words = command("words", TEXT, env={"GREETING": "hi"})
    return report(losses, words)
"""


def told(lab: Lab) -> list[str]:
    path = lab.directory / "told"
    return sorted(path.read_text().splitlines()) if path.exists() else []


def begin(lab: Lab, text: str = PIPELINE, file: str = "pipe.py") -> None:
    lab.environment["TOLD"] = str(lab.directory / "told")
    (lab.project / file).write_text(text)


def shown(lab: Lab, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(lab("pipeline", "show", name, "--json"))
    return loaded


def ends(lab: Lab, name: str, state: str) -> dict[str, dict[str, Any]]:
    """Its steps, when it has ended with this state."""
    until(lambda: shown(lab, name)["state"] not in ("RUNNING", "PENDING"), "the pipeline ends", 150)
    found = shown(lab, name)
    assert found["state"] == state, lab("pipeline", "show", name) + lab("runs", "--group", name)
    return {step["name"]: step for step in found["steps"]}


def value(lab: Lab, name: str, step: str) -> Any:
    import pickle

    return pickle.loads((lab.home / "pipelines" / name / "values" / step / "all.pkl").read_bytes())


ALL = sorted(["shards", "words", "report", *(f"{step} shard {n}" for step in ("train", "evaluate") for n in range(3))])


def test_a_step_fans_out_and_the_same_again_comes_from_the_cache(lab: Lab) -> None:
    begin(lab)
    assert json.loads(lab("pipeline", "run", "--json", "pipe.py"))["name"] == "nightly-1"
    (lab.project / "pipe.py").write_text("edited = True\n")
    steps = ends(lab, "nightly-1", "COMPLETED")
    assert [steps[name]["units"] for name in ("shards", "train", "evaluate", "report", "words")] == [1, 3, 3, 1, 1]
    assert value(lab, "nightly-1", "report") == [3.0, "hi"]
    assert told(lab) == ALL
    assert "nightly-1-train-2" in lab("runs", "--group", "nightly-1")
    begin(lab)
    assert lab("pipeline", "run", "pipe.py", "--wait").startswith("nightly-2\nnightly-2  COMPLETED  5 of 5 steps done")
    assert value(lab, "nightly-2", "report") == [3.0, "hi"]
    assert told(lab) == ALL
    assert not list((lab.home / "pipelines" / "nightly-2").glob("batches/*"))
    # Another parameter: what does not depend on it is kept.
    lab("pipeline", "run", "pipe.py", "--set", "lr=1", "--wait")
    assert value(lab, "nightly-3", "report") == [6, "hi"]
    assert [line for line in told(lab) if line in ("shards", "words")] == ["shards", "words"]


@pytest.mark.slow
def test_a_failed_item_blocks_what_needs_it_and_is_retried_alone_with_the_same_code(lab: Lab) -> None:
    begin(lab)
    (lab.directory / "told.fail").touch()
    lab("pipeline", "run", "pipe.py")
    steps = ends(lab, "nightly-1", "FAILED")
    assert steps["train"]["counts"] == {"COMPLETED": 2, "FAILED": 1}
    assert steps["evaluate"]["counts"] == {"COMPLETED": 2, "BLOCKED": 1}
    assert steps["report"]["state"] == "BLOCKED"
    drawn = lab("pipeline", "show", "nightly")
    assert "✗ train ×3" in drawn
    assert "spritz pipeline retry nightly-1" in drawn
    assert "no data in shard 1" in lab("logs", "nightly-1-train-1")
    assert "nightly-1-train-1 FAILED: it ended with exit status 1" in drawn
    assert "train[1] of pipe.py" in lab("show", "nightly-1-train-1")
    _, err = lab.start("rerun", "nightly-1-train-1").communicate(timeout=100)
    assert "`spritz pipeline retry nightly-1`" in err
    (lab.directory / "told.fail").unlink()
    (lab.project / "pipe.py").write_text("edited = True\n")
    lab("pipeline", "retry", "nightly-1", "--wait")
    assert value(lab, "nightly-1", "report") == [3.0, "hi"]
    assert told(lab) == sorted([*ALL, "train shard 1"])
    assert "nightly-1-train-1.2" in lab("runs", "--group", "nightly-1")
    assert "nightly-1-train-1.2 is the latest attempt of this step" in lab("show", "nightly-1-train-1")
    assert "[5 of 5 steps done] pipe.py" in lab("runs")
    assert lab("runs").splitlines()[1].split()[:2] == ["nightly-1", "COMPLETED"]
    _, err = lab.start("show", "nightly-1").communicate(timeout=100)
    assert "`spritz pipeline show nightly-1`" in err
    differences = lab("diff", "nightly-1-train-1", "nightly-1-train-1.2")
    assert not any(name in differences for name in ("SLURM_", "SPRITZ_", "MLFLOW_", "PWD")), differences


@pytest.mark.slow
def test_a_submission_killed_at_any_point_and_repeated_runs_each_step_once(lab: Lab) -> None:
    """`sbatch` stops its caller for good: before it queues the job, after that, and between jobs."""
    begin(lab)
    tools = lab.directory / "tools"
    tools.mkdir()
    real_path = lab.path
    calls = lab.directory / "calls"
    (tools / "sbatch").write_text(
        f"""#!/bin/bash
echo >> {calls}
count=$(wc -l < {calls})
export PATH={real_path}
case "$KILL" in
before-$count) kill -9 $PPID; exit 1 ;;
after-$count) sbatch "$@" > /dev/null; kill -9 $PPID; exit 0 ;;
twice) sbatch "$@" > /dev/null; exec sbatch "$@" ;;
*) exec sbatch "$@" ;;
esac
"""
    )
    (tools / "sbatch").chmod(0o755)
    lab.path = f"{tools}:{real_path}"
    lab("pipeline", "run", "--no-cache", "--name", "twice", "pipe.py", KILL="twice")
    ends(lab, "twice-1", "COMPLETED")
    assert told(lab) == ALL
    for kill in ("before-1", "after-1", "before-2", "after-2"):
        calls.unlink(missing_ok=True)
        (lab.directory / "told").unlink(missing_ok=True)
        name = f"cut-{kill}"
        lab.path = f"{tools}:{real_path}"
        lab("pipeline", "run", "--no-cache", "--name", name, "pipe.py", status=-signal.SIGKILL, KILL=kill)
        lab.path = real_path
        assert lab("pipeline", "run", "--no-cache", "--name", name, "pipe.py").strip() == f"{name}-1"
        ends(lab, f"{name}-1", "COMPLETED")
        assert told(lab) == ALL, kill
        names = [line.split()[0] for line in lab("runs", "--group", f"{name}-1").splitlines()[1:]]
        assert len(names) == len(set(names)) == 9


@pytest.mark.slow
def test_a_fan_out_killed_while_it_submits_is_finished_by_retry(lab: Lab) -> None:
    begin(
        lab,
        PIPELINE.replace('    tell("shards")\n', '    tell("shards")\n    os.environ["SLURM_CONF"] = "/nonexistent"\n'),
    )
    lab("pipeline", "run", "pipe.py")
    steps = ends(lab, "nightly-1", "INCOMPLETE")
    assert (steps["shards"]["state"], steps["train"]["state"]) == ("COMPLETED", "WAITING")
    lab("pipeline", "retry", "nightly-1", "--wait")
    assert told(lab) == ALL


def test_a_pipeline_in_yaml_with_commands_and_stop(lab: Lab) -> None:
    begin(
        lab,
        """\
name: words
parameters: {greeting: hello there}
steps:
  list:
    command: echo '["a b", "c"]' > "$SPRITZ_OUTPUT"
    time: 5
  say:
    map: list
    command: echo {greeting} {item} >> "$TOLD"; echo "{}" > "$SPRITZ_OUTPUT"
  wait:
    needs: [say]
    command: [sleep, "300"]
  never:
    needs: wait
    command: echo never {list} >> "$TOLD"
""",
        "words.yaml",
    )
    lab("pipeline", "run", "words.yaml")
    until(
        lambda: any(step["name"] == "wait" and step["state"] == "RUNNING" for step in shown(lab, "words")["steps"]),
        "the third step runs", 100,
    )  # fmt: skip
    lab("pipeline", "stop", "words")
    ends(lab, "words-1", "CANCELLED")
    assert told(lab) == ["hello there a b", "hello there c"]
    assert "words-1  CANCELLED" in lab("pipeline", "list")


def test_what_is_wrong_is_said_and_nothing_is_queued(lab: Lab) -> None:
    begin(lab)
    wrong = {
        "a.yaml": "steps: {a: {command: x, need: b}}",
        "b.yaml": "steps: {a: {command: x, needs: b}, b: {command: x, needs: a}}",
        "c.yaml": "steps: {a: {command: x, map: c}}",
        "d.py": "import nothing_there\n",
        "e.py": PIPELINE.replace('time="5m"', 'tine="5m"'),
        "f.py": PIPELINE.replace("shards(count)\n    losses", "shards(object())\n    losses"),
        "g.yaml": "steps: {a: {command: x, partition: nonexistent}}",
        "i.yaml": "steps: {a: {command: [x, --password, hunter2]}}",
        "j.yaml": "steps: {a: {command: x, env: {MY_TOKEN: abc}}}",
        "k.py": PIPELINE.replace("shards(count)\n    losses", "shards('hf_abcdefghijklmnopqrstuvwxyz')\n    losses"),
        "h.yaml": "steps: {a: {command: x, files: missing.csv}}",
    }
    said = {}
    for file, text in wrong.items():
        (lab.project / file).write_text(text)
        process = lab.start("pipeline", "run", file)
        out, said[file] = process.communicate(timeout=100)
        assert process.returncode not in (0, None), (file, out)
        assert "Traceback" not in said[file]
    assert "unknown key need (did you mean needs?)" in said["a.yaml"]
    assert "depend on one another: a, b" in said["b.yaml"]
    assert "no step c" in said["c.yaml"]
    assert "No module named 'nothing_there'" in said["d.py"]
    assert "unknown option tine (did you mean time?)" in said["e.py"]
    assert "argument 1: object cannot be written down" in said["f.py"]
    assert "partition" in said["g.yaml"]
    for file in ("i.yaml", "j.yaml", "k.py"):
        assert "a secret would be written down" in said[file]
    assert "missing.csv: no such file" in said["h.yaml"]
    assert lab("runs").startswith("No runs yet")
    assert not list((lab.home / "pipelines").glob("*"))
    assert "no such pipeline" in lab.start("pipeline", "show", "x").communicate(timeout=100)[1]
    assert os.listdir(lab.home / "runs") == [] if (lab.home / "runs").exists() else True


@pytest.mark.slow
def test_a_step_is_started_by_the_launcher_of_its_template(lab: Lab) -> None:
    """The program's interpreter is a script that shows what it was called with, on each of two nodes."""
    fake = lab.directory / "bin" / "python"
    fake.parent.mkdir()
    # As the real one, it waits for its peer.
    meet = f"cd {fake.parent}; touch $SLURM_NODEID; until [ -e 0 ] && [ -e 1 ]; do sleep 0.05; done"
    fake.write_text(f'#!/bin/sh\necho "node $SLURM_NODEID: $*"\n{meet}\necho 7 > "$SPRITZ_OUTPUT"\n')
    fake.chmod(0o755)
    steps = {
        "fit": {"command": [str(fake), "train.py", "--lr", "{lr}"], "template": "torchrun", "nodes": 2,
                "tasks_per_node": 1},
        "say": {"command": ["echo", "got", "{fit}"]},
    }  # fmt: skip
    (lab.project / "p.yaml").write_text(json.dumps({"parameters": {"lr": 0.5}, "steps": steps}))
    assert "COMPLETED  2 of 2 steps done" in lab("pipeline", "run", "--wait", "p.yaml")
    said = lab("logs", "p-1-fit")
    assert said.count("-m torch.distributed.run --nnodes=2 --nproc-per-node=1 --node-rank=") == 2
    assert said.count(" train.py --lr 0.5") == 2
    assert lab("logs", "p-1-say") == "got 7\n"


#: CODE is the version; of the old one item 1 fails, and `slow` runs while there is a file `told.hold`
VERSIONS = """\
import os, pathlib, time
from spritz.experiments.pipelines.definition import pipeline, step

def tell(text):
    with open(os.environ["TOLD"], "a") as file:
        file.write(text + " CODE\\n")

@step
def shards():
    tell("shards")
    return ["CODE", 1, 2]

@step
def train(shard):
    tell(f"train {shard}")
    if shard == 1 and "CODE" == "old":
        raise ValueError("broken")
    return shard

@step
def slow():
    tell("slow")
    while pathlib.Path(os.environ["TOLD"] + ".hold").exists():
        time.sleep(0.05)
    return 1

@step
def late(made):
    tell("late")
    return made

@step
def report(losses, made):
    tell("report")
    return [losses, made]

@pipeline
def fixed():
    return report(train.map(shards()), late(slow()))
"""


def test_a_fix_enters_a_pipeline_and_finished_steps_keep_their_results(lab: Lab) -> None:
    begin(lab, VERSIONS.replace("CODE", "old"))
    hold = lab.directory / "told.hold"
    hold.touch()
    assert lab("pipeline", "run", "pipe.py").strip() == "fixed-1"
    until(lambda: {step["name"]: step for step in shown(lab, "fixed-1")["steps"]}["train"]["counts"]
          == {"COMPLETED": 2, "FAILED": 1} and "slow old" in told(lab), "item 1 fails, and slow runs")  # fmt: skip
    first = ["shards old", "slow old", "train 1 old", "train 2 old", "train old old"]
    assert told(lab) == first
    begin(lab, VERSIONS.replace("CODE", "new"))
    # Interrupted before it has queued anything, then given again.
    bin_directory = lab.directory / "bin"
    bin_directory.mkdir()
    (bin_directory / "sbatch").write_text("#!/bin/sh\nkill -INT $PPID\nexec sleep 10\n")
    (bin_directory / "sbatch").chmod(0o755)
    process = lab.start("pipeline", "retry", "fixed", "--new-code", PATH=f"{bin_directory}:{lab.path}")
    process.communicate(timeout=100)
    assert process.returncode
    process = lab.start("pipeline", "retry", "fixed-1", "--new-code")
    _, error = process.communicate(timeout=100)
    assert process.returncode == 0, error
    assert "late, report" in error
    hold.unlink()
    steps = ends(lab, "fixed-1", "COMPLETED")
    assert told(lab) == sorted([*first, "train 1 new", "late new", "report new"])
    assert value(lab, "fixed-1", "report") == [["old", 1, 2], 1]
    assert [code["runs"] for code in shown(lab, "fixed-1")["codes"]] == [4, 3]
    drawn = lab("pipeline", "show", "fixed-1")
    assert "the code differs: 4 runs with " in drawn
    assert "fixed-1 has different code: " in lab("show", "fixed-1-slow")
    assert steps["late"]["runs"] == ["fixed-1-late.2"]
    # So it is after the index was lost; and nothing runs again.
    for path in lab.home.glob("runs.db*"):
        path.unlink()
    lab("runs", "--rebuild")
    assert [code["runs"] for code in shown(lab, "fixed-1")["codes"]] == [4, 3]
    _, error = lab.start("pipeline", "retry", "fixed-1", "--new-code").communicate(timeout=100)
    assert "nothing to submit" in error
    # What does not fit what has run is refused, and changes nothing.
    begin(lab, VERSIONS.replace("late", "later"))
    process = lab.start("pipeline", "retry", "fixed-1", "--new-code")
    assert "pipe.py has no step late any more" in process.communicate(timeout=100)[1]
    assert [path.name for path in (lab.home / "pipelines" / "fixed-1").glob("pipeline-*.json")] == ["pipeline-1.json"]
