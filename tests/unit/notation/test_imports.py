"""What the package costs to import: commands load it before they do anything."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import spritz.notation

#: modules that take milliseconds to import, and so come only inside the function that needs them
HEAVY = {
    "typing",
    "re",
    "enum",
    "datetime",
    "dataclasses",
    "msgspec",
    "json",
    "logging",
    "asyncio",
    "argparse",
    "inspect",
}


def test_importing_the_whole_room_loads_nothing_heavy() -> None:
    modules = [f"spritz.notation.{module.name}" for module in pkgutil.iter_modules(spritz.notation.__path__)]
    assert len(modules) > 15
    program = "import sys\nbefore = set(sys.modules)\n" + "".join(f"import {name}\n" for name in modules)
    program += "print(*(set(sys.modules) - before))"
    result = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    loaded = set(result.stdout.split())
    assert not loaded & HEAVY
    assert {name for name in loaded if not name.startswith("spritz") and not name.startswith("_")} <= set()
