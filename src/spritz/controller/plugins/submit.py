"""Passes every submission and update through JobSubmitPlugins, in order, before the core decides it.

Slurm's plugins without a script run here, between two requests; scripts run in a process of their own (`host`), and the
request continues when they have answered. The core gets the changed request, and the journal has the core's events: a
replay calls no plugin.

Source: slurm.conf(5) JobSubmitPlugins.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from spritz.config.plugins import plugins_of
from spritz.controller.needs import Clocked, Configured, Identifying, Logged, Reading, Spawning
from spritz.controller.plugins.host import Hosting, ScriptHost
from spritz.controller.plugins.messages import Ask
from spritz.model.errors import SpritzError
from spritz.model.rejection import Rejection
from spritz.plugins.answer import FieldError, LogLine, PluginAnswer, PluginError
from spritz.plugins.builtin import BUILTIN, SCRIPTS, BuiltinContext, Plugin
from spritz.plugins.description import Description
from spritz.plugins.numbers import rejection_of

if TYPE_CHECKING:
    from spritz.controller.configuration import Configuration
    from spritz.model.cluster.settings import Caller
    from spritz.model.job.record import Job

#: called at the end: the refusal (or None), and lines for the user
End = Callable[[Rejection | None, tuple[str, ...]], None]
#: whether the caller has gone away
Gone = Callable[[], bool]

#: Share of MessageTimeout: a refusal must reach the user before the command gives up.
TIMEOUT_PART = 0.8

_LEVELS = frozenset(("error", "info", "verbose", "debug", "debug2", "debug3"))


class Filtering(Clocked, Configured, Identifying, Logged, Reading, Spawning, Protocol):
    """What plugins see of the cluster; `submit_plugins` are those in force."""

    submit_plugins: SubmitPlugins | None


class SubmitPlugins:
    def __init__(self, context: Filtering, names: tuple[str, ...], host: ScriptHost | None) -> None:
        self.names = names
        self.host = host
        self._context = context
        self._plugins: dict[str, Plugin] = {name: BUILTIN[name]() for name in names if name in BUILTIN}

    def take_over(self, before: SubmitPlugins | None) -> None:
        """Plugins keep their memory when the configuration is read again."""
        if before is not None:
            self._plugins |= {name: plugin for name, plugin in before._plugins.items() if name in self._plugins}

    def submit(self, description: Description, caller: Caller, end: End, gone: Gone) -> None:
        """Process a new job. `end` may be called before this returns; nothing more is done for a caller that has
        `gone`.
        """
        _Pass(self._context, self, description, caller, None, end, gone).go_on()

    def modify(self, description: Description, job: Job, caller: Caller, end: End, gone: Gone) -> None:
        """Pass a change of `job` through the plugins. `end` gets the refusal or None, perhaps later."""
        _Pass(self._context, self, description, caller, job, end, gone).go_on()


class _Pass:
    """One request on its way through the plugins."""

    __slots__ = ("_caller", "_context", "_description", "_end", "_gone", "_job", "_lines", "_next", "_plugins")

    def __init__(
        self,
        context: Filtering,
        plugins: SubmitPlugins,
        description: Description,
        caller: Caller,
        job: Job | None,
        end: End,
        gone: Gone,
    ) -> None:
        self._context = context
        self._plugins = plugins
        self._description = description
        self._caller = caller
        self._job = job
        self._end = end
        self._gone = gone
        self._next = 0
        self._lines: list[str] = []

    def go_on(self) -> None:
        """Call the next plugin; after the last one, end."""
        while self._next < len(self._plugins.names):
            name = self._plugins.names[self._next]
            self._next += 1
            if name in SCRIPTS:
                self._ask_script(name)
                return
            if not self._take(name, self._ask_here(name)):
                return
        self._end(None, tuple(self._lines))

    def _take(self, name: str, answer: PluginAnswer) -> bool:
        """Apply a plugin's answer. False: the request ends here."""
        write_log(self._context, name, answer.log)
        self._lines += answer.lines
        if answer.number:
            self._end(rejection_of(answer.number), tuple(self._lines))
        return not answer.number

    def _ask_here(self, name: str) -> PluginAnswer:
        plugin = self._plugins._plugins[name]
        try:
            return (plugin.submit if self._job is None else plugin.modify)(self._description, self._builtin_context())
        except FieldError as error:
            problem = f"job_submit/{name}: {error}"
            return PluginAnswer(number=-1, lines=(problem,), log=(("error", problem),))

    def _builtin_context(self) -> BuiltinContext:
        context = self._context
        state = context.machine.state
        later = self._plugins.names[self._next :]
        parameters = dict(context.configuration.settings.scheduler_parameters)
        return BuiltinContext(
            uid=self._caller.uid,
            now=context.clock.now(),
            groups=self._groups(),
            partitions=tuple(state.partitions.values()),
            # other jobs may be queued while a script runs
            next_job_id=0 if any(name in SCRIPTS for name in later) else state.next_job_id,
            jobs_per_user_per_hour=int(parameters.get("jobs_per_user_per_hour") or 0),
        )

    def _groups(self) -> tuple[str, ...]:
        user_id = self._user_id()
        if user_id == self._caller.uid:
            return self._caller.group_names
        return self._context.identity.person(user_id).group_names

    def _user_id(self) -> int:
        return self._job.spec.uid if self._job is not None else int(self._description.read("user_id"))

    def _ask_script(self, name: str) -> None:
        host = self._plugins.host
        assert host is not None, "a script has a host"
        description = self._description
        request = Ask(
            plugin=name,
            fields=description.fields,
            uid=self._caller.uid,
            user_id=self._user_id(),
            groups=self._groups(),
            facts=dict(description.facts),
            script=description.script,
            environment=tuple(description.environment),
            job=self._job,
        )
        host.ask(request, lambda done: self._script_answered(name, done), self._gone)

    def _script_answered(self, name: str, done: Any) -> None:
        description = self._description
        if not done.answer.number:
            description.fields = done.fields
            description.changed |= set(done.changed)
            description.min_cpus = done.min_cpus if done.min_cpus is not None else description.min_cpus
            description.script = description.script if done.script is None else done.script
            if done.environment is not None:
                description.environment = list(done.environment)
        if self._take(name, done.answer):
            self.go_on()


