"""scrontab: jobs that come again and again, from a crontab that the controller keeps.

Source: scrontab(1); texts and exit codes as Slurm has them. Differs: a line that is wrong is shown with the place of
the mistake.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from typing import TYPE_CHECKING

from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import Fatal, Row, UsageError, about, parse
from spritz.cli.jobs.filters import filters_of
from spritz.cli.jobs.submit import crontab
from spritz.cli.jobs.submit.crontab import BadLine
from spritz.client.command.sync import connect_controller
from spritz.client.errors import RemoteError
from spritz.model.commands.crontab import CrontabUpdated, UpdateCrontab
from spritz.model.errors import ESLURM
from spritz.model.queries.crontabs import CrontabText, GetCrontab

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pwd import struct_passwd

    from spritz.client.command.sync import Connection

OPTIONS: tuple[Row, ...] = (
    Row("", "e", "", "edit the crontab with $VISUAL, $EDITOR or vi (the default at a terminal)"),
    Row("", "l", "", "print the crontab"),
    Row("", "r", "", "remove the crontab; its running jobs continue"),
    Row("", "u", "user", "another user's crontab: listed for operators, changed for root and SlurmUser"),
    Row("", "v", "", "list the queued jobs"),
    Row("help", "", "", "print this help"),
    Row("usage", "", "", "print a short usage"),
    Row("version", "V", "", "print the version"),
)

_SYNOPSIS = "[-u user] [file | -e | -l | -r]"

USAGE = """\
usage:	scrontab [-u user] file
	scrontab [-u user] [ -e | -l | -r | -v]
	-e	Edit user's crontab (default action)
	-l	List user's crontab
	-r	Delete user's crontab
	-u	User to edit crontab for
