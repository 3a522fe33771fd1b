"""Being another user for a moment, in a forked child: for tests that run as root."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from functools import cache

#: nobody, who is in every passwd database.
NOBODY = 65534


def as_user(uid: int, action: Callable[[], object]) -> str:
    """Run `action` as that user; what it printed, its exception last. Modules must be imported beforehand."""
    with tempfile.TemporaryFile() as output:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                sys.stdout = os.fdopen(1, "w")
                sys.stderr = os.fdopen(2, "w")
                if uid != os.getuid():
                    os.setgroups([])
                    os.setgid(uid)
                    os.setuid(uid)
                try:
                    action()
                except BaseException as error:
                    print(f"{type(error).__name__}: {error}")
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        output.seek(0)
        return output.read().decode()


@cache
def others_can_run() -> bool:
    """Whether other users can run the installed commands: the checkout or its Python may lie in a closed directory."""
    command = [sysconfig.get_path("scripts") + "/python", "-c", "import spritz, msgspec, numpy"]
    try:
        done = subprocess.run(command, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True)
    except PermissionError:
        return False
    return done.returncode == 0
