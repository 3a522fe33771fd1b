"""Tools that change the cluster, by Slurm's own commands, with the privileges of the user that runs the server."""

from __future__ import annotations

import re
from typing import Any

from spritz.agents import calls
from spritz.agents.calls import CommandRunner, Refused

_JOBS_MAX = 100
_KEY = re.compile(r"[A-Za-z]{2,40}", re.ASCII)


class WriteTools:
    """The tools, for the cluster of a slurm.conf (None: the one that commands find)."""

    def __init__(self, conf: str | None) -> None:
        self._commands = CommandRunner(conf)

    def submit_script(self, script: str, options: list[str] | None = None, directory: str = "") -> dict[str, Any]:
        """Submit a batch script (its text, beginning with #!). `options`: further options of sbatch, one word each,
        such as --gres=gpu:1. `directory`: its working directory. Use test_submission first."""
        words = ["sbatch", "--parsable", *(options or [])]
        out = self._commands.run(*words, stdin=script, cwd=directory or None)
        return {"job": out.strip().splitlines()[-1].partition(";")[0]}

    def cancel_jobs(self, jobs: list[str]) -> dict[str, Any]:
        """Cancel jobs for good: running ones are killed."""
        return self._each("scancel", jobs)

    def hold_jobs(self, jobs: list[str]) -> dict[str, Any]:
        """Prevent waiting jobs from starting until they are released."""
        return self._scontrol("hold", jobs)

    def release_jobs(self, jobs: list[str]) -> dict[str, Any]:
        """Release held jobs, so that they can start."""
        return self._scontrol("release", jobs)

    def requeue_jobs(self, jobs: list[str]) -> dict[str, Any]:
        """Stop running jobs and queue them again; work that they have not saved is lost."""
        return self._scontrol("requeue", jobs)

    def suspend_jobs(self, jobs: list[str]) -> dict[str, Any]:
        """Stop the processes of running jobs, which keep their memory (operators only)."""
        return self._scontrol("suspend", jobs)

    def resume_jobs(self, jobs: list[str]) -> dict[str, Any]:
        """Continue suspended jobs, whose processes and memory are still there (operators only)."""
        return self._scontrol("resume", jobs)

    def update_job(self, job: str, changes: dict[str, str]) -> dict[str, Any]:
        """Change a job by keys of `scontrol update`, such as {"TimeLimit": "2:00:00"} or {"NumNodes": "4"}."""
        if not changes or not all(_KEY.fullmatch(key) for key in changes):
            raise Refused("changes: keys of scontrol update, such as TimeLimit, NumNodes, Partition, Gres, Priority")
        if any(key.lower() in ("jobid", "job", "nodename", "partitionname", "reservationname") for key in changes):
            raise Refused("changes: only keys of the named job, not those that select a record")
        self._commands.run(
            "scontrol", "update", f"JobId={calls.job_id(job)}", *(f"{k}={v}" for k, v in changes.items())
        )
        return {"done": f"job {job} was changed"}

    def run_command(self, command: list[str], options: list[str] | None = None, directory: str = "") -> dict[str, Any]:
        """Run a command as a job from a snapshot of the code in `directory` (`spritz run --detach`). `options`: of
        `spritz run`, one word each, such as --gpus=2, --time=1h, --name=try."""
        if not command:
            raise Refused("command: the words of a command")
        words = ["spritz", "run", "--detach", *(options or []), "--", *command]
        return {"said": self._commands.run(*words, cwd=directory or None, seconds=300.0).strip()}

    def rerun(self, run: str, options: list[str] | None = None) -> dict[str, Any]:
        """Run a run again, exactly or with changes (`options` of `spritz rerun`)."""
        words = ["spritz", "rerun", "--detach", *(options or []), calls.name(run, "run")]
        return {"said": self._commands.run(*words, seconds=300.0).strip()}

    def pause_run(self, run: str) -> dict[str, Any]:
        """Make a run save its state and release its nodes."""
        return {"said": self._commands.run("spritz", "pause", calls.name(run, "run"), seconds=600.0).strip()}

    def resume_run(self, run: str) -> dict[str, Any]:
        """Continue a paused run from its saved state."""
        return {"said": self._commands.run("spritz", "resume", calls.name(run, "run"), seconds=300.0).strip()}

    def _checked(self, jobs: list[str]) -> list[str]:
        if not 1 <= len(jobs) <= _JOBS_MAX:
            raise Refused(f"jobs: 1 to {_JOBS_MAX}")
        return [calls.job_id(job) for job in jobs]

    def _each(self, command: str, jobs: list[str]) -> dict[str, Any]:
        checked = self._checked(jobs)
        self._commands.run(command, *checked)
        return {"done": f"{command} {' '.join(checked)}"}

    def _scontrol(self, verb: str, jobs: list[str]) -> dict[str, Any]:
        checked = ",".join(self._checked(jobs))
        self._commands.run("scontrol", verb, checked)
        return {"done": f"scontrol {verb} {checked}"}


#: (method, title, destroys work)
TOOLS = (
    ("submit_script", "Submit a batch script", False),
    ("cancel_jobs", "Cancel jobs", True),
    ("hold_jobs", "Hold jobs", False),
    ("release_jobs", "Release jobs", False),
    ("requeue_jobs", "Requeue jobs", True),
    ("suspend_jobs", "Suspend jobs", False),
    ("resume_jobs", "Resume jobs", False),
    ("update_job", "Change a job", True),
    ("run_command", "Run a command", False),
    ("rerun", "Run again", False),
    ("pause_run", "Pause a run", True),
    ("resume_run", "Resume a run", False),
)
