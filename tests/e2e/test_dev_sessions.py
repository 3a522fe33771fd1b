"""Dev sessions, commands inside a run, guard, notifications and quotas: on a cluster of ours and on a real Slurm."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from spritz.experiments.records import record
from tests.e2e.cluster import until
from tests.e2e.experiments_lab import Lab, cluster, lab

__all__ = ["cluster", "lab"]  # fixtures

pytestmark = [pytest.mark.xdist_group("dev_sessions"), pytest.mark.timeout(300)]


def typed(lab: Lab, text: str, *words: str, status: int = 0) -> str:
    """What `spritz WORDS` prints with this standard input."""
    command = [sys.executable, "-c", "from spritz.cli.spritz import entry; entry()", *words]
    done = subprocess.run(
        command, cwd=lab.project, env=lab.variables(), input=text, text=True, capture_output=True, timeout=100
    )
    assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def running(lab: Lab, *words: str) -> str:
    name = lab(*words).strip()
    until(lambda: lab.state(name) == "RUNNING", f"{name} runs")
    return name


def events(lab: Lab, name: str) -> list[dict[str, object]]:
    return record.events(lab.home / "runs" / name)


def test_exec_has_the_environment_directory_and_rank_of_the_run(lab: Lab) -> None:
    (lab.project / "wait.sh").write_text("export INSIDE=yes\necho begun\nsleep 300\n")
    name = running(lab, "run", "-d", "-N", "2", "--env", "FOO=a b", "--", "bash", "wait.sh")
    until(lambda: lab("logs", name).count("begun") == 2, "both ranks have begun")
    asked = ("--", "bash", "-c", "echo $FOO $SLURM_PROCID $SPRITZ_RUN; pwd; exit 3")
    assert lab("exec", name, *asked, status=3) == f"a b 0 {name}\n{lab.home}/runs/{name}/code\n"
    assert lab("exec", name, "--rank", "1", *asked, status=3).startswith(f"a b 1 {name}\n")
    assert lab("exec", name, "--node", "1", *asked, status=3).startswith(f"a b 1 {name}\n")
    lab("exec", name, "--rank", "2", *asked, status=1)
    assert typed(lab, "echo $SPRITZ_RUN\nexit 4\n", "ssh", name, status=4) == f"{name}\n"
    data = os.urandom(200_000).hex()
    assert typed(lab, data, "exec", name, "--", "cat") == data
    lab.slurm("scancel", str(lab.run_json(name)["index"]["job_id"]))  # type: ignore[index]  # JSON
    until(lambda: lab.state(name) == "CANCELLED", "it ends")
    lab("exec", name, "--", "true", status=1)


def test_a_shell_session_runs_in_place_and_ends_with_its_shell(lab: Lab) -> None:
    assert typed(lab, "pwd; echo $SPRITZ_RUN; exit 5\n", "dev", "--gpus", "1", status=5) == f"{lab.project}\ndev-1\n"
    until(lambda: lab.state("dev-1") == "COMPLETED", "the session ends")


def test_options_of_the_projects_runs_do_not_shape_a_session(lab: Lab) -> None:
    (lab.project / "spritz.yaml").write_text("run: {template: torchrun, resumable: true, tags: [mine]}\n")
    assert typed(lab, "echo here\n", "dev") == "here\n"
    assert lab("runs", "--tag", "mine").count("spritz dev --shell") == 1
    until(lambda: lab.state("dev-1") == "COMPLETED", "the session ends, before its directory is removed with the test")
    lab("dev", "--template", "torchrun", status=2)
    assert "--template" not in lab("dev", "--help")
    for words, complaint in ((("extend", "dev-1"), "extend NAME TIME is expected"), (("lst",), "did you mean list?")):
        process = lab.start("dev", *words)
        assert complaint in process.communicate(timeout=100)[1]
        assert process.returncode == 2


@pytest.mark.slow
def test_an_idle_session_is_warned_of_and_ends(lab: Lab) -> None:
    name = lab("dev", "-d", "--idle", "6s").strip()
    until(lambda: lab.state(name) == "COMPLETED", "the session ends")
    said = [event.get("action") for event in events(lab, name) if event["event"] == "idle"]
    # On a busy machine what the session itself still does may count as work, after which it is warned of again.
    assert (set(said[:-1]), said[-1]) == ({"warn"}, "end")
    assert "this session ends in" in lab("logs", name)


@pytest.mark.slow
def test_the_shell_of_a_session_that_ends_is_told_and_hung_up(lab: Lab) -> None:
    """An interactive shell ignores Slurm's SIGTERM: without a hang-up it would be killed half a minute later."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(lab.project)
        words = [sys.executable, "-c", "from spritz.cli.spritz import entry; entry()", "dev", "--idle", "6s"]
        os.execve(sys.executable, words, lab.variables(SHELL="/bin/bash"))
    said, ended_at = bytearray(), 0.0
    try:
        with suppress(OSError):  # the terminal is closed
            while data := os.read(terminal, 4096):
                said += data
                if not ended_at and b"the session ends" in said:
                    ended_at = time.monotonic()
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    assert b"this session ends in" in said
    assert b"the session ends" in said
    assert b"Killed" not in said, said
    until(lambda: lab.state("dev-1") == "COMPLETED", "the session ends")
    assert lab("dev", "stop", "dev-1") == "dev-1 has ended already\n"


