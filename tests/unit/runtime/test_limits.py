"""A controller may hold as many connections as the system lets it."""

from __future__ import annotations

import subprocess
import sys


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    program = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
from spritz.runtime.limits import allow_many_files
print(allow_many_files(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "200 (200, 200)\n"
