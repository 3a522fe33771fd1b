"""What a command imports beyond `typing`, and beyond msgspec, which every question to a daemon needs.

As in a process of its own, where msgspec does without typing_extensions (`spritz.commandserver.direct`).
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache

#: The first lines of a script; `loaded()` are then the names of modules imported since, one a line.
PRELUDE = """\
import importlib, sys
before = set(sys.modules)
def loaded():
    return "\\n".join(sorted({name for name, module in sys.modules.items() if module} - before))
from spritz.commandserver.direct import skip_typing_extensions
skip_typing_extensions()
"""


@cache
def modules_of(name: str) -> frozenset[str]:
    """Modules that `import name` loads in this interpreter: for msgspec `typing`, `re`, `datetime` and others."""
    words = [sys.executable, "-c", f"{PRELUDE}import {name}; print(loaded())"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, env={}, check=True)
    return frozenset(done.stdout.split())


def beyond_msgspec(modules: set[str]) -> set[str]:
    """Those of a call that neither loaded. `math` is loaded by what some interpreters have outside themselves, and
    `contextlib` by `typing` before Python 3.13.
    """
    return modules - {"math", "contextlib"} - modules_of("msgspec" if "msgspec" in modules else "typing")
