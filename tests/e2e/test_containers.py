"""pyxis's options over bwrap: images are made of this machine's own files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.commands import lines, run, start
from tests.e2e.images import add_libraries, make_root


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
def machine() -> Iterator[Cluster]:
    """A node that is a machine, not a virtual node: podman works there for ordinary users too."""
    made = Cluster(nodes=1, slurmd_parameters="config_overrides")
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


def test_leftovers_of_a_killed_task_are_replaced(
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
        until(lambda: cluster.job_processes(number), "it runs inside")
        cluster.cancel(number)
        srun.communicate(timeout=100)
    cluster.wait_state(number, "CANCELLED")
    until(lambda: not cluster.job_processes(number), "nothing of it is left")


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
        (("--container-name=none",), "there is none with the name none, and no --container-image"),
        ((f"--container-image={image}", "--container-name=../up"), "letters, digits and _ . - are accepted"),
        ((f"--container-image={image}", "--container-name=n:exec"), "the flag exec is not supported"),
        ((f"--container-image={image}", "--container-name=n:new"), 'flag must be "auto"'),
        ((f"--container-image={image}", "--container-save=/tmp/"), "target is a directory"),
        ((f"--container-image={image}", "--container-env=A,"), "invalid format"),
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


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "spritz"


def test_a_container_with_a_name_is_kept(cluster: Cluster, image: Path, cache: Path) -> None:
    named = "--container-name=mine"
    first = run(
        cluster, "srun", "-n2", f"--container-image={image}", f"{named}:create", "sh", "-c", "echo x >> /etc/made"
    )
    assert first.returncode == 0, first.stderr
    assert not (image / "etc" / "made").exists()
    again = run(cluster, "srun", named, "sh", "-c", "cat /etc/made; echo $FROM_IMAGE")
    assert lines(again.stdout) == ["x", "x", "yes"]
    read_only = run(cluster, "srun", named, "--container-readonly", "touch", "/etc/no")
    assert b"Read-only" in read_only.stderr
    there = run(cluster, "srun", f"--container-image={image}", f"{named}:create", "true")
    assert there.returncode
    assert b"the container exists already" in there.stderr
    shutil.rmtree(cache / "containers" / "mine")
    assert run(cluster, "srun", named, "true").returncode


def test_a_container_is_saved_when_the_step_has_ended(
    cluster: Cluster, image: Path, cache: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "saved.tar"
    words = (f"--container-image={image}", f"--container-save={saved}")
    done = run(cluster, "srun", "-n2", *words, "sh", "-c", "echo $SLURM_PROCID > /etc/rank$SLURM_PROCID")
    assert done.returncode == 0, done.stderr
    assert not (image / "etc" / "rank0").exists()
    seen = run(cluster, "srun", f"--container-image={saved}", "sh", "-c", "cat /etc/rank0 /etc/rank1; echo $FROM_IMAGE")
    assert lines(seen.stdout) == ["0", "1", "yes"]
    assert list((cache / "containers").iterdir()) == []
    unwritable = run(cluster, "srun", f"--container-image={image}", "--container-save=/proc/x.tar", "true")
    assert b"the container of task 0 could not be ended or saved" in unwritable.stderr
    assert list((cache / "containers").iterdir()) == []
    script = f"#!/bin/sh\n#SBATCH --container-image={image} --container-save={tmp_path}/batch.tar\necho > /etc/batch\n"
    assert run(cluster, "sbatch", "--wait", "-o", str(tmp_path / "out"), "/dev/stdin", stdin=script).returncode == 0
    names = subprocess.run(["tar", "-tf", tmp_path / "batch.tar"], capture_output=True, text=True).stdout
    assert "./etc/batch" in names.splitlines()


def test_variables_of_the_jobs_win_where_they_are_named(cluster: Cluster, image: Path) -> None:
    words = ("srun", f"--container-image={image}", "--container-env=OTHER,FROM_IMAGE", "sh", "-c", "echo $FROM_IMAGE")
    assert lines(run(cluster, *words, FROM_IMAGE="job").stdout) == ["job"]


def test_the_entry_point_runs_the_command_if_it_is_to(cluster: Cluster, image: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(image, root, symlinks=True)
    (root / "etc" / "rc").write_text('export BY_RC=yes; exec "$@"\n')
    words = ("sh", "-c", "echo $BY_RC")
    assert lines(run(cluster, "srun", f"--container-image={root}", "--container-entrypoint", *words).stdout) == ["yes"]
    assert lines(run(cluster, "srun", f"--container-image={root}", *words).stdout) == [""]


def test_an_empty_file_system_is_mounted(cluster: Cluster, image: Path) -> None:
    words = (
        "srun",
        f"--container-image={image}",
        "--container-mounts=tmpfs:/data",
        "sh",
        "-c",
        "echo a > /data/b; ls /data",
    )
    assert lines(run(cluster, *words).stdout) == ["b"]
    assert list((image / "data").iterdir()) == []


def test_variables_stand_for_options_as_with_pyxis(
    cluster: Cluster, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = "cat /etc/where; pwd; touch /etc/no"
    for name, value in (("IMAGE", str(image)), ("WORKDIR", "/data"), ("WRITABLE", "0")):
        monkeypatch.setenv(f"PYXIS_CONTAINER_{name}", value)
    done = run(cluster, "srun", "sh", "-c", shell)
    assert lines(done.stdout) == ["inside", "/data"]
    assert b"Read-only" in done.stderr
    over = run(
        cluster,
        "srun",
        "--container-workdir=/etc",
        "--container-writable",
        "sh",
        "-c",
        "pwd; touch /etc/yes",
    )
    assert (over.returncode, lines(over.stdout)) == (0, ["/etc"])
    script = "#!/bin/sh\ncat /etc/where\n"
    out = str(tmp_path / "out")
    assert run(cluster, "sbatch", "--wait", "-o", out, "/dev/stdin", stdin=script).returncode == 0
    assert (tmp_path / "out").read_text() == "inside\n"


def test_salloc_has_no_container_for_a_command_of_its_own(cluster: Cluster, image: Path) -> None:
    done = run(cluster, "salloc", f"--container-image={image}", "true")
    assert (done.returncode, lines(done.stderr)) == (
        1,
        ["salloc: error: --container-image requires LaunchParameters=use_interactive_step"],
    )


def _stand_in(directory: Path, name: str, text: str) -> str:
    """PATH with a program that is called so, before everything else; without the engines of this machine."""
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{text}\n")
    (directory / name).chmod(0o755)
    for tool in ("bwrap", "cp", "tar", "sh", "sleep", "mkdir", "cat"):
        if not (directory / tool).exists():
            (directory / tool).symlink_to(shutil.which(tool) or tool)
    return str(directory)


def test_a_pull_that_hangs_is_told_bounded_and_cleaned_up(machine: Cluster, cache: Path, tmp_path: Path) -> None:
    path = _stand_in(tmp_path / "bin", "podman", 'case "$1" in pull) sleep 1000 & wait;; *) exit 1;; esac')
    words = ("srun", "-J", "pull", f"--export=ALL,PATH={path}", "--container-image=registry/none")
    done = run(machine, *words, "true", SPRITZ_CONTAINER_SECONDS="0.2")
    assert done.returncode
    assert b"slurmstepd: container: importing registry/none" in done.stderr
    assert b"registry/none: `podman pull` has not ended within 0.2 s" in done.stderr
    number = max(job.id for job in machine.jobs().values() if job.spec.name == "pull")
    until(lambda: not machine.job_processes(number), "the program that hung is ended")


def test_an_image_that_is_half_unpacked_is_removed_when_the_job_is_cancelled(
    cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    said = tmp_path / "begun"
    text = f'for word; do place=$word; done; mkdir -p "$4/etc"; echo > {said}; sleep 1000'
    path = _stand_in(tmp_path / "bin", "apptainer", text)
    (tmp_path / "image.sif").write_bytes(b"")
    words = ("srun", "-J", "half", f"--export=ALL,PATH={path}", f"--container-image={tmp_path}/image.sif", "true")
    with start(cluster, *words) as srun:
        until(said.exists, "it is being unpacked")
        number = max(job.id for job in cluster.jobs().values() if job.spec.name == "half")
        cluster.cancel(number)
        srun.communicate(timeout=100)
    until(lambda: not cluster.job_processes(number), "the program that unpacks is ended")
    assert [path.suffix for path in (cache / "images").iterdir()] == [".lock"]


@pytest.mark.parametrize("engine", ["enroot", "apptainer", ""])
def test_names_are_pulled_by_what_the_node_has(
    cluster: Cluster, image: Path, cache: Path, tmp_path: Path, engine: str
) -> None:
    """Stand-ins with the interfaces that enroot and apptainer have: neither is in Debian."""
    path = _stand_in(tmp_path / "bin", "unsquashfs", f'cp -r {image}/. "$4"')
    if engine == "enroot":
        _stand_in(tmp_path / "bin", "enroot", '[ "$1 $2 $4" = "import --output docker://team/name:1" ] && echo > "$3"')
    elif engine:
        _stand_in(tmp_path / "bin", "apptainer", f'[ "$1 $5" = "build docker://team/name:1" ] && cp -r {image}/. "$4"')
    done = run(cluster, "srun", f"--export=ALL,PATH={path}", "--container-image=team/name:1", "/bin/cat", "/etc/where")
    if engine:
        assert (done.returncode, lines(done.stdout)) == (0, ["inside"]), done.stderr
    else:
        assert b"podman, enroot or apptainer is needed for names of images, and none is installed on" in done.stderr


_SUM = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d %d %d\\n", rank, size, sum);
    return MPI_Finalize();
}
"""


