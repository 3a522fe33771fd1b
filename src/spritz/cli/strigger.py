"""strigger: programs that run when something happens to nodes, jobs and daemons.

Source: strigger(1); texts, layout and exit codes as Slurm 22.05 has them.
"""

from __future__ import annotations

import os
import pwd
import stat
from typing import TYPE_CHECKING

from spritz.cli.call.clusters import only
from spritz.cli.call.context import Context
from spritz.cli.call.entry import run
from spritz.cli.call.options import AUTOCOMPLETE, Row, about, run_parse
from spritz.client.command.sync import connect_controller
from spritz.client.errors import RemoteError
from spritz.model.commands.job import Done
from spritz.model.errors import SpritzError
from spritz.model.triggers import ClearTriggers, ListTriggers, SetTrigger, Triggers

if TYPE_CHECKING:
    from spritz.client.command.sync import Connection
    from spritz.model.triggers import Trigger

_NO_STANDBYS = "the controller that leads does not watch those that stand by"
_NO_DATABASE = "slurmdbd does not tell controllers of its database"

OPTIONS: tuple[Row, ...] = (
    AUTOCOMPLETE,
    Row("set", "", "", "create a trigger"),
    Row("get", "", "", "list triggers"),
    Row("clear", "", "", "delete triggers"),
    Row("primary_slurmctld_failure", "a", "", "when a controller takes over from the first one"),
    Row("primary_slurmctld_resumed_operation", "A", "", "when the first controller has started again"),
    Row("primary_slurmctld_resumed_control", "b", "", "when the first controller leads again"),
    Row("backup_slurmctld_failure", "B", "", refused=_NO_STANDBYS),
    Row("backup_slurmctld_resumed_operation", "c", "", refused=_NO_STANDBYS),
    Row("backup_slurmctld_assumed_control", "C", "", "when a standby controller leads"),
    Row("burst_buffer", "", "", refused="burst buffers are not built"),
    Row("down", "d", "", "when a node goes DOWN"),
    Row("drained", "D", "", "when a node is drained and no job runs on it"),
    Row("primary_slurmctld_acct_buffer_full", "e", "", refused="the journal is the buffer"),
    Row("fail", "F", "", "when a node is expected to fail"),
    Row("fini", "f", "", "when the job has ended"),
    Row("flags", "", "FLAG", "perm: keep the trigger after its event"),
    Row("front_end", "", "", refused="there are no front-end nodes"),
    Row("primary_slurmdbd_failure", "g", "", "when slurmdbd does not answer"),
    Row("primary_slurmdbd_resumed_operation", "G", "", "when slurmdbd answers again"),
    Row("primary_database_failure", "h", "", refused=_NO_DATABASE),
    Row("primary_database_resumed_operation", "H", "", refused=_NO_DATABASE),
    Row("id", "i", "NUMBER", "only this trigger"),
    Row("idle", "I", "", "when a node has been idle for --offset seconds"),
    Row("jobid", "j", "NUMBER", "events of this job, or of its nodes"),
    Row("clusters", "M", "NAMES", "name of another cluster"),
    Row("cluster", "", "NAMES", alias="clusters"),
    Row("node", "n", "[=HOSTS]", "events of these nodes (default: all)"),
    Row("noheader", "N", "", "no headings"),
    Row("offset", "o", "SECONDS", "seconds from the event to the program's start (negative: before the event)"),
    Row("program", "p", "PATH", "program to run, with arguments; nodes or the job id are appended"),
    Row("quiet", "Q", "", "no message about triggers that do not exist"),
    Row("reconfig", "r", "", "when the configuration or a node's state changes"),
    Row("time", "t", "", "when the job reaches its time limit"),
    Row("up", "u", "", "when a node is back from DOWN"),
    Row("user", "", "USER", "triggers of this user"),
    Row("verbose", "v", "", "report each action"),
    Row("help", "", "", "print this help"),
    Row("draining", "", "", refused="no trigger watches draining; --drained watches its end"),
    Row("resume", "", "", refused="no trigger watches resumption; --up watches the node's return"),
    Row("usage", "", "", "print a short usage"),
    Row("version", "V", "", "print the version"),
)

_SYNOPSIS = "[--set | --get | --clear] [OPTIONS]"

USAGE = "Usage: strigger [--set | --get | --clear | --version] [-aAbBcCdDefFgGhHiIjnNopQrtuv]\n"

#: the events, in the order in which Slurm tests them: bits of one number there
_EVENTS = (
    *("down", "drained", "fail", "idle", "up", "reconfig", "fini", "time"),
    *("primary_slurmctld_failure", "primary_slurmctld_resumed_operation", "primary_slurmctld_resumed_control"),
    *("backup_slurmctld_assumed_control", "primary_slurmdbd_failure", "primary_slurmdbd_resumed_operation"),
)

_NO_EVENT = f"""\
You must specify a trigger (--down, --up, --reconfig, --time, --fini, --burst_buffer,
--primary_slurmctld_failure,
--primary_slurmctld_resumed_operation,
--primary_slurmctld_resumed_control,
--primary_slurmctld_acct_buffer_full,
--backup_slurmctld_failure,
--backup_slurmctld_resumed_operation,
--backup_slurmctld_as_ctrl,
--primary_slurmdbd_failure,
--primary_slurmdbd_resumed_operation,
--primary_database_failure, or{" "}
--primary_database_resumed_operation)
"""

_HEADING = f"TRIG_ID RES_TYPE   RES_ID {'TYPE':35} OFFSET USER     FLAGS PROGRAM\n"

_OFFSET_MAX = 32_000


