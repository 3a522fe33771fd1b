"""What a runtime is told, by a runtime that writes it down. With runc: tests/e2e/test_oci.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spritz.stepd import oci
from spritz.stepd.oci import Container, Task

#: what a task's environment is
_GIVEN = {"PATH": os.environ["PATH"], "A": "job", "B": "job", "TWO": "a\nb", "SLURM_CONF": "/x", "SPRITZ_STEP": "/s"}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    made = tmp_path / "bundle"
    made.mkdir()
    (made / "config.json").write_text(
        json.dumps(
            {
                "root": {"path": "rootfs", "readonly": True},
                "process": {"cwd": "/w", "args": ["x"], "env": ["A=bundle"]},
                "hooks": {"prestart": [{"path": "/a"}], "poststop": [{"path": "/b"}]},
            }
        )
    )
    return made


def _task(bundle: Path, **more: object) -> Task:
    known: dict[str, object] = {
        "bundle": str(bundle), "directory": str(bundle.parent), "job_id": 7, "step_id": 0, "task_id": 1, "node": "n1",
        "user": "ann", "uid": 5, "mark": "SPRITZ_STEP", "delete": "true", "kill": "true",
    }  # fmt: skip
    return Task(**{**known, **more})  # type: ignore[arg-type]


def _run(task: Task, *command: str) -> str:
    """Standard output of the runtime."""
    words = [sys.executable, "-m", "spritz.stepd.oci", "run", task.as_text(), *command]
    done = subprocess.run(words, capture_output=True, text=True, env={**_GIVEN, "PYTHONPATH": ":".join(sys.path)})
    return done.stdout + done.stderr


def test_everything_that_a_pattern_may_hold_is_filled_in(bundle: Path) -> None:
    """%@ is quoted for the shell, whatever is in it."""
    task = _task(bundle, run="printf '<%%s>' %b %e %j %m %n %r %s %t %u %U %@")
    where = f"{bundle.parent}/task-00001"
    expected = [where, f"{where}/environment", 7, where, "n1", f"{bundle}/rootfs", 0, 1, "ann", 5, "it's", "$HOME %b"]
    assert _run(task, "it's", "$HOME %b") == "".join(f"<{word}>" for word in expected)


def test_the_configuration_is_the_bundles_with_the_command_and_its_variables(bundle: Path) -> None:
    """What the bundle sets wins: PATH is that of the container. The step's mark is kept whatever is excluded."""
    task = _task(
        bundle,
        run="cat %b/config.json",
        disabled_hooks=("prestart", "createRuntime"),
        env_exclude="^(SLURM_CONF|SPRITZ_STEP)=",
        mount_spool_dir="/spool/%j",
        script="/script",
    )
    found = json.loads(_run(task, "/script", "word"))
    assert found["root"] == {"path": f"{bundle}/rootfs", "readonly": True}
    assert found["process"]["args"] == ["/tmp/slurm/startup", "word"]
    assert (found["process"]["cwd"], found["process"]["terminal"]) == ("/w", False)
    assert {"A=bundle", "B=job", "SPRITZ_STEP=/s"} <= set(found["process"]["env"])
    assert not any(line.startswith(("SLURM_CONF", "A=job")) for line in found["process"]["env"])
    assert found["hooks"] == {"poststop": [{"path": "/b"}]}
    bound = {mount["destination"]: (mount["source"], mount["options"]) for mount in found["mounts"]}
    assert bound == {
        "/spool/7": (f"{bundle.parent}/task-00001", ["bind"]),
        "/tmp/slurm/startup": ("/script", ["bind", "ro"]),
    }


@pytest.mark.parametrize(("kind", "lines"), [("newline", b"A=bundle\nB=job\n"), ("null", b"A=bundle\0B=job\0")])
def test_variables_are_written_to_a_file(bundle: Path, kind: str, lines: bytes) -> None:
    task = _task(bundle, run="cat %e", env_file=kind)
    said = _run(task, "true").encode()
    end = b"\n" if kind == "newline" else b"\0"
    assert set(lines.split(end)) <= set(said.split(end))
    assert (b"TWO=" in said) is (kind == "null")


def test_the_runtime_gets_the_tasks_variables_but_those_excluded(bundle: Path) -> None:
    task = _task(bundle, run="echo $A $B $SLURM_CONF", runtime_env_exclude="^B=")
    assert _run(task, "true") == "job /x\n"


def test_a_plain_directory_needs_no_configuration(bundle: Path) -> None:
    (bundle / "config.json").unlink()
    task = _task(bundle, run="echo %b %r %@", ignore_config=True, script="/script")
    assert _run(task, "/script", "a") == f"{bundle} {bundle} /script a\n"


def test_what_a_failed_runtime_says_is_the_tasks(bundle: Path) -> None:
    task = _task(bundle, create="echo no such thing >&2; exit 4", start="true", query="true")
    assert _run(task, "true") == "no such thing\nslurmstepd: error: container: RunTimeCreate failed with status 4\n"


def test_what_is_left_of_a_container_is_killed_and_deleted(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Killed until it is stopped, then deleted; files of the task are removed."""
    said = tmp_path / "said"
    query = f"test -e {tmp_path}/deleted || cat {tmp_path}/state"
    (tmp_path / "state").write_text('{"status": "running"}')
    kill = f'echo kill >> {said}; echo \'{{"status": "stopped"}}\' > {tmp_path}/state'
    task = _task(
        bundle, run="true", query=query, kill=kill, delete=f"echo delete %t >> {said}; touch {tmp_path}/deleted"
    )
    _run(task, "true")
    files = bundle.parent / "task-00001"
    assert files.exists()
    assert Container(task).end(os.getpid()) == 0
    assert said.read_text() == "kill\ndelete 1\n"
    assert not files.exists()
    kept = _task(bundle, run="true", keep_files=True)
    _run(kept, "true")
    assert Container(kept).end(os.getpid()) == 0
    assert (files / "config.json").exists()


def test_a_runtime_that_hangs_is_given_up(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(oci, "_COMMAND_SECONDS", 0.05)
    Container(_task(bundle, query="sleep 1000")).end(os.getpid())
    assert "RunTimeQuery has not ended within 0.05 s" in capsys.readouterr().err


def test_no_number_of_another_process_is_signalled(bundle: Path, tmp_path: Path) -> None:
    """%p is the task's pid, which may be reused once the task has been waited for."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    task = _task(bundle, run="true", kill=f"echo %p >> {tmp_path}/said", delete="true")
    Container(task).end(gone.pid)
    assert not (tmp_path / "said").exists()
    Container(task).end(os.getpid())
    assert (tmp_path / "said").read_text() == f"{os.getpid()}\n"


def test_devices_of_the_step_are_given(bundle: Path) -> None:
    """What there is not, or is no device, is left out."""
    task = _task(bundle, run="cat %b/config.json", devices=("/dev/full", "/dev/none", "/etc/hosts"))
    linux = json.loads(_run(task, "true"))["linux"]
    assert [(found["path"], found["major"], found["minor"]) for found in linux["devices"]] == [("/dev/full", 1, 7)]
    assert linux["resources"]["devices"] == [{"allow": True, "type": "c", "major": 1, "minor": 7, "access": "rwm"}]
