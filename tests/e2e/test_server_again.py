"""A child of the command server serves again after a short command, and nothing of one call meets the next.

See docs/decisions/0168.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.client.locate import controller_socket_name
from tests.e2e.cluster import until
from tests.e2e.launched import Launched
from tests.unit.cli.site import PORT, Site, open_site
from tests.unit.client.conversation import serving


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A controller with four nodes in this process."""
    directory = tmp_path / "site"
    directory.mkdir()
    with open_site(directory) as site:
        site.environ["SLURM_CONF"] = str(directory / "slurm.conf")
        yield site


def children(launched: Launched) -> set[int]:
    """The server's."""
    server = launched.servers()[-1]
    return set(map(int, Path(f"/proc/{server}/task/{server}/children").read_text().split()))


def has_rested(launched: Launched) -> set[int]:
    """The server's children when none of them is at work: they have no signal handlers of a call, and wait."""

    def resting() -> set[int]:
        found = children(launched)
        for pid in found:
            try:
                streams = {os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)}
            except OSError:
                return set()
            if streams != {os.devnull}:
                return set()
        return found

    return until(resting, "all children are idle")


def test_one_child_serves_many_calls(launched: Launched, site: Site) -> None:
    launched.warm()
    before = children(launched)
    for _ in range(3 * len(before) + 3):
        done = launched.run("squeue", SLURM_CONF=site.environ["SLURM_CONF"])
        assert (done.returncode, done.stderr) == (0, b"")
    assert before & children(launched)


def test_an_idle_child_holds_nothing_of_its_last_callers(launched: Launched, site: Site, tmp_path: Path) -> None:
    directory = tmp_path / "of the caller"
    directory.mkdir()
    launched.warm()
    words = ["sh", "-c", "umask 022; exec squeue"]
    environment = launched.environment(SLURM_CONF=site.environ["SLURM_CONF"])
    before = has_rested(launched)
    for _ in range(6):
        subprocess.run(words, cwd=directory, env=environment, stdout=subprocess.PIPE, timeout=100, check=True)
    for pid in has_rested(launched) & before:
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert "Umask:\t0077" in Path(f"/proc/{pid}/status").read_text()
        held = {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
        assert not any(str(directory) in path for path in held)


def test_environment_and_arguments_are_of_this_call_alone(launched: Launched, site: Site) -> None:
    job = str(site.submit(hold=True))
    launched.warm()
    conf = site.environ["SLURM_CONF"]
    calls: list[tuple[list[str], dict[str, str]]] = [
        (["squeue", "-h"], {"SQUEUE_FORMAT": "%i"}),
        (["squeue"], {}),
        (["scontrol", "show", "job", job], {"TZ": "Asia/Tokyo"}),
        (["scontrol", "show", "job", job], {"TZ": "UTC"}),
        (["scontrol", "show", "job", job], {"SLURM_TIME_FORMAT": "%s"}),
        (["sinfo"], {"SINFO_PARTITION": "none"}),
        (["sinfo"], {}),
    ]
    expected = [launched.call(words, env={"SLURM_CONF": conf, "SPRITZ_NO_SERVER": "1", **env}) for words, env in calls]
    for number in (*range(len(calls)), *reversed(range(len(calls)))):
        words, env = calls[number]
        served = launched.call(words, env={"SLURM_CONF": conf, **env})
        direct = expected[number]
        assert (served.returncode, served.stdout, served.stderr) == (direct.returncode, direct.stdout, direct.stderr)


def test_what_one_caller_ignores_ends_the_next(launched: Launched, site: Site) -> None:
    launched.warm()
    environment = launched.environment(SLURM_CONF=site.environ["SLURM_CONF"])
    for _ in range(3):
        subprocess.run(["sh", "-c", "trap '' TERM INT; exec squeue"], env=environment, capture_output=True, timeout=100)
    for _ in range(3):
        process = subprocess.Popen(["squeue", "-i", "30"], bufsize=0, stdout=subprocess.PIPE, env=environment)
        assert process.stdout is not None
        assert process.stdout.read(1), "it is at work"
        process.send_signal(signal.SIGTERM)
        assert process.wait(100) == -signal.SIGTERM
        process.stdout.close()


def test_signals_and_early_ends_leave_the_next_call_alone(launched: Launched, site: Site) -> None:
    """Launchers that are killed or interrupted at any moment, between calls that must all do their work."""
    launched.warm()
    environment = launched.environment(SLURM_CONF=site.environ["SLURM_CONF"])
    for number in range(30):
        disturbed = subprocess.Popen(
            ["sinfo"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(0.0003 * (number % 10))  # at another moment of the call each time
        disturbed.send_signal(signal.SIGKILL if number % 2 else signal.SIGINT)
        done = launched.run("squeue", "-h", "-o", "%i", SLURM_CONF=site.environ["SLURM_CONF"])
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        disturbed.wait(100)


@pytest.mark.parametrize("limit", ["-n 77", "-S -n 77", "-S -t 7777"])
def test_lowered_limits_end_with_their_call(launched: Launched, site: Site, limit: str) -> None:
    """Hard limits with the child; soft ones are put back, but for that of processor time, which is used up."""
    launched.warm()
    environment = launched.environment(SLURM_CONF=site.environ["SLURM_CONF"])
    before = has_rested(launched)
    for _ in range(2 * len(before)):
        script = f"ulimit {limit}; exec squeue"
        done = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, timeout=100)
        assert (done.returncode, done.stderr) == (0, b"")

    until(
        lambda: (
            not any(re.search(r" 77(77)? ", Path(f"/proc/{pid}/limits").read_text()) for pid in has_rested(launched))
        ),
        "no child with these limits is left",
    )
    if limit == "-S -n 77":
        assert before & has_rested(launched), "they go on serving"


def test_a_controller_that_was_restarted_is_connected_to_again(launched: Launched, tmp_path: Path) -> None:
    """The connection of an earlier call has ended, which no caller notices."""
    launched.warm()
    site = Site(tmp_path)
    conf = tmp_path / "slurm.conf"
    user = "root" if os.getuid() == 0 else str(os.getuid())
    name = f"again{os.getpid()}"
    conf.write_text(f"ClusterName={name}\nSlurmctldHost=localhost\nSlurmctldPort={PORT}\nSlurmUser={user}\n")
    for _ in range(3):
        with serving(site.table(), controller_socket_name(name, PORT)) as server:
            for _ in range(10):
                done = launched.run("sinfo", "-h", "-o", "%D", SLURM_CONF=str(conf))
                assert (done.returncode, done.stdout, done.stderr) == (0, b"4\n", b"")
            assert server.server is not None
            assert len(server.server.channels) < 10, "calls share connections"


def test_more_children_for_many_calls_and_fewer_afterwards(launched: Launched, site: Site) -> None:
    launched.warm()
    environment = launched.environment(SLURM_CONF=site.environ["SLURM_CONF"])
    processes = [
        subprocess.Popen(["squeue", "-i", "30"], bufsize=0, stdout=subprocess.PIPE, env=environment) for _ in range(6)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.read(1), "it is at work"
    until(lambda: len(children(launched)) >= 8, "two idle children in addition")
    for process in processes:
        process.terminate()
        process.wait(100)
        assert process.stdout is not None
        process.stdout.close()
    until(lambda: len(children(launched)) <= 3, "the others end with their calls")
