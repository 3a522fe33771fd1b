"""pyxis's options over bwrap: images are made of this machine's own files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, processes_with, until
from tests.e2e.commands import lines, run, start
from tests.e2e.images import make_root


def _bwrap_works() -> bool:
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return False
    return not subprocess.run([bwrap, "--ro-bind", "/", "/", "true"], capture_output=True).returncode


pytestmark = pytest.mark.skipif(not _bwrap_works(), reason="bwrap is not there, or may not make namespaces")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    made = Cluster(nodes=1)
    try:
        yield made.start()
    finally:
        made.close()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With variables of its own."""
    root = make_root(tmp_path_factory.mktemp("image") / "root")
    (root / "etc" / "environment").write_text('FROM_IMAGE="yes"\n')
    return root


def test_tasks_run_in_the_image(cluster: Cluster, image: Path) -> None:
    shell = "cat /etc/where; echo $SLURM_PROCID $FROM_IMAGE; exit 3"
    done = run(cluster, "srun", "-n2", f"--container-image={image}", "sh", "-c", shell)
    assert done.returncode == 3
    assert sorted(lines(done.stdout)) == ["0 yes", "1 yes", "inside", "inside"]
    assert lines(run(cluster, "srun", f"--container-image={image}", "cat", stdin="in\n").stdout) == ["in"]
    here = run(cluster, "srun", f"--container-image={image}", "--container-workdir=/data", "sh", "-c", "pwd; id -u")
    assert lines(here.stdout) == ["/data", str(os.getuid())]


def test_mounts_are_seen_and_the_image_is_not_written_to(cluster: Cluster, image: Path, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("given\n")
    mounted = f"--container-mounts={tmp_path}:/data:ro,{tmp_path}:/tmp/rw"
    shell = "cat /data/given; touch /data/no; touch /etc/no; echo new > /tmp/rw/made"
    done = run(cluster, "srun", f"--container-image={image}", mounted, "sh", "-c", shell)
    assert lines(done.stdout) == ["given"]
    assert (tmp_path / "made").read_text() == "new\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given", "made"]
    assert not (image / "etc" / "no").exists()
    run(cluster, "srun", f"--container-image={image}", "--container-writable", "touch", "/etc/kept")
    assert (image / "etc" / "kept").exists()


