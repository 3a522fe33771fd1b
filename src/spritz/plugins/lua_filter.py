"""cli_filter.lua: `slurm_cli_setup_defaults(options, early)`, `slurm_cli_pre_submit(options, offset)`,
`slurm_cli_post_submit(offset, job_id, step_id)`.

`options` has the long names of the command's options, with `-` or `_`. An option that was not given is nil; a flag that
was given is "set".

Source: https://slurm.schedmd.com/cli_filter_plugins.html.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spritz.notation.octets import octets, plain
from spritz.plugins.answer import LogLine
from spritz.plugins.lua import LuaScript, text_from

FUNCTIONS = ("slurm_cli_setup_defaults", "slurm_cli_pre_submit", "slurm_cli_post_submit")


class LuaFilter:
    """The script. `read(name)` returns an option's value; `write(name, value)` sets one, or raises if it is not
    accepted.
    """

    def __init__(self, path: str, cluster: str, environ: Mapping[str, str]) -> None:
        live = {
            "cli_store": lambda: self._store,
            "cli_retrieve": lambda: self._retrieve,
            "json_cli_options": lambda: self._json_options,
            "json_env": lambda: self._json_env,
        }
        self._script = LuaScript(path, "cli_filter/lua", FUNCTIONS, cluster=cluster, live=live)
        self._environ = environ
        self._stored: dict[int, str] = {}
        self._options: Callable[[], dict[str, Any]] = dict

    def load(self) -> None:
        """Load or reload the script. Raises PluginError."""
        self._script.load()

    @property
    def said(self) -> Sequence[LogLine]:
        """The script's log lines and messages for the user (level `user`) since the last call."""
        log_lines = (*self._script.log, *(("user", line) for line in self._script.lines))
        self._script.log, self._script.lines = [], []
        return log_lines

    def defaults(self, read: Callable[[str], Any], write: Callable[[str, Any], None]) -> int:
        """Call slurm_cli_setup_defaults, before any option is read. Raises PluginError."""
        return self._script.call("slurm_cli_setup_defaults", self._script.object(read, write), False)

    def before(
        self,
        read: Callable[[str], Any],
        write: Callable[[str, Any], None],
        options: Callable[[], dict[str, Any]],
        offset: int,
    ) -> int:
        """Call slurm_cli_pre_submit. `options()`: the options that were given. Raises PluginError."""
        self._options = options
        return self._script.call("slurm_cli_pre_submit", self._script.object(read, write), offset)

    def after(self, offset: int, job_id: int, step_id: int) -> int:
        """Call slurm_cli_post_submit, once the job or step exists. Raises PluginError."""
        return self._script.call("slurm_cli_post_submit", offset, job_id, step_id)

    # -- the functions of the slurm table

    def _store(self, key: Any, text: Any) -> None:
        self._stored[int(key)] = str(text_from(text))

    def _retrieve(self, key: Any) -> bytes | None:
        text = self._stored.get(int(key))
        return None if text is None else octets(text)

    def _json_options(self, _options: Any = None) -> bytes:
        return octets(json.dumps(self._options(), separators=(",", ":"), ensure_ascii=False))

    def _json_env(self) -> bytes:
        return octets(json_env(self._environ))


def json_env(environ: Mapping[str, str]) -> str:
    """The caller's environment as JSON, without the variables that Slurm itself sets."""
    slurm_prefixes = ("SLURM_", "SPANK_")
    kept = {plain(name): plain(value) for name, value in environ.items() if not name.startswith(slurm_prefixes)}
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=False)
