"""Installs the commands as a small C program where there is a C compiler, and as a Python script otherwise.

The metadata is in pyproject.toml; this adds what it cannot say. Entry points as pip writes them find their packages
only where Python looks by itself, which is not so with `pip install --prefix`. So `spritz-command` (packaging/bin) is a
script that looks beside itself, and every other name is the launcher (launcher/), which executes it, or a copy of it.
`SPRITZ_NO_LAUNCHER=1` at installation time leaves the commands to Python, and `SPRITZ_PURE=1` everything: a wheel built
with it installs on every machine. See docs/decisions/0100.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import Distribution, setup

# setuptools brings its own distutils, which has this.
from distutils.command.build_scripts import build_scripts  # isort: skip

ROOT = Path(__file__).resolve().parent
LAUNCHER = ROOT / "launcher"
#: the one that stays Python: the launcher's way there
SCRIPT = ROOT / "packaging/bin/spritz-command"
#: a launcher above this size has glibc in it
LAUNCHER_KIB = 200
PURE = bool(os.environ.get("SPRITZ_PURE"))


def compile_launcher(target: Path) -> bool:
    """Whether there is a launcher at `target` now: static if it can be, with musl if that is installed.

    glibc takes 0.5 ms to start on a virtual machine, musl none (docs/decisions/0168).
    """
    sources = sorted(str(path) for path in LAUNCHER.glob("*.c"))
    if PURE or os.environ.get("SPRITZ_NO_LAUNCHER") or not sources:
        return False
    chosen = os.environ.get("CC", "").split()
    names = [chosen] if chosen else [[name] for name in ("musl-gcc", "cc", "gcc", "clang")]
    compilers = [words for words in names if shutil.which(words[0])]
    for compiler, flags in [(words, ["-static"]) for words in compilers] + [(words, []) for words in compilers]:
        command = [*compiler, "-std=gnu11", "-O2", "-s", *flags, "-o", str(target), *sources]
        try:
            # What was built must run here, too.
            if subprocess.run(command, capture_output=True).returncode == 0:
                asked = subprocess.run([target], capture_output=True, env={})
                if asked.stdout.startswith(b"SPRITZ"):
                    warn_if_large(target)
                    return True
        except OSError:
            pass
    return False


def warn_if_large(launcher: Path) -> None:
    """Say what a static launcher with glibc costs: each command is a copy."""
    kib = launcher.stat().st_size >> 10
    if kib > LAUNCHER_KIB:
        print(
            f"warning: {kib} KiB for each command: musl-gcc (Debian: musl-tools) makes it 63 KiB and quicker",
            file=sys.stderr,
        )


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
    """One file for each command, all but one of them the same."""

    def run(self) -> None:
        """Give the launcher, or the script, every command's name."""
        directory = Path(self.build_dir)
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as elsewhere:
            launcher = Path(elsewhere) / "launcher"
            common = launcher if compile_launcher(launcher) else SCRIPT
            for name in self.distribution.launchers:
                # A new file each: who runs the old one is not to be disturbed.
                (directory / name).unlink(missing_ok=True)
                shutil.copyfile(SCRIPT if name == SCRIPT.name else common, directory / name)
                (directory / name).chmod(0o755)

    def get_outputs(self) -> list[str]:
        """For whoever records what was built."""
        return [os.path.join(self.build_dir, name) for name in self.distribution.launchers]

    def get_source_files(self) -> list[str]:
        """For source distributions."""
        files = [*LAUNCHER.glob("*.[ch]"), SCRIPT]
        return sorted(str(path.relative_to(ROOT)) for path in files)


setup(distclass=SpritzDistribution, cmdclass={"build_scripts": BuildScripts})