"""

DEFAULT = """\
# Jobs that Slurm runs again and again: an entry a line, by the
# controller's time and time zone.
#
# Options of sbatch for the entry that follows, each entry has its own:
#SCRON --time=10
# 0 5 * * * /my/script/to/run
#
# min hour day-of-month month day-of-week command
"""

_DISABLED, _BAD = "#DISABLED: ", "#BAD: "

_ERRORS = "There are errors in your crontab.\n"
_RETRY = "Do you want to retry the edit? (y/n) "


def main(argv: list[str], context: Context) -> int:
    """0; 1 for a wrong command line, a crontab that is not there, and one that is refused."""
    try:
        options_given, operands = parse(OPTIONS, argv)
    except UsageError:
        context.err(USAGE)
        return 1
    option_keys = {key for key, _ in options_given}
    if option_keys & {"help", "usage", "version"}:
        return about(option_keys, "scrontab", _SYNOPSIS, OPTIONS, USAGE, context)
    doing = option_keys & {"e", "l", "r"}
    if len(operands) > (0 if doing else 1):
        context.err(USAGE)
        return 1
    if "e" in option_keys and not context.stdin.isatty():
        raise Fatal("Standard input is not a TTY")
    user = next((value for key, value in reversed(options_given) if key == "u"), None)

    with connect_controller() as controller:
        call = _Call(context, controller, user, verbose="v" in option_keys)
        if "r" in option_keys:
            return call.remove()
        if "l" in option_keys:
            return call.list()
        if operands or not (doing or context.stdin.isatty()):
            return call.write(operands[0] if operands else "-")
        return call.edit()


class _Call:
    """One call of scrontab."""

    def __init__(self, context: Context, controller: Connection, user: str | None, *, verbose: bool) -> None:
        self._context = context
        self._controller = controller
        self._named = user is not None
        self._owner = _entry_of(user)
        self._verbose = verbose

    def list(self) -> int:
        text = self._kept()
        if not text:
            self._context.out(f"no crontab for {self._owner.pw_name}\n")
            return 1
        self._context.out(text)
        return 0

    def remove(self) -> int:
        try:
            self._send("", ())
        except RemoteError as error:
            if error.code != "ESLURM_JOB_SCRIPT_MISSING":  # there is none: nothing to do
                raise _failed("slurm_remove_crontab", error) from error
        return 0

    def write(self, path: str) -> int:
        """The first form: the file is the crontab from now on."""
        text = self._read(path)
        try:
            answer = self._submit(text)
        except BadLine as error:
            self._tell(error)
            self._context.out(_ERRORS)
            return 1
        if answer.code:
            self._context.out(_refusal(answer))
            return 1
        return 0

    def edit(self) -> int:
        """Until the crontab is taken, or the user gives up."""
        text = self._kept() or DEFAULT
        while True:
            text = self._edited(text)
            try:
                answer = self._submit(text)
            except BadLine as error:
                self._tell(error)
                question = f"{_ERRORS}The failed line(s) is commented out with #BAD:\n"
                bad = [(error.first, error.last)]
            else:
                if not answer.code:
                    return 0
                question = f"{_refusal(answer)}The failed lines are commented out with #BAD:\n"
                first, _, last = answer.failed_lines.partition("-")
                bad = [(int(first), int(last or first))]
            if not self._confirmed(question + _RETRY):
                return 0
            text = _commented(text, bad, _BAD)

    # -- the crontab

    def _kept(self) -> str:
        uid = self._owner.pw_uid if self._named else -1
        try:
            kept = self._controller.call(GetCrontab(uid=uid), CrontabText)
        except RemoteError as error:
            raise _failed("slurm_request_crontab", error) from error
        return _commented(kept.text, kept.disabled, _DISABLED)

    def _submit(self, text: str) -> CrontabUpdated:
        """Parse the text and send it to the controller. Raises BadLine."""
        filtering = filters_of("scrontab", crontab.OPTIONS, self._context)
        jobs = tuple(crontab.Reader(self._context, self._owner, filtering).read(text))
        try:
            answer = self._send(text, jobs)
        except RemoteError as error:
            raise _failed("slurm_update_crontab", error) from error
        for offset, (job, number) in enumerate(zip(jobs, answer.job_ids, strict=False)):
            if filtering is not None:
                filtering.after(number, offset=offset)
            if self._verbose and job.spec.cron is not None:
                self._context.info(f"line {job.spec.cron.line_last}: job {number}, {job.spec.cron.schedule}")
        return answer

    def _send(self, text: str, jobs: Sequence[object]) -> CrontabUpdated:
        uid = self._owner.pw_uid if self._named else -1
        request = UpdateCrontab(uid=uid, text=text, jobs=tuple(jobs))  # type: ignore[arg-type]  # SubmitJob, imported late
        return self._controller.call(request, CrontabUpdated)

    # -- files and people

    def _read(self, path: str) -> str:
        try:
            if path == "-":
                return self._context.stdin.read()
            with open(os.path.join(self._context.cwd, path), encoding="utf-8", errors="surrogateescape") as file:
                return file.read()
        except OSError as error:
            raise Fatal(f"failed to open {path}") from error

    def _edited(self, text: str) -> str:
        environ = self._context.environ
        directory = environ.get("TMPDIR") or "/tmp"
        editor = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
        try:
            descriptor, name = tempfile.mkstemp(prefix="scrontab-", dir=directory)
        except OSError as error:
            raise Fatal(f"error creating temp crontab file '{directory}/scrontab-XXXXXX': {error.strerror}") from error
        try:
            with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
            # Differs: an editor with options (`code --wait`) works, as in every other program.
            done = subprocess.run(["sh", "-c", f'{editor} "$1"', "sh", name], env=dict(environ), cwd=self._context.cwd)
            if done.returncode:
                raise Fatal("editor returned non-zero exit code")
            with open(name, encoding="utf-8", errors="surrogateescape") as file:
                return file.read()
        except OSError as error:
            raise Fatal(f"error reopening temp crontab file '{name}': {error.strerror}") from error
        finally:
            os.unlink(name)

    def _confirmed(self, question: str) -> bool:
        while True:
            self._context.out(question)
            self._context.stdout.flush()
            answer = self._context.stdin.readline()
            if not answer or answer[:1].lower() == "n":
                return False
            if answer[:1].lower() == "y":
                return True

    def _tell(self, error: Exception) -> None:
        first, _, more = str(error).partition("\n")
        self._context.error(first)
        if more:
            self._context.err(f"{more}\n")


def _entry_of(user: str | None) -> struct_passwd:
    try:
        if user is None:
            return pwd.getpwuid(os.getuid())
        return pwd.getpwuid(int(user)) if user.isdecimal() and len(user) < 11 else pwd.getpwnam(user)
    except (KeyError, OverflowError) as error:
        raise Fatal(f"Could not find user {os.getuid() if user is None else user}") from error


def _commented(text: str, spans: Sequence[tuple[int, int]], mark: str) -> str:
    """With `mark` before the lines of these spans (from 1)."""
    if not spans:
        return text
    marked = {number for first, last in spans for number in range(first, last + 1)}
    return "\n".join(mark + line if at in marked else line for at, line in enumerate(text.split("\n"), 1))


def _refusal(answer: CrontabUpdated) -> str:
    return (
        f"There was an issue with the job submission on lines {answer.failed_lines}\n"
        f"The error code return was: {ESLURM.get(answer.code, (0, answer.code))[1]}\n"
        f"The error message was: {answer.message or '(null)'}\n"
    )


def _failed(what: str, error: Exception) -> Fatal:
    code = getattr(error, "code", "")
    if code == "ESLURM_DISABLED":
        return Fatal("scrontab is disabled on this cluster", code=code)
    return Fatal(f"{what} failed: {getattr(error, 'message', error)}", code=code)


def entry() -> None:
    run("scrontab", main)
