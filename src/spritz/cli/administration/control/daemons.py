"""Daemons: ping, reconfigure, shutdown, setdebug; and what needs none: version, errnumstr. Source: scontrol(1)."""

from __future__ import annotations

import os
from time import sleep
from typing import TYPE_CHECKING

from spritz.cli.call.options import version_text
from spritz.client.command.sync import HOST_SECONDS, TAKE_OVER_SECONDS, connect_address
from spritz.client.errors import CallTimeout, ClientError, ConnectionLost, RemoteError, RemoteHost, unreachable
from spritz.client.locate import locate_controller
from spritz.config.schema import slurm_keys
from spritz.model.errors import ESLURM
from spritz.model.queries.daemons import (
    ControllerPongs,
    Ping,
    PingControllers,
    Pong,
    Reconfigure,
    SetDampening,
    SetDebug,
    SetDebugFlag,
    SetSchedulingLog,
    Shutdown,
    TakeOver,
)
from spritz.notation.hostlist import compress
from spritz.runtime.clock import SystemClock

if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.cli.administration.control.session import Session
    from spritz.client.locate import ControllerConfig

#: longest that `shutdown` waits for the controller to have stopped, seconds
STOP_SECONDS = 120.0

#: seconds for which a controller may not answer while it takes over
_AWAY_SECONDS = 5.0


def ping(session: Session, words: list[str]) -> int:
    """One line a controller; 1 if none answers."""
    host, answer = "", None
    clock = SystemClock()
    began = clock.monotonic()
    try:
        config = locate_controller()
        if config.has_standby:
            return _ping_each(session, config)
        host = config.hosts[0] if config.hosts else ""
        answer = session.call(Ping(), Pong, wait_seconds=0.0)
        host = answer.host or host
    except ClientError:
        if not host:
            raise
    if session.json is not None:
        from spritz.presentation.json.ping import show

        show(session.context, session.json, [(host, answer, int((clock.monotonic() - began) * 1e6))])
    else:
        session.out(f"Slurmctld(primary) at {host} is {'UP' if answer else 'DOWN'}\n")
    return 0 if answer else 1


def _ping_each(session: Session, config: ControllerConfig) -> int:
    """One line for each SlurmctldHost, as slurm.conf has them; 1 if none answers."""
    clock = SystemClock()
    answers: list[tuple[str, Pong | None, int]] = []
    reasons: list[str] = []
    unasked: set[int] = set()
    pings: ControllerPongs | ClientError | None = None
    for index, (name, host) in enumerate(zip(config.names, config.hosts, strict=True)):
        began, answer, reason = clock.monotonic(), None, ""
        try:
            with connect_address((host, config.port), timeout=HOST_SECONDS, owners=config.owners()) as connection:
                answer = connection.call(Ping(), Pong)
        except RemoteHost:  # another machine's: the controller that leads reaches it
            if pings is None:
                pings = _asked_by_the_leader(session, len(config.hosts))
                if isinstance(pings, ClientError):
                    session.context.info(_why_unasked(pings))
            if isinstance(pings, ClientError):
                unasked.add(index)
            else:
                answer, reason = pings.pongs[index], pings.reasons[index]
        except ClientError:
            pass
        answers.append((name, answer, int((clock.monotonic() - began) * 1e6)))
        reasons.append(reason)
    if session.json is not None:
        from spritz.presentation.json.ping import show

        show(session.context, session.json, answers)
    else:
        for index, (name, answer, _) in enumerate(answers):
            mode = "primary" if index == 0 else "backup" if len(answers) == 2 else f"backup{index}"
            state = "UP" if answer else "UNKNOWN" if index in unasked else "DOWN"
            session.out(f"Slurmctld({mode}) at {name} is {state}\n")
            if reasons[index]:
                session.context.info(f"{name}: {reasons[index]}")
            if answer is not None and (answer.leading != (index == 0) or answer.detail):
                session.context.info(
                    f"{name} leads"
                    if answer.leading
                    else f"{name} stands by"
                    + (f" for {answer.leader}" if answer.leader else "")
                    + (f": {answer.detail}" if answer.detail else "")
                )
    return 0 if any(answer for _, answer, _ in answers) else 1


def _why_unasked(error: ClientError) -> str:
    """Why controllers of other machines could not be asked: none leads, or none of this machine's daemons runs."""
    why = error.hint or error.message
    return f"none leads: {why}" if error.code == "ESLURM_IN_STANDBY_MODE" else f"controllers elsewhere: {why}"


