"""JobCompType=jobcomp/lua: calls `slurm_jobcomp_log_record(job_rec)` of jobcomp.lua, next to slurm.conf, for each ended
job.

Calls run one at a time, in the order of the ends, in a thread: a script that never returns delays only later ends. Its
errors are logged; it is not called again for that job. A changed script is loaded again.

Source: slurm.conf(5) JobCompType; the fields are those of `slurm.jobs` in job_submit.lua, and `script`, as 22.05 had
them at the job's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from spritz.controller.jobcomp.queue import EndQueue
from spritz.controller.journal.kept import Storing
from spritz.controller.needs import Clocked, Configured, Counted, Logged, Spawning
from spritz.model.errors import SpritzError
from spritz.model.rules import job_tres
from spritz.notation import hostlist
from spritz.plugins.answer import PluginError
from spritz.plugins.lua import LuaScript
from spritz.plugins.records import JobView, state_number
from spritz.runtime.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from spritz.controller.jobcomp.ended import EndedJob

NAME = "jobcomp.lua"
FUNCTION = "slurm_jobcomp_log_record"


class Calling(Clocked, Configured, Counted, Logged, Spawning, Storing, Protocol):
    """What the script sees of a job."""


class LuaLog:
    """Calls the script at `path`. Raises SpritzError if it cannot be loaded."""

    def __init__(self, context: Calling, path: str) -> None:
        self._context = context
        self._thread = Worker("completion-lua")
        cluster = context.configuration.settings.cluster_name
        self._script = LuaScript(path, "jobcomp/lua", (FUNCTION,), cluster=cluster)
        try:
            self._script.load()
        except PluginError as error:
            raise SpritzError(str(error)) from error
        self.take = EndQueue(context, "completion-lua", path, self._log).take

    async def _log(self, ended: EndedJob) -> None:
        for level, text in await self._thread.run(self._call, ended, await self._text(ended.job.spec.script_key)):
            write = self._context.log.error if level == "error" else self._context.log.info
            write("completion.script", job_id=ended.job.id, text=text)

    def _call(self, ended: EndedJob, text: str | None) -> list[tuple[str, str]]:
        """Call the function; returns log lines. `text`: the job's script. Blocks."""
        script = self._script
        script.lines, script.log = [], []
        try:
            script.load()
            number = script.call(FUNCTION, script.object(reader(ended, text)))
        except PluginError as error:
            return [*script.log, ("error", str(error))]
        failed = [("error", f"{FUNCTION} returned {number}")] if number else []
        return [*script.log, *failed]

    async def _text(self, key: str) -> str | None:
        if not key:
            return None
        try:
            return (await self._context.blobs.get(key)).decode("utf-8", "surrogateescape")
        except SpritzError:
            return ""


def reader(life: EndedJob, script: str | None) -> Callable[[str], Any]:
    """Reads fields of the job as of this end: its record may be of a later life. `script`: the job's script, if it has
    one.
    """
    job, event, allocation = life.job, life.event, life.allocation
    view = JobView(job)
    ended: dict[str, Any] = {
        "derived_ec": event.derived_exit_status,
        "end_time": int(event.at),
        "exit_code": event.exit_status,
        "job_state": state_number(event.state, completing=allocation is not None),
        "start_time": int(life.started),
        **dict.fromkeys(("batch_host", "nodes", "tres_alloc_str", "tres_fmt_alloc_str")),
        **dict.fromkeys(("total_cpus", "total_nodes"), 0),
    }
    if allocation is not None:
        allocated = job_tres.text(job_tres.allocated_pairs(allocation, job.billing))
        ended |= {
            "batch_host": allocation.names[0],
            "nodes": hostlist.compress(allocation.names),
            "total_cpus": allocation.cpu_count,
            "total_nodes": len(allocation.nodes),
            "tres_alloc_str": allocated,
            "tres_fmt_alloc_str": allocated,
        }

    def read(name: str) -> Any:
        if name == "script":
            return script
        return ended[name] if name in ended else view.read(name)

    return read
