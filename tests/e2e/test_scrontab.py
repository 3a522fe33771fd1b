"""scrontab, as users run it. Source: scrontab(1)."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.commands import environment, program, run

TEXT = """\
# a comment
WHO=world
#SCRON --time=5 -J greets
#SCRON --begin=now+1hour
* * * * * echo hello $WHO

@hourly /bin/true
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """With crontabs."""
    made = Cluster(nodes=1, extra="ScronParameters=enable")
    try:
        yield made.start()
    finally:
        made.close()


def scrontab(cluster: Cluster, *words: str, stdin: str = "") -> tuple[int, str, str]:
    """Status, standard output and standard error."""
    done = run(cluster, "scrontab", *words, stdin=stdin)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def jobs(cluster: Cluster) -> list[str]:
    """Name, state, reason and whether it is a job of a crontab."""
    listed = run(cluster, "squeue", "-h", "-S", "i", "-O", "name:|,state:|,reason:|,cronjob").stdout.decode()
    return [line.strip() for line in listed.splitlines()]


def test_a_crontab_is_written_listed_cancelled_and_removed(cluster: Cluster) -> None:
    user = run(cluster, "id", "-un").stdout.decode().strip()
    assert scrontab(cluster, "-l") == (1, f"no crontab for {user}\n", "")
    (cluster.work / "tab").write_text(TEXT)
    assert scrontab(cluster, "tab") == (0, "", "")
    assert scrontab(cluster, "-l") == (0, TEXT, "")
    assert jobs(cluster) == ["greets|PENDING|BeginTime|Yes", "/bin/true|PENDING|BeginTime|Yes"]
    record = run(cluster, "scontrol", "show", "job", "1").stdout.decode()
    assert 'CronJob=Yes CrontabSpec="* * * * *"' in record
    assert "Command=echo hello world" in record
    assert b"echo hello world" in run(cluster, "scontrol", "write", "batch_script", "1", "-").stdout
    refused = run(cluster, "scontrol", "update", "job", "1", "name=x")
    assert refused.returncode == 1
    assert b"Cannot modify scrontab jobs through scontrol" in refused.stderr

    assert run(cluster, "scancel", "2").returncode == 0
    disabled = TEXT.replace("@hourly", "#DISABLED: @hourly")
    cluster.kill_controller()
    cluster.start_controller()
    assert scrontab(cluster, "-l") == (0, disabled, "")
    assert len(jobs(cluster)) == 1
    assert scrontab(cluster, "-r") == (0, "", "")
    assert not jobs(cluster)
    assert scrontab(cluster, "-r") == (0, "", "")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("* * * *\n", "line 1: unexpected end of line: the day of week is missing\n* * * *\n       ^\n"),
        ("\n  0 99 * * * x\n", "line 2: bad hour specification: 99 is not within 0-24\n  0 99 * * * x\n    ^\n"),
        ("#SCRON --array=1-3\n* * * * * x\n", "line 1: unrecognized option '--array=1-3'\n"),
        ("#SCRON -t forever\n* * * * * x\n", "line 2: Invalid --time specification\n"),
    ],
)
def test_a_wrong_line_is_shown_and_nothing_changes(cluster: Cluster, text: str, complaint: str) -> None:
    expected = 1, "There are errors in your crontab.\n", f"scrontab: error: {complaint}"
    assert scrontab(cluster, stdin=text) == expected
    assert not jobs(cluster)


def test_an_entry_that_the_controller_refuses_names_its_lines(cluster: Cluster) -> None:
    done = scrontab(cluster, "-", stdin="#SCRON -p nowhere\n\n* * * * * x\n")
    assert done[0] == 1
    assert done[1].splitlines()[:2] == [
        "There was an issue with the job submission on lines 1-3",
        "The error code return was: Invalid partition name specified",
    ]


def test_the_command_line_is_checked(cluster: Cluster) -> None:
    for words in (("-l", "tab"), ("a", "b"), ("-x",)):
        status, _, complaint = scrontab(cluster, *words)
        assert status == 1
        assert complaint.startswith("usage:\tscrontab [-u user] file\n")
    assert scrontab(cluster, "-e")[2] == "scrontab: fatal: Standard input is not a TTY\n"
    assert scrontab(cluster, "-l", "-u", "nobody-at-all")[2] == "scrontab: fatal: Could not find user nobody-at-all\n"


def test_an_editor_gets_the_crontab_until_it_is_right(cluster: Cluster) -> None:
    """The editor appends a wrong line, and the second time a right one."""
    editor = cluster.work / "editor"
    editor.write_text('#!/bin/sh\nif grep -q "^#BAD: 1 2" "$1"; then echo "@daily true"; else echo 1 2; fi >> "$1"\n')
    editor.chmod(0o755)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [program("scrontab"), "-e"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(cluster, VISUAL=str(editor)),
    ) as running:
        os.write(ours, b"what\ny\n")
        said, complaint = running.communicate(timeout=100)
    os.close(ours)
    os.close(theirs)
    assert running.returncode == 0, complaint
    assert said.count(b"Do you want to retry the edit? (y/n)") == 2
    assert scrontab(cluster, "-l")[1].endswith("#BAD: 1 2\n@daily true\n")
    until(lambda: jobs(cluster) == ["true|PENDING|BeginTime|Yes"], "the job is queued")


def test_scrontab_is_off_by_default() -> None:
    made = Cluster(nodes=1)
    try:
        made.start_controller()
        assert scrontab(made, "-l")[2] == "scrontab: fatal: scrontab is disabled on this cluster\n"
    finally:
        made.close()