@pytest.mark.slow
def test_a_busy_session_does_not_end_and_stop_ends_it(lab: Lab) -> None:
    name = running(lab, "dev", "-d", "--idle", "3s")
    lab("exec", name, "--", "timeout", "8", "sh", "-c", "while :; do :; done", status=124)
    assert not any(event.get("action") == "end" for event in events(lab, name))
    assert name in lab("dev", "list")
    lab("dev", "stop", name)
    until(lambda: lab.state(name) == "COMPLETED", "the session ends")
    assert lab("dev", "list").startswith("No dev sessions")


def test_more_time_is_given_where_it_may_be(lab: Lab) -> None:
    name = running(lab, "dev", "-d", "--time", "30")
    job = str(lab.run_json(name)["index"]["job_id"])  # type: ignore[index]  # JSON
    lab("dev", "extend", name, "2h")
    assert "TimeLimit=02:30:00" in lab.slurm("scontrol", "show", "job", job)
    assert "idle time starts again" in lab("dev", "extend", name, "0")
    lab("dev", "extend", name, "soon", status=2)
    lab("dev", "stop", name)
    until(lambda: lab.state(name) == "COMPLETED", "the session ends")


@pytest.mark.skipif(
    shutil.which("sshd", path=f"/usr/sbin:{os.environ['PATH']}") is None or shutil.which("ssh") is None,
    reason="needs openssh-server and openssh-client",
)
def test_ssh_leads_into_the_session_and_what_is_written_is_taken_back(lab: Lab) -> None:
    folder = lab.directory / ".ssh"
    folder.mkdir()
    (folder / "config").write_text("Host mine\n    User me\n")
    name = lab("dev", "--vscode", "--env", "FOO=bar").splitlines()[0].removeprefix("spritz-")
    assert (folder / "config").read_text().splitlines()[1] == "Include ~/.ssh/config.d/spritz.conf"

    def ssh(*words: str) -> str:
        # ssh itself takes the home directory from the user database.
        command = ["ssh", "-F", str(folder / "config.d" / "spritz.conf"), f"spritz-{name}", *words]
        done = subprocess.run(command, env=lab.variables(), capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        assert "srun" not in done.stderr
        return done.stdout

    assert ssh("echo $SPRITZ_RUN $FOO $SLURM_JOB_ID; pwd").splitlines() == [
        f"{name} bar {lab.run_json(name)['index']['job_id']}",  # type: ignore[index]  # JSON
        str(lab.project),
    ]
    copied = lab.directory / "copied.py"
    command = ["scp", "-q", "-F", str(folder / "config.d" / "spritz.conf"), f"spritz-{name}:{lab.project}/train.py"]
    subprocess.run([*command, str(copied)], env=lab.variables(), check=True, timeout=100)
    assert copied.read_bytes() == (lab.project / "train.py").read_bytes()
    lab("dev", "stop", name)
    until(lambda: lab.state(name) == "COMPLETED", "the session ends")
    assert (folder / "config").read_text() == "Host mine\n    User me\n"
    assert not (folder / "config.d" / "spritz.conf").exists()


def jupyter() -> str:
    """Where jupyter-lab is: on PATH, or in an environment of its own that $SPRITZ_TEST_JUPYTER names."""
    path = os.pathsep.join(
        [os.environ.get("SPRITZ_TEST_JUPYTER", ""), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    found = shutil.which("jupyter-lab", path=path)
    return str(Path(found).parent) if found else ""


@pytest.mark.skipif(not jupyter(), reason="needs jupyterlab (SPRITZ_TEST_JUPYTER names the directory of jupyter-lab)")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of answers that are errors
def test_jupyterlab_answers_here_and_only_with_its_token(lab: Lab) -> None:
    process = lab.start("dev", "--jupyter", PATH=f"{lab.path}:{jupyter()}")
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    base, _, token = url.partition("/lab?token=")
    assert len(token) == 48, process.communicate(timeout=100)[1]

    def get(path: str, token: str) -> bytes:
        request = urllib.request.Request(f"{base}/{path}", headers={"Authorization": f"token {token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            body: bytes = answer.read()
            return body

    assert b"jupyter" in get("lab", token)
    assert json.loads(get("api/status", token))["kernels"] == 0
    with pytest.raises(urllib.error.HTTPError):
        get("api/status", "wrong")
    for path in lab.home.rglob("*"):
        if path.is_file() and token.encode() in path.read_bytes():
            assert path.parent.name == "jupyter", path  # the server's own
            assert not path.parent.stat().st_mode & 0o077
    lab("dev", "stop", "dev")
    process.communicate(timeout=100)
    until(lambda: lab.state("dev-1") == "COMPLETED", "the session ends")


@contextmanager
def heard() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """An address that takes notifications, and those that came."""
    found: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"json://127.0.0.1:{server.server_port}/a-token-of-mine", found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
def test_the_guard_warns_then_ends_and_tells_without_leaving_the_address(lab: Lab) -> None:
    pytest.importorskip("apprise")
    (lab.project / "spritz.yaml").write_text(
        "notify: [$HOOK]\nguard: {watch: cpu, warn_after: 2s, end_after: 4s, action: end}\n"
    )
    with heard() as (address, found):
        process = lab.start("run", "--", "sleep", "300", HOOK=address)
        _, err = process.communicate(timeout=100)
        assert "its guard ended it: the CPUs had been idle" in err
        until(lambda: "sleep-1 failed" in [item["title"] for item in found], "the end is told")
        assert any("its guard ended it" in item["message"] for item in found)
        assert [item["title"] for item in found].count("sleep-1 is idle") == 1
    process = lab.start("run", "--", "true", HOOK="json://127.0.0.1:9/a-token-of-mine")
    process.communicate(timeout=100)
    until(lambda: "not sent to json://" in lab("show", "true"), "it is said that nothing could be sent")
    for path in lab.home.rglob("*"):
        if path.is_file():
            assert b"a-token-of-mine" not in path.read_bytes(), path


@pytest.mark.slow
def test_a_guard_that_reports_lets_the_run_go_on(lab: Lab) -> None:
    (lab.project / "spritz.yaml").write_text("guard: {watch: cpu, warn_after: 1s, end_after: 2s}\n")
    assert lab("run", "--", "bash", "-c", "sleep 6; echo done").endswith("done\n")
    actions = [event["action"] for event in events(lab, "bash-1") if event["event"] == "idle"]
    assert actions == ["warn", "report"]


@pytest.mark.slow
def test_limits_are_told_in_words(lab: Lab) -> None:
    user = subprocess.run(["id", "-un"], text=True, capture_output=True, check=True).stdout.strip()
    lab.slurm("sacctmgr", "-i", "modify", "user", user, "set", "MaxJobs=3", "GrpTRES=cpu=4")
    name = running(lab, "run", "-d", "--", "sleep", "300")
    said = lab("quota", USER=user, LOGNAME=user)
    assert "  your jobs: at most 3 running; 1 running, 2 left\n" in said
    assert "  your jobs together: at most 4 CPUs; 1 in use, 3 left\n" in said
    told = json.loads(lab("quota", "--json", USER=user, LOGNAME=user))
    assert told["user"] == user
    assert "your jobs: at most 3 running; 1 running, 2 left" in told["sections"][0]["limits"]
    lab.slurm("scancel", str(lab.run_json(name)["index"]["job_id"]))  # type: ignore[index]  # JSON
    lab.slurm("sacctmgr", "-i", "modify", "user", user, "set", "MaxJobs=-1", "GrpTRES=cpu=-1")
