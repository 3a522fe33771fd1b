"""What a command imports beyond `typing`, and beyond msgspec, which every question to a daemon needs."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

_PRINT_LOADED = "import sys; before = set(sys.modules); import {}; print(*sorted(set(sys.modules) - before))"


@cache
def modules_of(name: str) -> frozenset[str]:
    """Modules that `import name` loads in this interpreter: for msgspec `typing`, `re`, `datetime` and others."""
    words = [sys.executable, "-c", _PRINT_LOADED.format(name)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, env={}, check=True)
    return frozenset(done.stdout.split())


def beyond_msgspec(modules: set[str]) -> set[str]:
    """Those of a call that neither loaded. `math` is loaded by what some interpreters have outside themselves."""
    return modules - {"math"} - modules_of("msgspec" if "msgspec" in modules else "typing")
