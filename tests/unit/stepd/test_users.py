"""Steps of other users, where the tests run as root: nothing is done with root's rights that the user has not."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spritz.stepd import spec

from .conftest import PATIENCE_SECONDS, Identity, TaskSpec, Zygote, wait_until

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="only root runs steps of others")]

#: An unused number: no entry in the user database is needed to run under it.
STRANGER = Identity(64_901, 64_902, (64_902, 64_903), "stranger")


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    """A zygote whose spool others can reach."""
    with tempfile.TemporaryDirectory(prefix="spritz-stepd-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "spool").mkdir(mode=0o755)
        (directory / "work").mkdir()
        os.chown(directory / "work", STRANGER.uid, STRANGER.gid)
        made = Zygote(directory / "spool")
        yield made
        made.close()


def test_a_task_has_the_users_ids_and_groups_and_nothing_more(zygote: Zygote) -> None:
    work = zygote.spool.parent / "work"
    script = "#!/bin/sh\nid -u; id -g; id -G; grep -h CapEff /proc/self/status; touch mine; head -c 9 $0; echo\n"
    result = zygote.batch(script, work / "sub" / "out", identity=STRANGER, work_dir=str(work)).result()
    assert result.tasks[0].status == 0
    lines = (work / "sub" / "out").read_text().split("\n")
    assert lines[:3] == ["64901", "64902", "64902 64903"]
    assert lines[3].split() == ["CapEff:", "0000000000000000"]
    assert lines[4:5] == ["#!/bin/sh"]
    for path in (work / "mine", work / "sub", work / "sub" / "out"):
        assert (path.stat().st_uid, path.stat().st_gid) == (STRANGER.uid, STRANGER.gid)


def test_files_that_the_user_may_not_write_are_not_written_by_root(zygote: Zygote) -> None:
    forbidden = zygote.spool.parent / "roots"
    forbidden.write_text("precious")
    forbidden.chmod(0o644)
    result = zygote.batch("#!/bin/sh\necho no\n", forbidden, identity=STRANGER).result()
    assert result.error == f"Could not open stdout file {forbidden}: Permission denied"
    assert forbidden.read_text() == "precious"


def test_users_cannot_read_the_record_or_reach_the_supervisor_of_their_step(zygote: Zygote) -> None:
    work = zygote.spool.parent / "work"
    script = (
        "#!/bin/sh\nd=$(dirname $0)\ncat $d/step 2>&1; ls $d 2>&1\n"
        "python3 -c 'import socket as s, sys; s.socket(s.AF_UNIX).connect(sys.argv[1])' $d/control 2>&1 | tail -1\n"
        "kill -9 $PPID 2>&1\n"
    )
    zygote.batch(script, work / "out", identity=STRANGER, work_dir=str(work)).result()
    said = (work / "out").read_text()
    assert said.count("Permission denied") == 3, said
    assert "not permitted" in said


def test_an_address_that_the_user_may_not_connect_to_is_not_connected_to_by_root(zygote: Zygote) -> None:
    path = zygote.spool.parent / "door"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(1)
        listener.settimeout(0.1)
        task = TaskSpec(0, ("true",), (), (), spec.NOTHING, spec.CLIENT, spec.CLIENT)
        running = zygote.launch(tasks=(task,), identity=STRANGER, io_address=f"unix:{path}", io_key="k")
        assert "Permission denied" in running.result().error
        with pytest.raises(TimeoutError):
            listener.accept()


def test_a_terminal_belongs_to_the_user(zygote: Zygote) -> None:
    name = f"spritz-users-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen(1)
        listener.settimeout(PATIENCE_SECONDS)
        task = TaskSpec(0, ("sh", "-c", "stat -c %u $(tty)"), (), (), spec.CLIENT, spec.CLIENT, spec.CLIENT)
        zygote.launch(tasks=(task,), identity=STRANGER, pty=True, io_address=f"unix:@{name}", io_key="k")
        connection, _ = listener.accept()
        received = b""
        while data := connection.recv(65536):
            received += data
        connection.close()
    assert b"64901\r\n" in received


def test_a_user_without_a_number_runs_nothing(zygote: Zygote) -> None:
    work = zygote.spool.parent / "work"
    result = zygote.batch("#!/bin/sh\nid\n", work / "out", identity=Identity(1001, -1)).result()
    assert "not a user" in result.error
    assert not (work / "out").exists()


def test_a_script_can_be_run_by_its_user_and_neither_changed_nor_read_by_others(zygote: Zygote) -> None:
    """Else any user could fill SlurmdSpoolDir."""
    work = zygote.spool.parent / "work"
    script = (
        "#!/bin/sh\ncat $0 | head -c 9; echo\n"
        "for change in 'echo >>' 'chmod 700' 'rm -f' 'mv -t /tmp' ; do sh -c \"$change $0\" 2>&1; done\n"
        "touch $(dirname $0)/mine 2>&1\nls -ln $0; while ! test -e go; do sleep 0.01; done\n"
    )
    running = zygote.batch(script, work / "out", identity=STRANGER, work_dir=str(work))
    wait_until(lambda: (work / "out").exists() and "slurm_script\n" in (work / "out").read_text(), "it has tried all")
    path = running.directory / spec.SCRIPT
    others = ((STRANGER.uid + 1, STRANGER.gid), (STRANGER.uid + 1, 0))
    seen = [
        subprocess.run(["cat", path], user=uid, group=gid, extra_groups=[], capture_output=True) for uid, gid in others
    ]
    (work / "go").touch()
    assert running.result().tasks[0].status == 0
    assert [b"Permission denied" in one.stderr for one in seen] == [True, True]
    said = (work / "out").read_text()
    assert said.startswith("#!/bin/sh\n")
    refused = said.count("Permission denied") + said.count("not permitted") + said.count("cannot")
    assert refused >= 5, said
    assert path.read_text() == script
    assert path.stat().st_uid == 0