def test_mpi_works_between_tasks_inside(cluster: Cluster, image: Path, tmp_path: Path) -> None:
    """By the descriptor of PMI-2, which bwrap passes on, and MPICH's shared memory in the node's /dev/shm."""
    compiler = shutil.which("mpicc.mpich")
    if compiler is None:
        pytest.skip("MPICH is not installed")
    root = tmp_path / "root"
    shutil.copytree(image, root, symlinks=True)
    (tmp_path / "sum.c").write_text(_SUM)
    subprocess.run([compiler, "sum.c", "-o", root / "bin" / "sum"], cwd=tmp_path, check=True, timeout=100)
    add_libraries(root, str(root / "bin" / "sum"))
    done = run(cluster, "srun", "--mpi=pmi2", "-n2", f"--container-image={root}", "/bin/sum")
    assert (done.returncode, sorted(lines(done.stdout))) == (0, ["0 2 1", "1 2 1"]), done.stderr


@pytest.mark.root
def test_a_container_has_the_devices_of_its_step_and_no_others(image: Path, tmp_path: Path) -> None:
    """Device files of the test's own, with the number of /dev/zero; in /dev (which is bound) and elsewhere."""
    files = [f"/dev/spritz-test-{os.getpid()}-{number}" for number in range(2)]
    files += [str(tmp_path / f"gpu{number}") for number in range(2)]
    made = Cluster(nodes=1, extra="GresTypes=gpu,tpu")
    made.node_lines = made.node_lines.replace(" State=", " Gres=gpu:2,tpu:2 State=")
    made.write_conf()
    first, second = (",".join(files[at : at + 2]) for at in (0, 2))
    (made.conf.parent / "gres.conf").write_text(f"Name=gpu File={first}\nName=tpu File={second}\n")
    try:
        for path in files:
            os.mknod(path, 0o020666, os.makedev(1, 5))
            os.chmod(path, 0o666)
        made.start()
        shell = "".join(f"(: < {path}) 2> /dev/null && echo {path};" for path in files)
        words = ("srun", f"--container-image={image}", "--gres=gpu:1,tpu:1", "sh", "-c", f"{shell} true")
        assert lines(run(made, *words).stdout) == [files[0], files[2]]
    except PermissionError as error:
        pytest.skip(f"no device file can be made and opened here: {error}")
    finally:
        made.close()
        for path in files:
            Path(path).unlink(missing_ok=True)


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """With a store of the test's own."""
    found = shutil.which("podman")
    if found is None:
        pytest.skip("podman is not installed")
    conf = tmp_path / "storage.conf"
    conf.write_text(f'[storage]\ndriver = "vfs"\nrunroot = "{tmp_path}/run"\ngraphroot = "{tmp_path}/store"\n')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(conf))
    # An ordinary user's store lies there, whatever storage.conf says, and it remembers the paths of its first use.
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    try:
        tried = subprocess.run([found, "images"], capture_output=True, text=True)
        if tried.returncode:
            pytest.skip(f"podman does not work here: {tried.stderr[-200:]}")
        yield found
    finally:
        # For an ordinary user podman keeps a process that holds the user namespace.
        holder = tmp_path / "libpod" / "tmp" / "pause.pid"
        if holder.exists():
            os.kill(int(holder.read_text()), signal.SIGKILL)


