"""scancel: end jobs and steps, or send them signals.

An id that never was, and a job that has ended, are no errors: Slurm's is silent and returns 0, and scripts rely on it.

Source: scancel(1).
"""

from __future__ import annotations

from spritz.cli.call.already_reported import AlreadyReported
from spritz.cli.call.context import Context
from spritz.cli.call.options import AUTOCOMPLETE, Row, about, run_parse

OPTIONS: tuple[Row, ...] = (
    AUTOCOMPLETE,
    Row("account", "A", "ACCOUNT", "only jobs of this account", env="SCANCEL_ACCOUNT"),
    Row("admin-comment", "", "TEXT", "set the job's AdminComment"),
    Row("batch", "b", "", "signal the batch shell only", env="SCANCEL_BATCH"),
    Row("clusters", "M", "NAMES", "clusters of the jobs, or all", env="SLURM_CLUSTERS"),
    Row("cluster", "", "NAMES", alias="clusters"),
    Row("cron", "c", "", "also cancel crontab jobs, under ScronParameters=explicit_scancel", env="SCANCEL_CRON"),
    Row("ctld", "", "", "send the request to the controller (always done)", env="SCANCEL_CTLD"),
    Row("full", "f", "", "signal the batch shell and all steps", env="SCANCEL_FULL"),
    Row("help", "", "", "print this help"),
    Row("hurry", "H", "", "skip staging out burst buffers (there are none)", env="SCANCEL_HURRY"),
    Row("interactive", "i", "", "ask before each job", env="SCANCEL_INTERACTIVE"),
    Row("jobname", "n", "NAME", "only jobs of this name", alias="name"),
    Row("me", "", "", "only my jobs"),
    Row("name", "", "NAME", "only jobs of this name", env="SCANCEL_NAME"),
    Row("nodelist", "w", "HOSTS", "only jobs on these nodes"),
    Row("partition", "p", "NAME", "only jobs of this partition", env="SCANCEL_PARTITION"),
    Row("qos", "q", "NAME", "only jobs of this QOS", env="SCANCEL_QOS"),
    Row("quiet", "Q", "", "no message about jobs that have ended"),
    Row("reservation", "R", "NAME", "only jobs in this reservation"),
    Row("sibling", "", "NAME", "remove a federated job from this cluster alone"),
    Row("signal", "s", "SIGNAL", "signal to send, by name or number, instead of ending the job"),
    Row("state", "t", "STATE", "only jobs in this state: PENDING, RUNNING or SUSPENDED", env="SCANCEL_STATE"),
    Row("usage", "", "", "print a short usage"),
    Row("user", "u", "USER", "only jobs of this user", env="SCANCEL_USER"),
    Row("verbose", "v", "", "report each action", env="SCANCEL_VERBOSE"),
    Row("version", "V", "", "print the version"),
    Row("wckey", "", "KEY", "only jobs of this wckey", env="SCANCEL_WCKEY"),
)

_SYNOPSIS = "[OPTIONS] [job_id[_array_id][.step_id]]"

USAGE = """\
Usage: scancel [-A account] [--batch] [--full] [--interactive] [-n job_name]
               [-p partition] [-Q] [-q qos] [-R reservation] [-s signal | integer]
               [-t PENDING | RUNNING | SUSPENDED] [--usage] [-u user_name] [--me]
               [--hurry] [-V] [-v] [-w hosts...] [--wckey=wckey]
               [job_id[_array_id][.step_id]]
"""


def main(argv: list[str], context: Context) -> int:
    """0; 1 for a wrong command line; else Slurm's number of the last error, modulo 256."""
    parsed = run_parse(OPTIONS, argv, context)
    if isinstance(parsed, int):
        return parsed
    options_given, operands = parsed
    option_keys = {key for key, _ in options_given}
    if option_keys & {"help", "usage", "version"}:
        return about(option_keys, "scancel", _SYNOPSIS, OPTIONS, USAGE, context)
    from spritz.cli.jobs.cancel.run import run

    try:
        return run(options_given, operands, OPTIONS, context)
    except AlreadyReported as silent:
        return silent.exit_code


def entry() -> None:
    from spritz.cli.call.entry import run

    run("scancel", main)
