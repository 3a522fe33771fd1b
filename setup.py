"""Installs the commands as a small C program where there is a C compiler, and as a Python script otherwise.

The metadata is in pyproject.toml; this adds what it cannot say. Entry points as pip writes them find their packages
only where Python looks by itself, which is not so with `pip install --prefix`. So `spritz-command` (packaging/bin) is a
script that looks beside itself, `spritz-launcher` (launcher/) executes it or hands the call to a server, and every
other name is a shim of 1 KiB (launcher/shim) that executes the launcher. Where only the launcher compiles, every name
is a copy of it. `SPRITZ_NO_LAUNCHER=1` at installation time leaves the commands to Python, and `SPRITZ_PURE=1`
everything: a wheel built with it installs on every machine. See docs/decisions/0100 and 0226.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from setuptools import Distribution, setup

# setuptools brings its own distutils, which has this.
from distutils.command.build_scripts import build_scripts  # isort: skip

ROOT = Path(__file__).resolve().parent
LAUNCHER = ROOT / "launcher"
#: the one that stays Python: the launcher's way there
SCRIPT = ROOT / "packaging/bin/spritz-command"
#: as launcher/launcher.c and launcher/shim/shim.c have it
LAUNCHER_NAME = "spritz-launcher"
#: without a C library
SHIM_FLAGS = (
    *("-std=gnu11", "-Os", "-s", "-static", "-nostdlib", "-ffreestanding", "-fno-pie", "-no-pie"),
    *("-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-Wl,--build-id=none", "-Wl,-z,noseparate-code"),
)
PURE = bool(os.environ.get("SPRITZ_PURE"))


def compile_launcher(target: Path) -> bool:
    """Whether there is a launcher at `target` now: static if it can be, with musl if that is installed.

    glibc takes 0.5 ms to start on a virtual machine, musl none (docs/decisions/0168).
    """
    sources = sorted(str(path) for path in LAUNCHER.glob("*.c"))
    if PURE or os.environ.get("SPRITZ_NO_LAUNCHER") or not sources:
        return False
    for compiler, flags in [(words, ["-static"]) for words in compilers()] + [(words, []) for words in compilers()]:
        if compiles([*compiler, "-std=gnu11", "-O2", "-s", *flags, "-o", str(target), *sources]) and runs(target):
            return True
    return False


def compile_shim(target: Path, launcher: Path) -> bool:
    """Whether there is a shim at `target` now, which executes a launcher that lies beside it."""
    source = str(LAUNCHER / "shim/shim.c")
    with tempfile.TemporaryDirectory() as directory:
        # Under this name the launcher says that it was reached.
        shim = Path(directory) / "launcher"
        shutil.copy(launcher, Path(directory) / LAUNCHER_NAME)
        for compiler in compilers():
            if compiles([*compiler, *SHIM_FLAGS, "-o", str(shim), source]) and runs(shim):
                shutil.copy(shim, target)
                return True
    return False


def compilers() -> list[list[str]]:
    """The C compilers of this machine as words of a command line, the best first."""
    chosen = os.environ.get("CC", "").split()
    names = [chosen] if chosen else [[name] for name in ("musl-gcc", "cc", "gcc", "clang")]
    return [words for words in names if shutil.which(words[0])]


def compiles(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def runs(program: Path) -> bool:
    """Whether a launcher, or a shim with a launcher beside it, runs on this machine."""
    try:
        return subprocess.run([program], capture_output=True, env={}).stdout.startswith(b"SPRITZ")
    except OSError:
        return False


class SpritzDistribution(Distribution):
    """Moves the commands from the entry points to `launchers`."""

    launchers: tuple[str, ...] = ()

    def parse_config_files(self, *arguments, **options) -> None:  # type: ignore[no-untyped-def]
        """As always, and then without the commands among the entry points, and without C where none is wanted."""
        super().parse_config_files(*arguments, **options)
        if PURE:
            self.ext_modules = []
        entry_points = self.entry_points or {}
        self.launchers = tuple(script.partition("=")[0].strip() for script in entry_points.pop("console_scripts", ()))
        if self.launchers:
            # What install_scripts looks at, to see whether there is anything to do.
            self.scripts = [str(SCRIPT.relative_to(ROOT))]


class BuildScripts(build_scripts):
    """One file for each command, all but one or two of them the same."""

    def run(self) -> None:
        """Give the shim, the launcher or the script every command's name."""
        directory = Path(self.build_dir)
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as elsewhere:
            launcher, shim = Path(elsewhere) / "launcher", Path(elsewhere) / "shim"
            files = dict.fromkeys(self.distribution.launchers, SCRIPT)
            if compile_launcher(launcher):
                common = launcher
                if compile_shim(shim, launcher):
                    common, files[LAUNCHER_NAME] = shim, launcher
                files |= dict.fromkeys(self.distribution.launchers, common) | {SCRIPT.name: SCRIPT}
            self.outputs = []
            for name, file in files.items():
                # A new file each: a process that runs the old one is not to be disturbed.
                (directory / name).unlink(missing_ok=True)
                shutil.copyfile(file, directory / name)
                (directory / name).chmod(0o755)
                self.outputs.append(str(directory / name))

    def get_outputs(self) -> list[str]:
        """The files, for whoever records what was built."""
        return self.outputs

    def get_source_files(self) -> list[str]:
        """For source distributions."""
        files = [*LAUNCHER.rglob("*.[ch]"), SCRIPT]
        return sorted(str(path.relative_to(ROOT)) for path in files)


setup(distclass=SpritzDistribution, cmdclass={"build_scripts": BuildScripts})
