"""job_submit.lua: `slurm_job_submit(job_desc, part_list, submit_uid)`, `slurm_job_modify(job_desc, job_rec, …)`.

Source: https://slurm.schedmd.com/job_submit_plugins.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spritz.plugins.answer import PluginAnswer, PluginError
from spritz.plugins.lua import LuaScript
from spritz.plugins.records import JobView, ReservationView

if TYPE_CHECKING:
    from spritz.plugins.description import Description
    from spritz.plugins.script import ScriptContext

FUNCTIONS = ("slurm_job_submit", "slurm_job_modify")


class LuaSubmit:
    """The script, and the cluster data that it sees. Call `load` first."""

    def __init__(self, path: str, cluster: str = "") -> None:
        live = {"jobs": self._jobs, "reservations": self._reservations}
        self._script = LuaScript(path, "job_submit/lua", FUNCTIONS, cluster=cluster, live=live)
        self._context: ScriptContext | None = None

    def load(self) -> None:
        """Load or reload the script. Raises PluginError."""
        self._script.load()

    def submit(self, job: Description, context: ScriptContext) -> PluginAnswer:
        """Call slurm_job_submit for a new job."""
        return self._call("slurm_job_submit", job, context, ())

    def modify(self, job: Description, context: ScriptContext) -> PluginAnswer:
        """Call slurm_job_modify for a change of `context.job`."""
        record = self._script.object(JobView(context.job).read) if context.job is not None else None
        return self._call("slurm_job_modify", job, context, (record,))

    def _call(self, function: str, job: Description, context: ScriptContext, middle: tuple[Any, ...]) -> PluginAnswer:
        script = self._script
        script.lines, script.log = [], []
        self._context = context
        try:
            script.load()
            described = self._described(job, script)
            number = script.call(function, described, *middle, self._partitions(context), context.uid)
        except PluginError as error:
            # Differs: Slurm 22.05 lets the job pass. Newer versions refuse it, with Lua's message.
            return PluginAnswer(number=-1, lines=(str(error),), log=(*script.log, ("error", str(error))))
        finally:
            self._context = None
        return PluginAnswer(number=number, lines=tuple(script.lines), log=tuple(script.log))

    def _described(self, job: Description, script: LuaScript) -> Any:
        environment = script.object(job.variable, lambda name, value: job.set_variable(name, str(value)))

        def read(name: str) -> Any:
            return environment if name == "environment" else job.read(name)

        return script.object(read, job.write)

    def _partitions(self, context: ScriptContext) -> Any:
        views = {view.partition.name: view for view in context.usable()}
        return self._script.records(list(views), lambda name: views[name].read if name in views else None)

    def _jobs(self) -> Any:
        jobs = {} if self._context is None else {str(job.id): job for job in self._context.jobs()}
        return self._script.records(list(jobs), lambda name: JobView(jobs[name]).read if name in jobs else None)

    def _reservations(self) -> Any:
        by_name = (
            {}
            if self._context is None
            else {reservation.name: reservation for reservation in self._context.reservations()}
        )
        return self._script.records(
            list(by_name), lambda name: ReservationView(by_name[name]).read if name in by_name else None
        )
