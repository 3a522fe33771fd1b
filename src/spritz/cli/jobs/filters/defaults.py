"""user_defaults: lines `option = value` of ~/.slurm/defaults; `cluster:option` and `command:cluster:option` are for
some only, `*` stands for any.

Source: slurm.conf(5) CliFilterPlugins; what cli_filter/user_defaults of Slurm reads.
"""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMANDS = ("salloc", "sbatch", "srun", "*")


def path_of_user() -> str:
    """The file in the home directory of the command's user, by the user database, as in Slurm."""
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        home = os.environ.get("HOME", "/")
    return os.path.join(home, ".slurm/defaults")


def read(text: str, command: str, cluster: str) -> Iterator[tuple[str, str, str]]:
    """(option, value, "") for each line that is meant, ("", "", complaint) for one of no command."""
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        key, equals, value = line.partition("=")
        if not equals or line.startswith("#"):
            continue
        words = [word.strip() for word in key.split(":") if word.strip()][:3]
        if not words:
            continue
        whose, where, option = ["*"] * (3 - len(words)) + words
        if whose.lower() not in _COMMANDS:
            yield "", "", f'Unknown command "{whose}" in ~/.slurm/defaults, line {number}'
        elif whose.lower() in ("*", command) and (where.startswith("*") or where == cluster):
            yield option, value.strip(), ""