def test_a_mount_needs_no_place_in_the_image(cluster: Cluster, image: Path, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("given\n")
    (image / "home").mkdir(exist_ok=True)
    (image / "home" / "kept").write_text("kept\n")
    (image / "link").symlink_to("/etc/where")
    mounted = f"--container-mounts={tmp_path}:/home/new/er:ro,{tmp_path}:{tmp_path}"
    shell = f"cat /home/new/er/given {tmp_path}/given /home/kept /link; touch /new /home/new/x; ls /"
    done = run(cluster, "srun", f"--container-image={image}", mounted, "sh", "-c", shell)
    given, rest = lines(done.stdout)[:4], lines(done.stdout)[4:]
    assert given == ["given", "given", "kept", "inside"]
    assert {"home", "etc", "link"} <= set(rest)
    assert "new" not in rest
    assert done.stderr.count(b"Read-only file system") == 2
    assert not (image / "home" / "new").exists()


def test_a_batch_script_runs_in_it(cluster: Cluster, image: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n#SBATCH --container-image={image}\ncat /etc/where; echo $1 $SLURM_JOB_ID\n")
    done = run(cluster, "sbatch", "--wait", "--parsable", "-o", str(tmp_path / "out"), str(script), "word")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out").read_text().splitlines() == ["inside", f"word {done.stdout.decode().strip()}"]


def test_an_archive_is_unpacked_once(
    cluster: Cluster, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "image.tar"
    subprocess.run(["tar", "-C", image, "-cf", archive, "."], check=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        done = run(cluster, "srun", "-n3", f"--container-image={archive}", "cat", "/etc/where")
        assert (done.returncode, lines(done.stdout)) == (0, ["inside"] * 3)
    kept = sorted((tmp_path / "cache" / "spritz" / "images").iterdir())
    assert [path.name for path in kept] == [kept[0].name, f"{kept[0].name}.lock"]


def test_what_a_killed_task_has_left_is_made_anew(
    cluster: Cluster, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "image.tar"
    subprocess.run(["tar", "-C", image, "-cf", archive, "."], check=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ("srun", f"--container-image={archive}", "cat", "/etc/where")
    assert run(cluster, *words).returncode == 0
    images = tmp_path / "cache" / "spritz" / "images"
    place = next(path for path in images.iterdir() if path.is_dir())
    half = place.rename(images / f"{place.name}.part")
    (half / "etc" / "where").unlink()
    assert lines(run(cluster, *words).stdout) == ["inside"]
    assert not half.exists()


def test_cancelling_ends_what_runs_inside(cluster: Cluster, image: Path) -> None:
    with start(cluster, "srun", "-J", "inside", f"--container-image={image}", "sleep", "1000") as srun:
        until(lambda: [job for job in cluster.jobs().values() if job.spec.name == "inside" and job.started_at], "runs")
        number = next(job.id for job in cluster.jobs().values() if job.spec.name == "inside")
        until(lambda: processes_with(f"SLURM_JOB_ID={number}"), "it runs inside")
        cluster.cancel(number)
        srun.communicate(timeout=100)
    cluster.wait_state(number, "CANCELLED")
    until(lambda: not processes_with(f"SLURM_JOB_ID={number}"), "nothing of it is left")


def test_what_cannot_be_is_said(cluster: Cluster, image: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.tar").write_bytes(b"no archive")
    (tmp_path / "file").write_bytes(b"")
    for words, told in (
        (("--container-image=/nosuch",), "couldn't start container: /nosuch: No such file or directory"),
        ((f"--container-image={tmp_path / 'broken.tar'}",), "couldn't unpack"),
        ((f"--container-image={tmp_path / 'file'}",), "or the name of an image is accepted"),
        ((f"--container-image={image}", "--container-mounts=/nosuch:/data"), "couldn't mount /nosuch"),
        ((f"--container-image={image}", "--container-mounts=/etc:/etc/where/x"), "/etc/where is no directory"),
        (("--container-workdir=/tmp",), "--container-image is needed"),
        ((f"--container-image={image}", "--container-mounts=:/data"), "SRC:DST[:FLAGS] is accepted"),
        ((f"--container-image={image}", "--container-mounts=/etc:/data:x"), "flag x is not supported"),
        ((f"--container-image={image}", "--container-workdir=data"), "the path must be absolute"),
        (("--container-image=",), "an image is needed"),
        ((f"--container-image={image}", "--container-name=n"), "containers do not outlive a step"),
    ):
        done = run(cluster, "srun", *words, "true")
        assert done.returncode, words
        assert told in done.stderr.decode(), words


def test_every_file_of_an_archive_is_there(
    cluster: Cluster, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices are left out, and nothing else that is called dev."""
    root = tmp_path / "root"
    shutil.copytree(image, root, symlinks=True)
    (root / "opt" / "dev").mkdir(parents=True)
    (root / "opt" / "dev" / "main.py").write_text("kept\n")
    archive = tmp_path / "image.tar"
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = run(cluster, "srun", f"--container-image={archive}", "cat", "/opt/dev/main.py")
    assert (done.returncode, lines(done.stdout)) == (0, ["kept"])
    (root / "oci-layout").write_text("{}")
    layout = tmp_path / "layout.tar"
    subprocess.run(["tar", "-C", root, "-cf", layout, "."], check=True)
    refused = run(cluster, "srun", f"--container-image={layout}", "true")
    assert refused.returncode
    assert b"archive" in refused.stderr


def test_what_an_image_sets_is_for_the_task_alone(cluster: Cluster, image: Path, tmp_path: Path) -> None:
    root, broken = tmp_path / "root", tmp_path / "lib"
    shutil.copytree(image, root, symlinks=True)
    broken.mkdir()
    (broken / "libcap.so.2").write_text("no library")
    (root / "etc" / "environment").write_text(f"LD_LIBRARY_PATH={broken}\n")
    done = run(cluster, "srun", f"--container-image={root}", "sh", "-c", "echo $LD_LIBRARY_PATH")
    assert (done.returncode, lines(done.stdout)) == (0, [str(broken)])
