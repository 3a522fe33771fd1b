"""Commands find their cluster's slurm.conf and in it the way to the controller. Source: slurm.conf(5)."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spritz.client import locate
from spritz.client.errors import ClientError
from spritz.client.locate import ControllerConfig, candidates, find_slurm_conf, locate_controller, state_home


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def scanned(tmp_path: Path, text: str) -> ControllerConfig:
    return locate_controller(str(written(tmp_path / "slurm.conf", text)))


def test_places_are_tried_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [
        tmp_path / "state/spritz/default/etc/slurm.conf",
        tmp_path / "prefix/etc/slurm/slurm.conf",
        tmp_path / "prefix/etc/slurm.conf",
    ]
    monkeypatch.setattr("os.path.exists", lambda path, real=os.path.exists: path[:5] != "/etc/" and real(path))
    for path in expected:
        written(path, "ClusterName=x\n")
        assert find_slurm_conf() == str(path)
    monkeypatch.setenv("SLURM_CONF", str(written(tmp_path / "other.conf", "")))
    assert find_slurm_conf() == str(tmp_path / "other.conf")
    assert candidates() == [str(tmp_path / "other.conf")]


def test_without_any_file_the_error_names_every_place_and_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.exists", lambda path: False)
    with pytest.raises(ClientError, match="Could not establish a configuration source") as failed:
        find_slurm_conf()
    for place in [*candidates(), "`spritz up`"]:
        assert place in failed.value.hint


def test_a_configured_file_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/no/such/slurm.conf")
    with pytest.raises(ClientError):
        locate_controller()
    with pytest.raises(ClientError, match="/no/such/slurm.conf: No such file or directory"):
        locate_controller("/no/such/slurm.conf")


def test_the_home_directory_comes_from_the_passwd_database_in_an_empty_environment() -> None:
    program = "import os; os.geteuid = lambda: 1; from spritz.client.locate import state_home; print(state_home())"
    got = subprocess.run([sys.executable, "-c", program], env={}, capture_output=True, text=True, check=True)
    assert got.stdout.strip() == os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".local/state/spritz")


def test_clusters_of_root_are_where_all_users_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users' commands and batch jobs pass through their directories; root's home is closed to them."""
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert state_home() == "/var/lib/spritz"
    written(tmp_path / ".local/state/spritz/default/etc/slurm.conf", "")
    assert state_home() == str(tmp_path / ".local/state/spritz"), "an earlier release made it"
    monkeypatch.setattr("os.geteuid", lambda: 1001)
    assert state_home() == str(tmp_path / ".local/state/spritz")


def test_relative_directories_in_the_environment_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    monkeypatch.setenv("HOME", "home")
    assert state_home().startswith("/")


def test_defaults_are_slurms(tmp_path: Path) -> None:
    assert scanned(tmp_path, "") == ControllerConfig(
        path=str(tmp_path / "slurm.conf"),
        cluster_name="cluster",
        hosts=("localhost",),
        names=("localhost",),
        port=6817,
        slurm_user="root",
        state_save_location="/var/spool",
        message_timeout_seconds=10.0,
    )


def test_a_file_of_another_kind_is_told(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="Unable to process configuration file .*: ClusterName needs to be specified"):
        scanned(tmp_path, "root:x:0:0:root:/root:/bin/bash\n")


def test_keys_are_read_in_any_case_with_comments_continuations_and_quotes(tmp_path: Path) -> None:
    config = scanned(
        tmp_path,
        """# ClusterName=commented
  CLUSTERNAME = Big # the new one
slurmctldhost=head1(10.0.0.1)
SlurmctldHost=head2
SlurmctldPort=7000-7003
SlurmUser = slurm
StateSaveLocation=\\
   "/var/lib/slurm state"
NodeName=n[1-4] CPUs=4 \\
  SlurmctldPort=1
MessageTimeout=60
SlurmctldParameters=SlurmctldPort=5
""",
    )
    assert config.cluster_name == "big"
    assert config.hosts == ("10.0.0.1", "head2")
    assert config.port == 7000
    assert config.slurm_user == "slurm"
    assert config.state_save_location == "/var/lib/slurm state"
    assert config.message_timeout_seconds == 60.0
    assert config.socket_name == "\0spritz/slurmctld/big/7000"


def test_included_files_are_read_in_place_and_relative_to_the_including_one(tmp_path: Path) -> None:
    written(tmp_path / "parts/hosts.conf", "SlurmctldHost=inner\nInclude deeper.conf\n")
    written(tmp_path / "parts/deeper.conf", "SlurmctldPort=6900\n")
    config = scanned(tmp_path, "ClusterName=c\ninclude parts/hosts.conf # more\nSlurmUser=bob\n")
    assert (config.hosts, config.port, config.slurm_user) == (("inner",), 6900, "bob")