def main(argv: list[str], context: Context) -> int:
    """0; 1 for what was not understood or refused."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options = {key: value or "" for key, value in parsed[0]}
    if options.keys() & {"help", "usage", "version"}:
        return about(set(options), "strigger", _SYNOPSIS, OPTIONS, USAGE, context)
    call = _Call(options, context)
    call.check()
    if "clusters" in options:
        only(options["clusters"], context)

    with connect_controller() as controller:
        if "set" in options:
            return call.set(controller)
        return call.get(controller) if "get" in options else call.clear(controller)


class _Call:
    """One call of strigger."""

    def __init__(self, options: dict[str, str], context: Context) -> None:
        self._given = options
        self._context = context
        self._events = tuple(event for event in _EVENTS if event in options)
        self._job = _number(options, "jobid", "Invalid jobid")
        self._id = int(options.get("id") or 0) if options.get("id", "").isdecimal() else 0
        self._offset = _offset(options.get("offset", ""))
        self._uid = _uid(options["user"]) if "user" in options else -1

    def check(self) -> None:
        """Raise SpritzError for what makes no sense, in Slurm's order."""
        options, program = self._given, self._given.get("program")
        if options.get("flags", "perm").lower()[:4] != "perm":
            raise SpritzError(f"Invalid flags {options['flags']}")
        if len(options.keys() & {"set", "get", "clear"}) != 1:
            raise SpritzError("You must use exactly one of the following options: --set, --get or --clear")
        if "clear" in options and self._uid < 0 and not self._id and not self._job:
            raise SpritzError("You must specify a --id, --jobid, or --user to clear")
        if "set" in options and not self._events:
            raise SpritzError(_NO_EVENT)
        if "set" in options and program is None:
            raise SpritzError("You must specify a --program value")
        if {"fini", "time"}.intersection(self._events) and not self._job:
            raise SpritzError("You must specify a --jobid value")
        if program is not None:
            if not program.startswith("/"):
                raise SpritzError('The --program value must start with "/"')
            try:
                mode = os.stat(program.split()[0]).st_mode
            except OSError as error:
                raise SpritzError("Invalid --program value, file not found") from error
            if not stat.S_ISREG(mode):
                raise SpritzError("Invalid --program value, not regular file")
        if abs(self._offset) > _OFFSET_MAX:
            raise SpritzError("The --offset parameter must be between +/-32000")

    def set(self, controller: Connection) -> int:
        program = self._given["program"]
        if not os.access(program.split()[0], os.X_OK):
            self._context.err("slurm_set_trigger: Access/permission denied\n")
            return 1
        request = SetTrigger(
            events=self._events,
            program=program,
            job_id=self._job,
            nodes=self._given.get("node") or "*",
            offset_seconds=self._offset,
            permanent="flags" in self._given,
        )
        try:
            controller.call(request, Done)
        except RemoteError as error:
            self._context.err(f"slurm_set_trigger: {error.message}\n")
            return 1
        if "verbose" in self._given:
            self._context.info("trigger set")
        return 0

    def clear(self, controller: Connection) -> int:
        try:
            controller.call(ClearTriggers(id=self._id, job_id=self._job, uid=self._uid), Done)
        except RemoteError as error:
            if "quiet" in self._given:
                return 0
            self._context.err(f"slurm_clear_trigger: {error.message}\n")
            return 1
        if "verbose" in self._given:
            if self._job:
                self._context.info(f"triggers for job {self._job} cleared")
            elif self._uid >= 0:
                self._context.info(f"triggers for user {self._uid} cleared")
            else:
                self._context.info(f"trigger {self._id} cleared")
        return 0

    def get(self, controller: Connection) -> int:
        triggers = controller.call(ListTriggers(), Triggers).triggers
        if "verbose" in self._given:
            self._context.info(f"Read {len(triggers)} trigger records")
        shown = [trigger for trigger in triggers if self._wanted(trigger)]
        if shown and "noheader" not in self._given:
            self._context.out(_HEADING)
        for trigger in shown:
            self._context.out(_line(trigger))
        return 0

    def _wanted(self, trigger: Trigger) -> bool:
        if self._job and trigger.job_id != self._job:
            return False
        if "node" in self._given and trigger.resource != "node":
            return False
        if self._id and trigger.id != self._id:
            return False
        if self._uid >= 0 and trigger.uid != self._uid:
            return False
        return all(trigger.events == (event,) for event in self._events)


def _line(trigger: Trigger) -> str:
    """Several events of one trigger have no name in Slurm."""
    events = trigger.events
    where = str(trigger.job_id) if trigger.job_id else trigger.nodes if trigger.resource == "node" else "*"
    return (
        f"{trigger.id:7} {trigger.resource:9} {where:>7} {events[0] if len(events) == 1 else 'unknown':35} "
        f"{trigger.offset_seconds:6} {trigger.user or trigger.uid:8} {'PERM' if trigger.permanent else '':5} "
        f"{trigger.program}\n"
    )


def _number(options: dict[str, str], key: str, complaint: str) -> int:
    text = options.get(key)
    if text is None:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) < 11 and int(text)):
        raise SpritzError(f"{complaint} {text}")
    return int(text)


def _offset(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not text:
        return 0
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 10):
        raise SpritzError(f"Invalid offset {text}")
    return -int(digits) if text.startswith("-") else int(digits)


def _uid(user: str) -> int:
    if user.isascii() and user.isdecimal() and len(user) < 11:
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError as error:
        raise SpritzError(f"Invalid user {user}") from error


def entry() -> None:
    run("strigger", main)