def _asked_by_the_leader(session: Session, count: int) -> ControllerPongs | ClientError:
    """Each controller's answer to the leader, or why the leader cannot be asked."""
    try:
        answer = session.call(PingControllers(), ControllerPongs, wait_seconds=0.0)
    except ClientError as error:
        session.close()
        return error
    return ControllerPongs(
        pongs=(*answer.pongs[:count], *(None for _ in range(count - len(answer.pongs)))),
        reasons=(*answer.reasons[:count], *("" for _ in range(count - len(answer.reasons)))),
    )


def _have_another_lead(session: Session, config: ControllerConfig, index: int) -> int:
    """`take_over` through the leading controller, from a machine that cannot reach the new one."""
    from spritz.model.commands.job import Done

    clock, name = SystemClock(), config.names[index]

    def leads() -> bool:
        pings = _asked_by_the_leader(session, len(config.hosts))
        pong = None if isinstance(pings, ClientError) else pings.pongs[index]
        return pong is not None and pong.leading

    if leads():
        session.context.info(f"{name} leads already")
        return 0
    session.call(TakeOver(index=index), Done)
    deadline = clock.monotonic() + TAKE_OVER_SECONDS
    while clock.monotonic() < deadline:
        session.close()
        if leads():
            return 0
        _pause()
    return _does_not_lead(session, name)


def _does_not_lead(session: Session, name: str) -> int:
    session.say(f"slurm_takeover error: {name} does not lead after {TAKE_OVER_SECONDS:g} s: see its log")
    return 1


def take_over(session: Session, words: list[str]) -> int:
    """Have a standby controller lead: the first one, or that of SlurmctldHost[INDEX]. Returns when it leads, and prints
    nothing then, as Slurm's.
    """
    config = locate_controller()
    word = words[0] if words else "1"
    if not config.has_standby:
        session.say("slurm_takeover error: There is no backup controller: slurm.conf has one SlurmctldHost")
        return 1
    if not word.isdecimal() or int(word) >= len(config.hosts):
        session.say(f"slurm_takeover error: Invalid backup controller index {word} (0 to {len(config.hosts) - 1})")
        return 1
    try:
        return _take_over(session, config, int(word))
    except ClientError as error:
        session.say(f"slurm_takeover error: {error.message}")
        if error.hint:
            session.context.info(error.hint)
        return 1


def _take_over(session: Session, config: ControllerConfig, index: int) -> int:
    """Make that controller lead. Raises ClientError."""
    from spritz.model.commands.job import Done

    name, address, owners = config.names[index], (config.hosts[index], config.port), config.owners()
    clock = SystemClock()
    deadline = clock.monotonic() + TAKE_OVER_SECONDS
    requested = False
    while clock.monotonic() < deadline:
        try:
            with connect_address(address, timeout=HOST_SECONDS, owners=owners) as connection:
                if connection.call(Ping(), Pong).leading:
                    if not requested:
                        session.context.info(f"{name} leads already")
                    return 0
                if not requested:
                    connection.call(TakeOver(), Done)
                    requested = True
        except RemoteHost:
            return _have_another_lead(session, config, index)
        except RemoteError:
            raise
        except ClientError as error:
            # Between standing by and leading, or the other way round, it does not listen for a moment.
            if not requested and clock.monotonic() > deadline - TAKE_OVER_SECONDS + _AWAY_SECONDS:
                raise unreachable(f"slurmctld of {name} does not run: {error.hint or error.message}") from error
        _pause()
    return _does_not_lead(session, name)


def reconfigure(session: Session, words: list[str]) -> int:
    """Read the files again. All mistakes are reported, and the old configuration stays in force."""
    from spritz.model.commands.job import Done

    answer = session.call(Reconfigure(), Done)
    for message in answer.messages:
        session.context.warn(message)
    return 0


def shutdown(session: Session, words: list[str]) -> int:
    """Returns when the controller has stopped: the connection closes then."""
    from spritz.model.commands.job import Done

    if words and words[0].lower() != "slurmctld" and words[0].lower() not in ("controller", "slurm"):
        session.say(f"invalid shutdown argument:{words[0]}")
        return 1
    _shut_standbys_down()
    session.call(Shutdown(controller_only=bool(words) and words[0].lower() == "slurmctld"), Done)
    connection = session.controller()
    try:
        while True:  # it may answer a while before it closes
            connection.call(Ping(), Pong, timeout=STOP_SECONDS)
            _pause()
    except CallTimeout:
        session.context.error(f"slurmctld has not stopped within {STOP_SECONDS:g} s")
        return 1
    except ConnectionLost:
        return 0


