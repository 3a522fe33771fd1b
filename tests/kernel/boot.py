"""Boots a Linux in qemu whose only file system is an initramfs of this checkout, and runs tests there as root.

    python -m tests.kernel.boot [TEST ...]       KERNEL=/boot/vmlinuz-… names the kernel

The guest mounts cgroups of version 2 and nothing of version 1. No disk, no network, no rights: qemu emulates the
processor A test that skips itself there fails the run. Debian: qemu-system-x86, and
any linux-image (its modules are not needed). ACCEL=kvm uses the host's processor.
"""

from __future__ import annotations

import glob
import gzip
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: what is shown to take version 2: limits of memory with OOM told, devices by eBPF, cores, freezing, killing, adoption
TESTS = (
    "tests/e2e/test_node_confined.py",
    "tests/e2e/test_node_frozen.py",
    "tests/e2e/test_node_container.py",
    "tests/kernel/test_version_2.py",
)
PROGRAMS = (
    *("sh", "bash", "cat", "chmod", "cut", "dd", "env", "grep", "head", "id", "ls", "mkdir", "mount", "nproc", "ps"),
    *("pwd", "rm", "seq", "sleep", "sort", "stat", "tail", "taskset", "touch", "tr", "true", "false", "unshare", "wc"),
)
MEMORY_MIB = 3072
#: an emulated processor is some twenty times slower than ours
SECONDS_MAX = 1500


def main(argv: list[str]) -> int:
    """Boot and run; pytest's exit status."""
    kernel = os.environ.get("KERNEL") or max(glob.glob("/boot/vmlinuz-*"), default="")
    qemu = shutil.which("qemu-system-x86_64")
    if not kernel or qemu is None:
        sys.stderr.write(
            "make kernel takes qemu-system-x86_64 and a kernel: KERNEL=/path/vmlinuz (linux-image-amd64)\n"
        )
        return 2
    tests = tuple(argv) or TESTS
    with tempfile.TemporaryDirectory(prefix="spritz-kernel-") as directory:
        archive = f"{directory}/initrd.gz"
        _write_archive(archive, tests)
        return _boot(qemu, kernel, archive)


def _boot(qemu: str, kernel: str, archive: str) -> int:
    # Nested virtualisation is not to be relied on; emulation is.
    given = ["-accel", "kvm", "-cpu", "host"] if os.environ.get("ACCEL") == "kvm" else ["-accel", "tcg", "-cpu", "max"]
    command = [qemu, *given, "-smp", "2", "-m", str(MEMORY_MIB), "-nographic", "-no-reboot", "-nic", "none"]
    command += ["-kernel", kernel, "-initrd", archive]
    command += ["-append", "console=ttyS0 quiet panic=-1 cgroup_no_v1=all rdinit=/init"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")
    assert process.stdout is not None
    status, skipped = 1, False
    try:
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if found := re.search(r"kernel-tests-ended (\d+)", line):
                status = int(found[1])
                break
            skipped = skipped or re.search(r"\d+ skipped", line) is not None
    finally:
        process.kill()
        process.wait()
    if skipped and not status:
        sys.stdout.write("a test skipped itself, and this kernel has all that the tests want\n")
        return 1
    return status


def _write_archive(path: str, tests: tuple[str, ...]) -> None:
    arguments = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "slow or not slow", "--timeout", "400", "-rs", *tests]
    words = shlex.join([sys.executable, "-u", f"{ROOT}/tests/kernel/init.py", str(ROOT), *arguments])
    made = {
        "/init": f"#!/bin/sh\nexec {words}\n".encode(),
        "/etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    }
    made["/etc/group"] = b"root:x:0:\nnogroup:x:65534:\n"
    made["/etc/hosts"] = b"127.0.0.1 localhost\n"
    made["/etc/nsswitch.conf"] = b"passwd: files\ngroup: files\nhosts: files\n"
    with gzip.open(path, "wb", compresslevel=1) as file:
        archive = _Archive(file)
        for name in ("/bin", "/lib", "/lib64", "/sbin"):
            archive.add(name)
        for name, body in made.items():
            archive.put(name, body, 0o755)
        for directory in ("/proc", "/sys", "/dev", "/tmp", "/run", "/root", "/var/tmp"):
            archive.directory(directory)
        for name in sorted(set(_files(tests))):
            archive.add(name)
        archive.end()


def _files(tests: tuple[str, ...]) -> Iterator[str]:
    """Everything that the guest needs: programs and their libraries, Python, the packages that tests import, and us."""
    base = os.path.realpath(sys.executable)
    programs = [
        sys.executable,
        base,
        *(found for name in PROGRAMS if (found := shutil.which(name, path="/usr/bin:/usr/sbin"))),
    ]
    yield from _link_chain(sys.executable)
    venv = os.path.dirname(os.path.dirname(sys.executable))
    yield f"{venv}/pyvenv.cfg"
    packages = sysconfig.get_path("purelib")
    trees = [sysconfig.get_path("stdlib"), f"{ROOT}/src", f"{ROOT}/tests", f"{ROOT}/pyproject.toml"]
    trees += [f"{packages}/{name}" for name in _imported(tests, packages)]
    trees += (
        glob.glob(f"{packages}/*.pth") + glob.glob(f"{packages}/pytest*.dist-info") + glob.glob(f"{packages}/spritz*")
    )
    libraries = glob.glob("/usr/lib/*-linux-gnu/libnss_files.so*")
    for tree in trees:
        for name in _walk(tree):
            yield name
            if name.endswith(".so") or ".so." in name:
                libraries.append(name)
    for name in {*programs, *libraries}:
        yield os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name))
        yield os.path.realpath(name)
        yield from _libraries(name)


