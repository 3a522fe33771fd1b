"""Signals are sent by `spritz.process_identity`: a number alone may be a stranger's by now.

The places below send to a number that cannot be given out meanwhile, and each says why. A new place belongs there, with
its reason, or calls `process_identity`.
"""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src" / "spritz"

OWN_CHILD = "its own child, until it is waited for"
ITSELF = "itself"

#: (file, function) -> why the number is that of the process which is meant
EXACT = {
    ("process_identity.py", "send_group"): "checked just before; a group has no pidfd",
    ("cli/call/entry.py", "end_by_interrupt"): ITSELF,
    ("cli/jobs/launch/foreground.py", "send"): OWN_CHILD,
    ("cli/jobs/launch/foreground.py", "_stopped"): ITSELF,
    ("commandserver/parent.py", "_end_halted"): OWN_CHILD,
    ("controller/forked.py", "kill"): OWN_CHILD,
    ("experiments/watch.py", "guard"): "its parent, as getppid has just said; imports nothing of ours",
    ("experiments/watch.py", "hang_up"): "its start was compared just before; imports nothing of ours",
    ("runtime/daemon/daemonize.py", "serves"): ITSELF,
    ("runtime/programs.py", "_kill_group"): OWN_CHILD,
    ("stepd/tasks/epilogs.py", "end_late"): OWN_CHILD,
    ("stepd/images.py", "_finished"): OWN_CHILD,
    ("stepd/oci.py", "_shell"): OWN_CHILD,
    ("stepd/streams/outlet.py", "kill"): OWN_CHILD,
    ("stepd/pmix/server_process.py", "_kill"): OWN_CHILD,
}


def test_each_signal_by_number_has_a_reason() -> None:
    found = set()
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "os.kill" in text:
            tree = ast.parse(text)
            for function in ast.walk(tree):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and _sends(function):
                    found.add((str(path.relative_to(SOURCE)), function.name))
    assert found == set(EXACT)


def _sends(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(
        isinstance(call, ast.Attribute)
        and call.attr in ("kill", "killpg")
        and isinstance(call.value, ast.Name)
        and call.value.id == "os"
        for call in calls
    )