def _shut_standbys_down() -> None:
    """Standbys first, so that none takes over from the leader."""
    from spritz.model.commands.job import Done

    config = locate_controller()
    for host in config.hosts if config.has_standby else ():
        try:
            with connect_address((host, config.port), timeout=HOST_SECONDS, owners=config.owners()) as connection:
                if not connection.call(Ping(), Pong).leading:
                    connection.call(Shutdown(), Done)
        except ClientError:
            continue  # it is down, or refuses the caller, as the leader will


def _pause() -> None:
    sleep(0.02)


def set_debug_flag(session: Session, words: list[str]) -> int:
    """`+FLAG` or `-FLAG` for slurmctld's log; an unknown flag gets Slurm's error."""
    (word,) = words
    if word[:1] not in ("+", "-"):
        session.say(f"invalid debug flag: {word}\nUsage: setdebugflags [+|-]NAME")
        return 1
    known = {name.lower(): name for name in slurm_keys()["debugflags"].kind.words}
    names = word[1:].split(",")
    unknown = [name for name in names if name.lower() not in known]
    if unknown:
        session.context.error(f"Invalid DebugFlag: {unknown[0]}")
        session.say(f"invalid debug flag: {word}")
        return 1
    changes = [SetDebugFlag(flag=known[name.lower()], on=word[0] == "+") for name in names]
    return administer(session, "slurm_set_debugflags", *changes)


def set_debug(session: Session, words: list[str]) -> int:
    """Set the level of slurmctld's log. A second word, the list of nodes, is for slurmd: refused."""
    if len(words) > 1:
        session.context.error("setdebug for nodes is not supported by Spritz: slurmd's level is that of slurm.conf")
        return 1
    level = _level(words[0])
    if level is None:
        session.say(f"invalid debug level: {words[0]}")
        return 1
    return administer(session, "slurm_set_debug_level", SetDebug(level=level))


def set_scheduling_log(session: Session, words: list[str]) -> int:
    """schedloglevel: 0 or disable, 1 or enable"""
    level = {"0": 0, "disable": 0, "1": 1, "enable": 1}.get(words[0].lower())
    if level is None:
        session.say(f"invalid schedlog level: {words[0]}")
        return 1
    return administer(session, "slurm_set_schedlog_level", SetSchedulingLog(level=level))


def set_dampening(session: Session, words: list[str]) -> int:
    """fsdampeningfactor: of fair share, until the configuration is read again"""
    word = words[0]
    if not (word.isascii() and word.isdigit() and len(word) <= 5 and 1 <= int(word) <= 0xFFFF):
        session.say(f"invalid dampening factor: {word}")
        return 1
    return administer(session, "slurm_set_fs_dampeningfactor", SetDampening(factor=int(word)))


def administer(session: Session, name: str, *requests: Struct) -> int:
    """An administrator's; `name` is what Slurm calls the request when it refuses it to others."""
    from spritz.model.commands.job import Done

    try:
        for request in requests:
            session.call(request, Done)
    except RemoteError as error:
        if error.code != "ESLURM_USER_ID_MISSING":
            raise
        session.say(f"{name} error: Permission denied")
        return 1
    return 0


_LEVELS = ("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5")


def _level(word: str) -> str | None:
    """A level's name; numbers count from quiet."""
    if word.isascii() and word.isdigit():
        return _LEVELS[int(word)] if int(word[:4]) < len(_LEVELS) else None
    return word.lower() if word.lower() in _LEVELS else None


def error_text(session: Session, words: list[str]) -> int:
    """`scontrol errnumstr NUMBER`: the text of an ESLURM error number."""
    word = words[0]
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        session.context.error(f"{word} is not a valid error number")
        return 1
    texts = dict(ESLURM.values())
    number = int(word)
    if number in texts:
        text = texts[number]
    else:
        text = os.strerror(number)
    session.out(f"{text}\n")
    return 0


def version(session: Session, words: list[str]) -> int:
    session.out(version_text())
    return 0


def completing(session: Session, words: list[str]) -> int:
    """Jobs in state COMPLETING, and the nodes that they wait for."""
    from spritz.model.job.job_filter import JobFilter
    from spritz.model.queries.jobs import JobRows, ListJobs

    query = ListJobs(
        filter=JobFilter(states=("COMPLETING",)),
        fields=("id", "spec.name", "ended_at", "completing", "partition"),
        all=True,
    )
    for piece in session.controller().stream(query, JobRows):
        for job_id, name, ended, nodes, _ in piece.rows:
            from spritz.presentation.local_time import clock_text

            since = max(0, int(piece.now - float(str(ended or piece.now))))
            session.out(
                f"JobId={job_id} JobName={name} EndTime={clock_text(float(str(ended)))} CompletingTime={since} "
                f"Nodes(COMPLETING)={compress(nodes)}\n"  # type: ignore[arg-type]  # names
            )
    return 0
