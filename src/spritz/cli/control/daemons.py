"""Daemons: ping, reconfigure, shutdown, setdebug; and what needs none: version, errnumstr. Source: scontrol(1)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from msgspec import Struct

    from spritz.cli.control.session import Session

#: longest that `shutdown` waits for the controller to have stopped, seconds
STOP_SECONDS = 120.0


def ping(session: Session, words: list[str]) -> int:
    """One line a controller; 1 if none answers."""
    from spritz.client.errors import ClientError
    from spritz.client.locate import locate_controller
    from spritz.model.queries import Ping, Pong
    from spritz.runtime.clock import SystemClock

    host, answer = "", None
    clock = SystemClock()
    began = clock.monotonic()
    try:
        config = locate_controller()
        host = config.hosts[0] if config.hosts else ""
        answer = session.call(Ping(), Pong, wait_seconds=0.0)
        host = answer.host or host
    except ClientError:
        if not host:
            raise
    if session.json is not None:
        from spritz.presentation.json.ping import show

        show(session.context, session.json, host, answer, int((clock.monotonic() - began) * 1e6))
    else:
        session.out(f"Slurmctld(primary) at {host} is {'UP' if answer else 'DOWN'}\n")
    return 0 if answer else 1


def reconfigure(session: Session, words: list[str]) -> int:
    """Read the files again. Every mistake in them is told, and the old configuration stays."""
    from spritz.model.commands.job import Done
    from spritz.model.queries import Reconfigure

    answer = session.call(Reconfigure(), Done)
    for message in answer.messages:
        session.context.warn(message)
    return 0


def shutdown(session: Session, words: list[str]) -> int:
    """Returns when the controller has stopped: the connection closes then."""
    from spritz.client.errors import CallTimeout, ConnectionLost
    from spritz.model.commands.job import Done
    from spritz.model.queries import Ping, Pong, Shutdown

    if words and words[0].lower() != "slurmctld" and words[0].lower() not in ("controller", "slurm"):
        session.say(f"invalid shutdown argument:{words[0]}")
        return 1
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


def _pause() -> None:
    from time import sleep

    sleep(0.02)


def set_debug_flag(session: Session, words: list[str]) -> int:
    """`+FLAG` or `-FLAG` of slurmctld's log; what is no flag of Slurm's is told in its words."""
    from spritz.config.schema import slurm_keys
    from spritz.model.queries import SetDebugFlag

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
    """Of slurmctld's log. A second word, the list of nodes, is for slurmd: refused."""
    from spritz.model.queries import SetDebug

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
    from spritz.model.queries import SetSchedulingLog

    level = {"0": 0, "disable": 0, "1": 1, "enable": 1}.get(words[0].lower())
    if level is None:
        session.say(f"invalid schedlog level: {words[0]}")
        return 1
    return administer(session, "slurm_set_schedlog_level", SetSchedulingLog(level=level))


def set_dampening(session: Session, words: list[str]) -> int:
    """fsdampeningfactor: of fair share, until the configuration is read again"""
    from spritz.model.queries import SetDampening

    word = words[0]
    if not (word.isascii() and word.isdigit() and len(word) <= 5 and 1 <= int(word) <= 0xFFFF):
        session.say(f"invalid dampening factor: {word}")
        return 1
    return administer(session, "slurm_set_fs_dampeningfactor", SetDampening(factor=int(word)))


def administer(session: Session, name: str, *requests: Struct) -> int:
    """An administrator's; `name` is what Slurm calls the request when it refuses it to others."""
    from spritz.client.errors import RemoteError
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
    """errnumstr"""
    from spritz.model.errors import ESLURM

    word = words[0]
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        session.context.error(f"{word} is not a valid error number")
        return 1
    texts = dict(ESLURM.values())
    number = int(word)
    if number in texts:
        text = texts[number]
    else:
        import os

        text = os.strerror(number)
    session.out(f"{text}\n")
    return 0


def version(session: Session, words: list[str]) -> int:
    """version"""
    from spritz.cli.options import version_text

    session.out(version_text())
    return 0


def completing(session: Session, words: list[str]) -> int:
    """Jobs in state COMPLETING, and the nodes that they wait for."""
    from spritz.model.commands.job import JobFilter
    from spritz.model.queries import JobRows, ListJobs
    from spritz.notation.hostlist import compress

    wanted = ListJobs(
        filter=JobFilter(states=("COMPLETING",)),
        fields=("id", "spec.name", "ended_at", "completing", "partition"),
        all=True,
    )
    for piece in session.controller().stream(wanted, JobRows):
        for job_id, name, ended, nodes, _ in piece.rows:
            from spritz.presentation.local_time import clock_text

            since = max(0, int(piece.now - float(str(ended or piece.now))))
            session.out(
                f"JobId={job_id} JobName={name} EndTime={clock_text(float(str(ended)))} CompletingTime={since} "
                f"Nodes(COMPLETING)={compress(nodes)}\n"  # type: ignore[arg-type]  # names
            )
    return 0
