"""The text of a crontab → the jobs of its entries.

Options of an entry are those of sbatch, on `#SCRON` lines before it. `NAME=value` lines are replaced in the commands
that follow.

Source: scrontab(1).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from spritz.cli import sbatch
from spritz.cli.options import Row, UsageError, parse
from spritz.cli.submit import request_context, spec, values
from spritz.cli.submit.refusals import Source
from spritz.client.sync import submit_key
from spritz.model.commands.job import SubmitJob
from spritz.model.errors import SpritzError
from spritz.model.job import CronEntry
from spritz.notation import shell
from spritz.notation.cron import CronError, read_line
from spritz.notation.errors import NotationError

if TYPE_CHECKING:
    from pwd import struct_passwd

    from spritz.cli.context import Context
    from spritz.cli.filters.chain import Filters

#: options of sbatch that an entry cannot have
_OTHER = frozenset(
    {
        *("array", "clusters", "cluster", "export-file", "get-user-env", "gid", "help", "ignore-pbs", "parsable"),
        *("test-only", "uid", "usage", "version", "wait", "wrap"),
    }
)

OPTIONS: tuple[Row, ...] = tuple(row for row in sbatch.OPTIONS if row.key not in _OTHER)

_MAGIC = "#SCRON"
_HEADER = "#!/bin/sh\n# This job was submitted through scrontab\n"
_VARIABLE = re.compile(r"""[ \t]*([A-Za-z0-9_]+)[ \t]*=[ \t]*("[^"]*"|'[^']*'|[^"'].*|)[ \t]*""")


class BadLine(SpritzError):
    """`first` and `last`: the lines that are wrong, from 1."""

    def __init__(self, message: str, first: int, last: int) -> None:
        super().__init__(message)
        self.first = first
        self.last = last


class Reader:
    """Reads one user's crontab. `owner`: the user's entry."""

    def __init__(self, context: Context, owner: struct_passwd, filtering: Filters | None) -> None:
        self._context = context
        self._owner = owner
        self._filtering = filtering
        self._source = Source(None, owner.pw_dir, context.environ, context.err)
        self._environment: tuple[bytes, ...] | None = None

    def read(self, text: str) -> list[SubmitJob]:
        """The jobs, in order. Raises BadLine for the first line that is wrong."""
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
        given: values.Values = {}
        for at, words in options:
            self._take(given, at, words)
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
                given = self._filtering.before(values.merge(weakest, given), (command,), offset)
            said = "".join(f"{words}\n" for _, words in options)
            script = f"{_HEADER}{said}# crontab time request was: '{schedule.text()}'\n{command}\n"
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
            fields = spec.fields_of(given, self._source, defaults=defaults)
            request = spec.job_spec(fields)
        except SpritzError as error:
            raise BadLine(f"line {number}: {error.message}", first, number) from error
        return SubmitJob(spec=request, script=os.fsencode(script), environment=self._environ(), submit_key=submit_key())

    def _take(self, given: values.Values, number: int, words: str) -> None:
        """Options of one #SCRON line."""
        try:
            found, stray = parse(OPTIONS, shell.split_words(words.removeprefix(_MAGIC)))
            if stray:
                raise UsageError(f"Invalid option found in #SCRON line: {stray[0]}")
            for key, value in found:
                values.put(given, key, value)
        except (SpritzError, NotationError) as error:
            raise BadLine(f"line {number}: {error}", number, number) from error

    def _environ(self) -> tuple[bytes, ...]:
        """What the user's login sets. Nothing of the shell in which the crontab is written."""
        if self._environment is None:
            if os.geteuid() == self._owner.pw_uid:
                environ = request_context.login_environment()
            else:  # no file of another user's is run with root's rights
                environ = request_context.least_environment(self._owner)
            environ["SLURM_GET_USER_ENV"] = "1"
            environ["SLURM_SUBMIT_DIR"] = self._owner.pw_dir
            environ["SLURM_SUBMIT_HOST"] = os.uname().nodename
            self._environment = request_context.encoded(environ)
        return self._environment
