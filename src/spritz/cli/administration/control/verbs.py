"""Every keyword of scontrol, and how one is found and called.

Keywords may be shortened to `least` letters, in any case. Source: scontrol(1) COMMANDS; messages of 22.05.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from spritz.cli.call.already_reported import AlreadyReported
from spritz.model.errors import SpritzError

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.cli.administration.control.session import Session
    from spritz.client.locate import ControllerConfig

_PROGRAM = "PowerAction is not built; use `scontrol update nodename=… state=power_up`"


class Verb:
    """One keyword.

    `at` is `module:function` in this package, called with (session, words after the keyword) for the status; `least`
    letters are needed; `words` names the arguments, for the help; `few` and `many` bound their number. `refused` says
    why the keyword is not built. `text`: what it prints is never JSON or YAML.
    """

    __slots__ = ("at", "few", "help", "least", "many", "name", "refused", "text", "words")

    def __init__(
        self,
        name: str,
        at: str,
        help: str,
        *,
        words: str = "",
        least: int = 3,
        few: int = 0,
        many: int = 10_000,
        refused: str = "",
        text: bool = False,
    ) -> None:
        self.name = name
        self.at = at
        self.help = help
        self.words = words
        self.least = least
        self.few = few
        self.many = many
        self.refused = refused
        self.text = text

    def matches(self, word: str) -> bool:
        """Whether `word` is the name or an accepted abbreviation of at least `least` letters, in any case."""
        return len(word) >= min(self.least, len(self.name)) and self.name.startswith(word.lower())


def _no(name: str, why: str, *, least: int = 3) -> Verb:
    return Verb(name, "", "", least=least, refused=why)


VERBS: tuple[Verb, ...] = (
    Verb("all", "modes:show_all", "include hidden partitions", many=0),
    Verb("hide", "modes:hide", "exclude hidden partitions", many=0),
    Verb("details", "modes:details", "show more details", least=1, many=0),
    Verb("oneliner", "modes:oneliner", "print each record on one line", least=1, many=0),
    Verb("quiet", "modes:quiet", "print only errors", least=4, many=0),
    Verb("verbose", "modes:verbose", "print more", least=4, many=0),
    Verb("show", "show.entities:run", "show one record or all of them", words="ENTITY [ID]", few=1, many=4),
    Verb(
        "update",
        "update.entities:update",
        "change a job, node, partition, reservation or step",
        words="KEY=VALUE …",
        least=1,
        few=1,
    ),
    Verb("create", "update.entities:create", "create a partition, node or reservation", words="KEY=VALUE …", few=1),
    Verb(
        "delete",
        "update.entities:delete",
        "delete a partition, node or reservation",
        words="ENTITYName=NAME",
        few=1,
        many=2,
    ),
    Verb("hold", "jobs:hold", "keep pending jobs from starting", words="JOBS", least=4, few=1),
    Verb("holdu", "jobs:uhold", "as uhold", words="JOBS", least=5, few=1),
    Verb("uhold", "jobs:uhold", "hold jobs so that their owners may release them", words="JOBS", few=1),
    Verb("release", "jobs:release", "let held jobs start", words="JOBS", few=1),
    Verb("requeue", "jobs:requeue", "put running or ended jobs back into the queue", words="[incomplete] JOBS", few=1),
    Verb(
        "requeuehold",
        "jobs:requeue_hold",
        "requeue jobs, and hold them",
        words="[State=SpecialExit] JOBS",
        least=8,
        few=1,
    ),
    Verb("suspend", "jobs:suspend", "stop the processes of running jobs", words="JOBS", few=1),
    Verb("resume", "jobs:resume", "continue suspended jobs", words="JOBS", few=1),
    Verb("top", "jobs:top", "move jobs ahead of their owner's other jobs", words="JOBS", few=1, many=1),
    Verb("notify", "jobs:notify", "write a line to the job's standard error", words="JOB TEXT", least=1, few=2),
    Verb("wait_job", "jobs:wait_job", "wait until the job's nodes are ready", words="JOB", few=1, many=1),
    Verb(
        "write",
        "write:run",
        "write a job's script, or the configuration, to a file",
        words="batch_script JOB|config [FILE|-]",
        few=1,
        many=3,
    ),
    Verb("explain", "explain:run", "say why jobs wait and when they start", words="JOBS", few=1),
    Verb(
        "reboot",
        "nodes:reboot",
        "reboot nodes when idle (ASAP: drain them first); also reason=TEXT",
        words="[ASAP] [nextstate=STATE] ALL|NODES",
        least=4,
    ),
    Verb("cancel_reboot", "nodes:cancel_reboot", "cancel pending reboots", words="NODES", least=3, few=1, many=1),
    Verb("reconfigure", "daemons:reconfigure", "read the configuration files again", many=0),
    Verb("ping", "daemons:ping", "show which controllers answer", many=0),
    Verb("shutdown", "daemons:shutdown", "stop all daemons, or only slurmctld, and wait", words="[slurmctld]", many=1),
    Verb("takeover", "daemons:take_over", "let a standby controller take over", words="[INDEX]", least=2, many=1),
    Verb("setdebug", "daemons:set_debug", "set the level of slurmctld's log", words="LEVEL", least=4, few=1, many=2),
    Verb(
        "setdebugflags",
        "daemons:set_debug_flag",
        "add or remove a DebugFlag of slurmctld's log",
        words="+FLAG|-FLAG",
        least=9,
        few=1,
        many=1,
    ),
    Verb(
        "events",
        "events:watch",
        "print events as they happen; also since=N, job=JOBS, follow=no",
        words="[types=job,step,node,…]",
        least=2,
        many=4,
    ),
    Verb(
        "token",
        "token:make",
        "create a token for SLURM_JWT and REST; also username=NAME",
        words="[lifespan=SECONDS]",
        many=2,
        text=True,
    ),
    Verb("schedloglevel", "daemons:set_scheduling_log", "set SlurmSchedLogLevel", words="0|1", few=1, many=1),
    Verb("fsdampeningfactor", "daemons:set_dampening", "set FairShareDampeningFactor", words="N", few=1, many=1),
    Verb(
        "errnumstr",
        "daemons:error_text",
        "print the meaning of an error number",
        words="NUMBER",
        few=1,
        many=1,
        text=True,
    ),
    Verb("version", "daemons:version", "print the version", least=4, many=0, text=True),
    Verb("completing", "daemons:completing", "list jobs whose nodes are still being cleaned up", many=0, text=True),
    Verb("listjobs", "local:list_jobs", "list jobs with processes on this machine", words="[NODE]", least=5, many=1),
    Verb("liststeps", "local:list_steps", "list steps with processes on this machine", words="[NODE]", least=5, many=1),
    Verb(
        "listpids",
        "local:list_pids",
        "list processes of jobs on this machine",
        words="[JOB[.STEP]] [NODE]",
        least=5,
        many=2,
    ),
    Verb(
        "getent",
        "this_node:getent",
        "list users and groups of the steps on this machine",
        words="[NODE]",
        least=4,
        many=2,
        text=True,
    ),
    Verb(
        "pidinfo",
        "local:pid_info",
        "show the job of a process on this machine",
        words="PID",
        few=1,
        many=1,
        text=True,
    ),
    Verb(
        "getaddrs",
        "show.node:addresses",
        "print the addresses of nodes",
        words="HOSTS",
        least=4,
        few=1,
        many=1,
        text=True,
    ),
    Verb("help", "help:show", "print this help", least=1, many=0, text=True),
    Verb("exit", "modes:leave", "end scontrol", least=1, many=0),
    Verb("quit", "modes:leave", "end scontrol", least=4, many=0),
    _no("abort", "the controller writes no core dump on request; use kill -ABRT", least=5),
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
    word, *operands = words
    verb = find(word)
    if verb is None:
        session.say(f"invalid keyword: {word}")
        return 1
    if verb.refused:
        session.context.error(f"{verb.name} is not supported by Spritz: {verb.refused}")
        return 1
    if not operands and verb.name == "errnumstr":
        session.say("one arguments required for keyword:errnumstr")
        return 1
    if len(operands) < verb.few:
        session.say(
            f"too few arguments for {word} keyword"
            if verb.name in _OTHER_WORDING
            else f"too few arguments for keyword:{word}"
        )
        return 1
    if len(operands) > verb.many:
        session.say(f"too many arguments for keyword:{word}")
        return 1
    if verb.text and session.json is not None:
        option = "--yaml" if session.json.startswith("yaml=") else "--json"
        session.context.error(f"{option} is not supported by Spritz for {verb.name}")
        return 1
    name, _, function = verb.at.partition(":")
    module = import_module(f"spritz.cli.administration.control.{name}")
    run: Callable[[Session, list[str]], int] = getattr(module, function)
    try:
        away = None if session.local else _other_cluster(verb.name, operands)
        if away is None:
            return run(session, operands)
        return _at(away, session, lambda: run(session, operands))
    except AlreadyReported as silent:
        return silent.exit_code
    except SpritzError as error:
        session.hint(error.hint)
        if _is_of_controller(error):
            session.say(f"{_caller(verb.name, operands)} error: {error.message}")
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
        if number.isdecimal() and int(number) >> 26:
            from spritz.cli.call import clusters

            return clusters.of_job(int(number))
    return None


def _at(cluster: ControllerConfig, session: Session, run: Callable[[], int]) -> int:
    """Call for another cluster, and come back."""
    from spritz.cli.call import clusters
    from spritz.client.locate import locate_controller

    this_cluster = locate_controller()
    session.close()
    clusters.use(cluster)
    try:
        return run()
    finally:
        session.close()
        clusters.use(this_cluster)


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


def _caller(name: str, operands: list[str]) -> str:
    """The function of Slurm's library that messages about a failed request begin with."""
    if name == "show":
        entity = operands[0].lower()
        return next((loader for start, loader in _LOADERS.items() if entity.startswith(start)), "slurm_load")
    return {
        "reconfigure": "slurm_reconfigure",
        "shutdown": "slurm_shutdown",
        "update": "slurm_update",
        "ping": "slurm_ping",
        "setdebug": "slurm_set_debug_level",
        "schedloglevel": "slurm_set_schedlog_level",
    }.get(name, f"scontrol {name}")
