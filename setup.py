"""Installs the commands as a small C program where there is a C compiler, and as Python entry points otherwise.

The metadata is in pyproject.toml; this adds what it cannot say. The launcher (launcher/) takes the place of every
entry point of `spritz.cli` but `spritz` itself; `spritz-command` stays Python, and is what the launcher falls back to.
`SPRITZ_NO_LAUNCHER=1` at installation time leaves everything to Python.
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

LAUNCHER = Path(__file__).resolve().parent / "launcher"
#: They stay Python: `spritz` starts daemons, and the other is the launcher's way back.
PYTHON = ("spritz", "spritz-command")


#: Without the C library (launcher/lean.c) it starts in a third of the time, static with it in two thirds.
LEAN = [
    "-DLEAN",
    "-static",
    "-nostdlib",
    "-nostartfiles",
    "-ffreestanding",
    "-fno-stack-protector",
    "-fno-pie",
    "-no-pie",
    "-fno-asynchronous-unwind-tables",
    "-fno-tree-loop-distribute-patterns",
    "-U_FORTIFY_SOURCE",
    "-Wl,-z,norelro,-z,noseparate-code,--build-id=none",
]


def compile_launcher(target: Path) -> bool:
    """Whether there is a launcher at `target` now: as lean as the compiler and this processor allow."""
    sources = sorted(str(path) for path in LAUNCHER.glob("*.c"))
    compiler = os.environ.get("CC", "").split() or [next(filter(shutil.which, ("cc", "gcc", "clang")), "")]
    if os.environ.get("SPRITZ_NO_LAUNCHER") or not sources or not compiler[0]:
        return False
    for flags in (LEAN, ["-static"], []):
        command = [*compiler, "-std=gnu11", "-O2", "-s", *flags, "-o", str(target), *sources]
        try:
            # What was built must run here, too.
            if subprocess.run(command, capture_output=True).returncode == 0:
                asked = subprocess.run([target], capture_output=True, env={})
                if asked.stdout.startswith(b"SPRITZ"):
                    return True
        except OSError:
            pass
    return False


class SpritzDistribution(Distribution):
    """Moves the commands' entry points to `launchers` where a launcher can be built."""

    launchers: tuple[str, ...] = ()

    def parse_config_files(self, *arguments, **options) -> None:  # type: ignore[no-untyped-def]
        """As always, and then without the entry points whose names the launcher gets."""
        super().parse_config_files(*arguments, **options)
        scripts = list((self.entry_points or {}).get("console_scripts", ()))
        with tempfile.TemporaryDirectory() as directory:
            if not scripts or not compile_launcher(Path(directory) / "launcher"):
                return
        names = {}
        for script in scripts:
            name, _, target = (part.strip() for part in script.partition("="))
            if target.startswith("spritz.cli.") and name not in PYTHON:
                names[name] = script
        self.launchers = tuple(names)
        # What install_scripts looks at, to see whether there is anything to do.
        self.scripts = ["launcher/launcher.c"]
        self.entry_points["console_scripts"] = [script for script in scripts if script not in names.values()]


class BuildScripts(build_scripts):
    """One file for each command, all of them the same."""

    def run(self) -> None:
        """Build the launcher, and give it the commands' names."""
        names = self.distribution.launchers
        directory = Path(self.build_dir)
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as elsewhere:
            launcher = Path(elsewhere) / "launcher"
            if not compile_launcher(launcher):
                raise RuntimeError("the launcher could be built a moment ago, and now it cannot")
            for name in names:
                shutil.copy2(launcher, directory / name)

    def get_outputs(self) -> list[str]:
        """For whoever records what was built."""
        return [os.path.join(self.build_dir, name) for name in self.distribution.launchers]

    def get_source_files(self) -> list[str]:
        """For source distributions."""
        return sorted(f"launcher/{path.name}" for path in LAUNCHER.glob("*.[ch]"))


setup(distclass=SpritzDistribution, cmdclass={"build_scripts": BuildScripts})