def test_files_that_include_each_other_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="include each other"):
        scanned(tmp_path, "Include slurm.conf\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("SlurmctldPort=http", "invalid SlurmctldPort http"),
        ("SlurmctldPort=70000", "invalid SlurmctldPort 70000"),
        ("SlurmctldPort=6817-", "invalid SlurmctldPort 6817-"),
        ("MessageTimeout=0", "invalid MessageTimeout 0"),
        ("MessageTimeout=soon", "invalid MessageTimeout soon"),
    ],
)
def test_a_wrong_value_is_named_with_its_file(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ClientError, match=message) as failed:
        scanned(tmp_path, line)
    assert str(tmp_path / "slurm.conf") in failed.value.message


def test_bytes_that_are_no_text_do_not_stop_the_search(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    path.write_bytes(b"# caf\xe9\nClusterName=latin\nSlurmctldHost=h\xe9\n")
    assert locate_controller(str(path)).cluster_name == "latin"


def test_the_controller_may_run_as_root_or_as_the_slurm_user(tmp_path: Path) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    assert scanned(tmp_path, f"SlurmUser={me}").owners() == frozenset((0, os.getuid()))
    assert scanned(tmp_path, "SlurmUser=1234").owners() == frozenset((0, 1234))
    assert scanned(tmp_path, "").owners() == frozenset((0,))
    with pytest.raises(ClientError, match="Invalid user for SlurmUser no-such-user"):
        scanned(tmp_path, "SlurmUser=no-such-user").owners()


def test_an_address_that_moves_with_the_controller_is_taken_instead_of_the_hosts(tmp_path: Path) -> None:
    """slurm.conf(5) SlurmctldAddr."""
    path = written(tmp_path / "slurm.conf", "SlurmctldHost=a\nSlurmctldHost=b(10.0.0.2)\n")
    assert locate_controller(str(path)).hosts == ("a", "10.0.0.2")
    path = written(tmp_path / "slurm.conf", "SlurmctldHost=a\nSlurmctldAddr=10.0.0.9\n")
    assert locate_controller(str(path)).hosts == ("10.0.0.9",)


def _rested(monkeypatch: pytest.MonkeyPatch, path: Path) -> list[str]:
    """What is read from now on of a file that was read and has rested; the names of files that are opened."""
    now = [100.0]
    monkeypatch.setattr("spritz.client.locate.monotonic", lambda: now[0])
    for _ in range(2):
        locate_controller(str(path))
        now[0] += 1.0
    opened: list[str] = []

    def opening(name: str, *args: object, real: Callable[..., object] = open, **more: object) -> object:
        opened.append(name)
        return real(name, *args, **more)

    monkeypatch.setattr("builtins.open", opening)
    return opened


def test_files_that_have_rested_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = written(tmp_path / "slurm.conf", "Include more.conf\nSlurmctldHost=one\n")
    written(tmp_path / "more.conf", "SlurmctldPort=1111\n")
    opened = _rested(monkeypatch, main)
    found = locate_controller(str(main))
    assert (found.hosts, found.port, opened) == (("one",), 1111, [])


def test_a_file_that_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = written(tmp_path / "slurm.conf", "Include more.conf\nSlurmctldHost=one\n")
    more = written(tmp_path / "more.conf", "SlurmctldPort=1111\n")
    _rested(monkeypatch, main)
    more.write_text("SlurmctldPort=2222\n")  # of the same size
    os.utime(more, ns=(7, 7))
    assert locate_controller(str(main)).port == 2222
    main.write_text("SlurmctldHost=two\n")
    assert locate_controller(str(main)).hosts == ("two",)
    main.unlink()
    with pytest.raises(ClientError, match="No such file"):
        locate_controller(str(main))


def test_a_file_that_was_written_just_now_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two writes within a tick of the file system's clock have the same stamp."""
    monkeypatch.setattr("spritz.client.locate._stamp", lambda info: (info.st_size,))
    main = written(tmp_path / "slurm.conf", "SlurmctldHost=one\n")
    monkeypatch.setattr("spritz.client.locate.monotonic", lambda: 5.0)
    for host in ("one", "two", "six"):
        main.write_text(f"SlurmctldHost={host}\n")
        assert locate_controller(str(main)).hosts == (host,)


def test_one_call_of_a_command_sees_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What several parts of a command ask is answered from the same look; the next call looks again."""
    monkeypatch.setattr(locate, "_seen", None)
    main = written(tmp_path / "slurm.conf", "ClusterName=a\nSlurmctldPort=7000\n")
    _rested(monkeypatch, main)
    locate.begin_call()
    first = locate_controller(str(main))
    main.write_text("ClusterName=a\nSlurmctldPort=7001\n")
    assert locate_controller(str(main)) is first
    locate.begin_call()
    assert locate_controller(str(main)).port == 7001
