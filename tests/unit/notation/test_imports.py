"""What the package costs to import: commands load it before they do anything."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import spritz.notation

#: modules that take milliseconds to import
HEAVY = {"msgspec", "logging", "asyncio", "argparse", "inspect", "dataclasses", "socket", "subprocess"}


def test_importing_the_whole_package_loads_nothing_heavy() -> None:
    modules = [module.name for module in pkgutil.walk_packages(spritz.notation.__path__, "spritz.notation.")]
    assert len(modules) > 15
    program = "import sys, typing\nbefore = set(sys.modules)\n" + "".join(f"import {name}\n" for name in modules)
    program += "print(*(set(sys.modules) - before))"
    result = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())
    assert not loaded & HEAVY
    assert {name.partition(".")[0] for name in loaded} <= {"spritz", *sys.stdlib_module_names}
