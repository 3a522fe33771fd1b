"""Parse a crontab into the jobs of its entries.

`#SCRON` lines before an entry have options of sbatch. A line `NAME=value` defines a variable for the commands after it.

Source: scrontab(1).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Protocol

from spritz.cli.call.options import Row, UsageError, parse
from spritz.cli.jobs.submit import request_context, spec, values
from spritz.cli.jobs.submit.refusals import Source
from spritz.cli.jobs.submit.rows import rows_of
from spritz.client.command.sync import submit_key
from spritz.model.commands.job import SubmitJob
from spritz.model.errors import SpritzError
from spritz.model.job.record import CronEntry
from spritz.notation.errors import NotationError
from spritz.notation.lines import shell
from spritz.notation.lines.cron import CronError, read_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pwd import struct_passwd

    from spritz.cli.call.context import Context

#: Options of sbatch that an entry cannot have.
_OTHER = frozenset(
    {
        *("array", "clusters", "cluster", "export-file", "get-user-env", "gid", "help", "ignore-pbs", "parsable"),
        *("test-only", "uid", "usage", "version", "wait", "wrap"),
    }
)

OPTIONS: tuple[Row, ...] = tuple(row for row in rows_of("b") if row.key not in _OTHER)

_MAGIC = "#SCRON"
_HEADER = "#!/bin/sh\n# This job was submitted through scrontab\n"
_VARIABLE = re.compile(r"""[ \t]*([A-Za-z0-9_]+)[ \t]*=[ \t]*("[^"]*"|'[^']*'|[^"'].*|)[ \t]*""")


class BadLine(SpritzError):
    """An error in lines `first` to `last` of a crontab, counted from 1."""

    def __init__(self, message: str, first: int, last: int) -> None:
        super().__init__(message)
        self.first = first
        self.last = last


class Filtering(Protocol):
    """CliFilterPlugins (`cli.jobs.filters`)."""

    def defaults(self) -> values.Values: ...

    def before(self, options: values.Values, argv: Sequence[str], offset: int = 0) -> values.Values: ...


class Reader:
    """Reads one user's crontab. `owner`: the user's entry."""

    def __init__(self, context: Context, owner: struct_passwd, filtering: Filtering | None) -> None:
        self._context = context
        self._owner = owner
        self._filtering = filtering
        self._source = Source(None, owner.pw_dir, context.environ, context.err)
        self._environment: tuple[bytes, ...] | None = None

    def read(self, text: str) -> list[SubmitJob]:
        """The jobs, in order. Raises BadLine for the first bad line."""
        jobs: list[SubmitJob] = []
        variables: dict[str, str] = {}
        options: list[tuple[int, str]] = []
        for number, line in enumerate(text.split("\n"), 1):
            words = line.strip(" \t\r")
            if words.startswith(_MAGIC):
                options.append((number, words))
            elif words and not words.startswith("#"):
                variable = _VARIABLE.fullmatch(line)
                if variable is not None:
                    value = variable[2].rstrip(" \t\r")
                    variables[variable[1]] = value[1:-1] if value[:1] in ("'", '"') else value
                    continue
                jobs.append(self._job(line.rstrip("\r"), number, options, variables, len(jobs)))
                options = []
        return jobs

    def _job(
        self, line: str, number: int, options: list[tuple[int, str]], variables: dict[str, str], offset: int
    ) -> SubmitJob:
        options_in_force: values.Values = {}
        for at, words in options:
            self._take(options_in_force, at, words)
        try:
            schedule, command = read_line(line)
        except CronError as error:
            caret = " " * len(line[: error.position].expandtabs()) + "^"
            raise BadLine(f"line {number}: {error}\n{line.expandtabs()}\n{caret}", number, number) from error
        for name, value in variables.items():
            command = command.replace(f"${name}", value)
        first = options[0][0] if options else number
        try:
            if self._filtering is not None:
                weakest = self._filtering.defaults()
                options_in_force = self._filtering.before(values.merge(weakest, options_in_force), (command,), offset)
            option_lines = "".join(f"{words}\n" for _, words in options)
            script = f"{_HEADER}{option_lines}# crontab time request was: '{schedule.text()}'\n{command}\n"
            defaults: dict[str, object] = {
                "name": command.split(" ")[0],
                "batch": True,
                "command": command,
                "submit_line": "scrontab",
                "submit_host": os.uname().nodename,
                "submit_session": self._context.session,
                "work_dir": self._owner.pw_dir,
                "umask": request_context.umask(),
                "cron": CronEntry(schedule=schedule.text(), line_first=first, line_last=number),
            }
            fields = spec.fields_of(options_in_force, self._source, defaults=defaults)
            request = spec.job_spec(fields)
        except SpritzError as error:
            raise BadLine(f"line {number}: {error.message}", first, number) from error
        return SubmitJob(spec=request, script=os.fsencode(script), environment=self._environ(), submit_key=submit_key())

    def _take(self, options: values.Values, number: int, words: str) -> None:
        """Add the options of a #SCRON line to `options`. Raises BadLine."""
        try:
            parsed, stray = parse(OPTIONS, shell.split_words(words.removeprefix(_MAGIC)))
            if stray:
                raise UsageError(f"Invalid option found in #SCRON line: {stray[0]}")
            for key, value in parsed:
                values.put(options, key, value)
        except (SpritzError, NotationError) as error:
            raise BadLine(f"line {number}: {error}", number, number) from error

    def _environ(self) -> tuple[bytes, ...]:
        """The user's login environment, without variables of the shell in which the user runs scrontab."""
        if self._environment is None:
            if os.geteuid() == self._owner.pw_uid:
                environ = request_context.login_environment()
            else:  # never run another user's files with root's privileges
                environ = request_context.least_environment(self._owner)
            environ["SLURM_GET_USER_ENV"] = "1"
            environ["SLURM_SUBMIT_DIR"] = self._owner.pw_dir
            environ["SLURM_SUBMIT_HOST"] = os.uname().nodename
            self._environment = request_context.encoded(environ)
        return self._environment
