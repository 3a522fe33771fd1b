"""What a command imports beyond msgspec, which every command that talks to a daemon needs."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

_PRINT_LOADED = "import sys; before = set(sys.modules); import msgspec; print(*sorted(set(sys.modules) - before))"


@cache
def modules_of_msgspec() -> frozenset[str]:
    """Modules that `import msgspec` loads in this interpreter: `typing`, `re`, `datetime` and others."""
    words = [sys.executable, "-c", _PRINT_LOADED]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, env={}, check=True)
    return frozenset(done.stdout.split())


def beyond_msgspec(modules: set[str]) -> set[str]:
    """Those of a call that msgspec did not load. `math` is loaded by what some interpreters have outside themselves."""
    modules = modules - {"math"}
    return modules - modules_of_msgspec() if "msgspec" in modules else modules
