"""Every keyword of scontrol, and how one is found and called.

Keywords may be shortened to `least` letters, in any case. Source: scontrol(1) COMMANDS; messages of 22.05.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from spritz.cli.already_reported import AlreadyReported
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.cli.control.session import Session
    from spritz.client.locate import ControllerConfig

_PROGRAM = "PowerAction is not built; use `scontrol update nodename=… state=power_up`"


class Verb:
    """One keyword.

    `at` is `module:function` in this package, called with (session, words after the keyword) for the status; `least`
    letters are needed; `few` and `many` bound the number of words. `refused` says why it is not built.
    """

    __slots__ = ("at", "few", "help", "least", "many", "name", "refused")

    def __init__(
        self, name: str, at: str, help: str, *, least: int = 3, few: int = 0, many: int = 10_000, refused: str = ""
    ) -> None:
        self.name = name
        self.at = at
        self.help = help
        self.least = least
        self.few = few
        self.many = many
        self.refused = refused

    def matches(self, word: str) -> bool:
        """Whether `word` is the name or an accepted abbreviation of at least `least` letters, in any case."""
        return len(word) >= min(self.least, len(self.name)) and self.name.startswith(word.lower())


def _no(name: str, why: str, *, least: int = 3) -> Verb:
    return Verb(name, "", "", least=least, refused=why)


VERBS: tuple[Verb, ...] = (
    Verb("all", "modes:show_all", "show what is hidden too", many=0),
    Verb("hide", "modes:hide", "do not show what is hidden", many=0),
    Verb("details", "modes:details", "show more", least=1, many=0),
    Verb("oneliner", "modes:oneliner", "one line for each record", least=1, many=0),
    Verb("quiet", "modes:quiet", "only errors", least=4, many=0),
    Verb("verbose", "modes:verbose", "print more", least=4, many=0),
    Verb("show", "show:run", "show ENTITY [ID]: a record, or all", few=1, many=4),
    Verb("update", "update:update", "update KEY=VALUE …: a job, node, partition or step", least=1, few=1),
    Verb("create", "update:create", "create KEY=VALUE …: a partition, node or reservation", few=1),
    Verb("delete", "update:delete", "delete PartitionName=…, NodeName=… or ReservationName=…", few=1, many=2),
    Verb("hold", "jobs:hold", "hold JOBS: keep from starting", least=4, few=1),
    Verb("holdu", "jobs:uhold", "hold as the user", least=5, few=1),
    Verb("uhold", "jobs:uhold", "hold as the user: he may release it himself", few=1),
    Verb("release", "jobs:release", "release JOBS", few=1),
    Verb("requeue", "jobs:requeue", "requeue [incomplete] JOBS: queue again", few=1),
    Verb("requeuehold", "jobs:requeue_hold", "requeuehold [State=SpecialExit] JOBS", least=8, few=1),
    Verb("suspend", "jobs:suspend", "suspend JOBS: stop all processes", few=1),
    Verb("resume", "jobs:resume", "resume JOBS that are suspended", few=1),
    Verb("top", "jobs:top", "top JOBS: first among their user's", few=1, many=1),
    Verb("notify", "jobs:notify", "notify JOB TEXT: a line into the job's standard error", least=1, few=2),
    Verb("wait_job", "jobs:wait_job", "wait_job JOB: until it runs", few=1, many=1),
    Verb("write", "write:run", "write batch_script JOB [FILE|-]; write config [FILE]", few=1, many=3),
    Verb("explain", "explain:run", "explain JOBS: why they wait, and when they start", few=1),
    Verb("reboot", "nodes:reboot", "reboot [ASAP] [nextstate=RESUME|DOWN] [reason=…] ALL|NODES", least=4),
    Verb("cancel_reboot", "nodes:cancel_reboot", "cancel_reboot NODES", least=3, few=1, many=1),
    Verb("reconfigure", "daemons:reconfigure", "read the configuration files again", many=0),
    Verb("ping", "daemons:ping", "are the controllers there?", many=0),
    Verb("shutdown", "daemons:shutdown", "shutdown [slurmctld]: stop the daemons; returns when they have", many=1),
    Verb("takeover", "daemons:take_over", "takeover [INDEX]: have a standby controller lead", least=2, many=1),
    Verb("setdebug", "daemons:set_debug", "setdebug LEVEL: of slurmctld's log", least=4, few=1, many=2),
    Verb(
        "setdebugflags",
        "daemons:set_debug_flag",
        "setdebugflags +FLAG or -FLAG: of slurmctld's log",
        least=9,
        few=1,
        many=1,
    ),
    Verb(
        "events",
        "events:watch",
        "events [since=N] [types=job,step,node,…] [job=JOBS] [follow=no]: what happens, as it happens",
        least=2,
        many=4,
    ),
    Verb("token", "token:make", "token [lifespan=SECONDS] [username=NAME]: for SLURM_JWT and REST", many=2),
    Verb("schedloglevel", "daemons:set_scheduling_log", "schedloglevel 0 or 1: SlurmSchedLogLevel", few=1, many=1),
    Verb("fsdampeningfactor", "daemons:set_dampening", "fsdampeningfactor N: FairShareDampeningFactor", few=1, many=1),
    Verb("errnumstr", "daemons:error_text", "errnumstr NUMBER: what an error number means", few=1, many=1),
    Verb("version", "daemons:version", "print the version", least=4, many=0),
    Verb("completing", "daemons:completing", "jobs whose nodes are still being cleared", many=0),
    Verb("listjobs", "local:list_jobs", "jobs with processes on this machine", least=5, many=1),
    Verb("liststeps", "local:list_steps", "steps with processes on this machine", least=5, many=1),
    Verb(
        "listpids", "local:list_pids", "listpids [JOB[.STEP]] [NODE]: their processes on this machine", least=5, many=2
    ),
    Verb("getent", "this_node:getent", "getent [NODE]: users and groups of the steps on this machine", least=4, many=2),
    Verb("pidinfo", "local:pid_info", "pidinfo PID: which job a process belongs to", few=1, many=1),
    Verb("getaddrs", "show_node:addresses", "getaddrs HOSTS: addresses of nodes", least=4, few=1, many=1),
    Verb("help", "help:show", "print this help", least=1, many=0),
    Verb("exit", "modes:leave", "leave", least=1, many=0),
    Verb("quit", "modes:leave", "leave", least=4, many=0),
    _no("abort", "a core dump of the controller is not to be had; kill -ABRT does as much", least=5),
    _no("cluster", "call scontrol with -M NAME", least=2),
    _no("power", _PROGRAM),
)

#: `too few arguments for update keyword`: these say it the other way round
_OTHER_WORDING = ("update", "delete", "create")


def find(word: str) -> Verb | None:
    """The verb that a word means: the exact one, or the first that it begins."""
    lower = word.lower()
    for verb in VERBS:
        if verb.name == lower:
            return verb
    for verb in VERBS:
        if verb.matches(lower):
            return verb
    return None


def call(session: Session, words: list[str]) -> int:
    """Carry out one line; the status. Errors are printed here. Raises nothing that a user could cause."""
    word, *rest = words
    verb = find(word)
    if verb is None:
        session.say(f"invalid keyword: {word}")
        return 1
    if verb.refused:
        session.context.error(f"{verb.name} is not supported by Spritz: {verb.refused}")
        return 1
    if not rest and verb.name == "errnumstr":
        session.say("one arguments required for keyword:errnumstr")
        return 1
    if len(rest) < verb.few:
        session.say(
            f"too few arguments for {word} keyword"
            if verb.name in _OTHER_WORDING
            else f"too few arguments for keyword:{word}"
        )
        return 1
    if len(rest) > verb.many:
        session.say(f"too many arguments for keyword:{word}")
        return 1
    module, _, name = verb.at.partition(":")
    run: Callable[[Session, list[str]], int] = getattr(import_module(f"spritz.cli.control.{module}"), name)
    try:
        away = None if session.local else _other_cluster(verb.name, rest)
        if away is None:
            return run(session, rest)
        return _at(away, session, lambda: run(session, rest))
    except AlreadyReported as silent:
        return silent.exit_code
    except SpritzError as error:
        session.hint(error.hint)
        if _is_of_controller(error):
            session.say(f"{_caller(verb.name, rest)} error: {error.message}")
            return 1
        session.context.error(error.message)
        return error.exit_code


#: keywords that name jobs: those of a federation are asked of the cluster where they are
_OF_JOBS: tuple[str, ...] = (
    "hold",
    "holdu",
    "uhold",
    "release",
    "requeue",
    "requeuehold",
    "suspend",
    "resume",
    "top",
    "notify",
)
_OF_JOBS += ("wait_job", "write", "explain", "show", "update")


def _other_cluster(verb: str, words: list[str]) -> ControllerConfig | None:
    """The cluster of the first job of a federation that is named; None: this one."""
    if verb not in _OF_JOBS or (verb == "show" and not words[0].lower().startswith(("j", "st"))):
        return None
    for word in words:
        number = word.lower().removeprefix("jobid=").partition(".")[0].partition(",")[0]
        if number.isdigit() and int(number) >> 26:
            from spritz.cli import clusters

            return clusters.of_job(int(number))
    return None


def _at(cluster: ControllerConfig, session: Session, run: Callable[[], int]) -> int:
    """Call for another cluster, and come back."""
    from spritz.cli import clusters
    from spritz.client.locate import locate_controller

    own = locate_controller()
    session.close()
    clusters.use(cluster)
    try:
        return run()
    finally:
        session.close()
        clusters.use(own)


def _is_of_controller(error: SpritzError) -> bool:
    """Whether the controller refused or could not be reached. Does not import the client otherwise."""
    client = sys.modules.get("spritz.client.errors")
    return client is not None and isinstance(error, client.ClientError)


#: beginning of an entity of `show` -> the function of Slurm's library that loads it
_LOADERS = {
    "j": "slurm_load_jobs",
    "n": "slurm_load_node",
    "p": "slurm_load_partitions",
    "c": "slurm_load_ctl_conf",
    "st": "slurm_get_job_steps",
}


def _caller(name: str, rest: list[str]) -> str:
    """The function of Slurm's library that messages about a failed request begin with."""
    if name == "show":
        entity = rest[0].lower()
        return next((loader for start, loader in _LOADERS.items() if entity.startswith(start)), "slurm_load")
    return {
        "reconfigure": "slurm_reconfigure",
        "shutdown": "slurm_shutdown",
        "update": "slurm_update",
        "ping": "slurm_ping",
        "setdebug": "slurm_set_debug_level",
        "schedloglevel": "slurm_set_schedlog_level",
    }.get(name, f"scontrol {name}")