def test_names_are_images_of_podmans_store(
    machine: Cluster, image: Path, cache: Path, tmp_path: Path, podman: str
) -> None:
    """With the variables and the entry point of their configuration."""
    subprocess.run(["tar", "-C", image, "-cf", tmp_path / "image.tar", "."], check=True)
    changes = ("ENV FROM_IMAGE=podman", 'ENTRYPOINT ["/bin/sh", "-c", "echo entered; exec \\"$0\\" \\"$@\\""]')
    options = [word for change in changes for word in ("--change", change)]
    subprocess.run([podman, "import", *options, tmp_path / "image.tar", "localhost/team/name:1"], check=True)
    words = ("srun", "-n2", "--container-image=localhost/team/name:1")
    done = run(machine, *words, "sh", "-c", "cat /etc/where; echo $FROM_IMAGE")
    assert (done.returncode, sorted(lines(done.stdout))) == (0, ["inside", "inside", "podman", "podman"]), done.stderr
    entered = run(machine, *words, "--container-entrypoint", "sh", "-c", "echo $FROM_IMAGE")
    assert sorted(lines(entered.stdout)) == ["entered", "entered", "podman", "podman"]
    saved = run(machine, *words, f"--container-save={tmp_path}/saved.tar", "sh", "-c", "echo")
    assert saved.returncode == 0, saved.stderr
    own = ("srun", f"--container-image={tmp_path}/saved.tar", "--container-entrypoint")
    again = run(machine, *own, "sh", "-c", "echo $FROM_IMAGE")
    assert lines(again.stdout) == ["entered", "podman"]
    listed = subprocess.run([podman, "ps", "--all", "--quiet"], capture_output=True, text=True)
    assert listed.stdout == "", "no container of podman's is left"


@pytest.mark.slow
def test_an_image_that_is_nowhere_is_told(machine: Cluster, cache: Path, podman: str) -> None:
    """podman tries a registry four times."""
    none = run(machine, "srun", "--container-image=localhost:1/none:1", "true")
    assert none.returncode
    assert b"couldn't import localhost:1/none:1" in none.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="needs an ordinary user: root's virtual nodes have all users")
def test_an_ordinary_users_virtual_nodes_refuse_what_podman_cannot_do(cluster: Cluster, podman: str) -> None:
    done = run(cluster, "srun", "--container-image=localhost/team/name:1", "true")
    assert done.returncode
    assert b"podman cannot run on an ordinary user's virtual nodes (SlurmdParameters=private_hosts)" in done.stderr