def _walk(tree: str) -> Iterator[str]:
    if not os.path.isdir(tree):
        yield tree
        return
    for directory, names, files in os.walk(tree):
        names[:] = [name for name in names if name not in ("__pycache__", "test", "idlelib", "dist-packages", "golden")]
        yield from (f"{directory}/{name}" for name in files)


def _imported(tests: tuple[str, ...], packages: str) -> list[str]:
    """Names in site-packages of what collecting the tests, and slurmd, import."""
    code = (
        "import sys, pytest; pytest.main(['-q', '--collect-only', '-p', 'no:cacheprovider', *sys.argv[1:]]);"
        "import spritz.node.main, spritz.node.daemon, spritz.node.hardware.detection, spritz.stepd.zygote;"
        "print('MODULES', *sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code, *tests], cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("MODULES ")]
    assert lines, done.stdout + done.stderr
    names = set(lines[0].split()[1:]) | {"pytest_timeout", "xdist", "execnet", "uvloop", "psutil", "msgspec"}
    found = [name for name in os.listdir(packages) if name.partition(".")[0] in names]
    metadata = [name for name in os.listdir(packages) if name.endswith(".dist-info") and name.split("-")[0] in names]
    return found + metadata


def _libraries(program: str) -> Iterator[str]:
    done = subprocess.run(["ldd", program], capture_output=True, text=True)
    for path in re.findall(r"(/\S+) \(0x", done.stdout):
        yield os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        yield os.path.realpath(path)


def _link_chain(path: str) -> Iterator[str]:
    while os.path.islink(path):
        yield path
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    yield path


class _Archive:
    """cpio in the form "newc", which the kernel unpacks. Source: its driver-api/early-userspace/buffer-format."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self._known: set[str] = set()

    def add(self, path: str) -> None:
        """A file or link of this machine, under its own name."""
        try:
            found = os.lstat(path)
        except OSError:
            return
        if stat.S_ISLNK(found.st_mode):
            self._entry(path, found.st_mode, os.fsencode(os.readlink(path)))
        elif stat.S_ISREG(found.st_mode):
            self._entry(path, found.st_mode, Path(path).read_bytes())

    def put(self, path: str, body: bytes, mode: int) -> None:
        """A file of these bytes."""
        self._entry(path, stat.S_IFREG | mode, body)

    def directory(self, path: str) -> None:
        """An empty directory, and those above."""
        if path in self._known or path in ("", "/"):
            return
        self.directory(os.path.dirname(path))
        self._write(path, stat.S_IFDIR | 0o755, b"")

    def _entry(self, path: str, mode: int, body: bytes) -> None:
        if path not in self._known:
            self.directory(os.path.dirname(path))
            self._write(path, mode, body)

    def _write(self, path: str, mode: int, body: bytes) -> None:
        self._known.add(path)
        name = os.fsencode(path.lstrip("/")) + b"\0"
        fields = (len(self._known), mode, 0, 0, 1, 0, len(body), 0, 0, 0, 0, len(name), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name
        self._file.write(head + bytes(-len(head) % 4) + body + bytes(-len(body) % 4))

    def end(self) -> None:
        """The last entry."""
        self._write("TRAILER!!!", 0, b"")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