def write_log(context: Logged, plugin: str, lines: tuple[LogLine, ...]) -> None:
    """Write a plugin's lines to the log."""
    for level, text in lines:
        write = getattr(context.log, level if level in _LEVELS else "debug3")
        write("plugin.told", plugin=plugin, text=text)


def names_of(configuration: Configuration) -> tuple[str, ...]:
    """JobSubmitPlugins in order; `config` has refused unknown names."""
    return plugins_of(configuration.loaded.settings, "JobSubmitPlugins")


def _host_of(context: Hosting, configuration: Configuration, names: tuple[str, ...]) -> ScriptHost | None:
    directory = os.path.dirname(os.path.abspath(configuration.path))
    scripts = [(name, os.path.join(directory, SCRIPTS[name])) for name in dict.fromkeys(names) if name in SCRIPTS]
    if not scripts:
        return None
    seconds = float(str(configuration.loaded.settings["MessageTimeout"])) * TIMEOUT_PART
    return ScriptHost(context, scripts, seconds)


async def begin_plugins(context: Filtering, configuration: Configuration) -> SubmitPlugins | None:
    """The plugins of a configuration, ready; None for none. Raises SpritzError if a script cannot be used."""
    names = names_of(configuration)
    if not names:
        return None
    host = _host_of(context, configuration, names)
    if host is not None:
        try:
            await host.start()
        except PluginError as error:
            raise SpritzError(str(error), hint=f"JobSubmitPlugins={','.join(names)} needs it") from error
    return SubmitPlugins(context, names, host)


async def renew_plugins(context: Filtering, configuration: Configuration) -> None:
    """Take over a new configuration. If its plugins cannot be used, the previous ones stay in force."""
    before = context.submit_plugins
    try:
        fresh = await begin_plugins(context, configuration)
    except SpritzError as error:
        context.log.error("plugins.refused", detail=error.message, hint="the earlier plugins stay in force")
        return
    if configuration is not context.configuration:  # the configuration was read again meanwhile
        if fresh is not None and fresh.host is not None:
            fresh.host.close()
        return
    if fresh is not None:
        fresh.take_over(before)
    context.submit_plugins = fresh
    if before is not None and before.host is not None:
        before.host.close()
