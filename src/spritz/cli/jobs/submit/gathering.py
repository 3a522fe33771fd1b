"""--acctg-freq: the interval at which tasks' usage is sampled.

Source: sbatch(1) --acctg-freq; slurm.conf(5) JobAcctGatherFrequency.
"""

from __future__ import annotations

from spritz.cli.jobs.submit.refusals import PARSE_STATUS, Fields, not_built
from spritz.model.errors import SpritzError
from spritz.notation.errors import shown

#: Other subjects that Slurm can sample, which Spritz does not.
_OTHERS = ("energy", "network", "filesystem")


def acctg_freq(fields: Fields, value: str) -> None:
    """Parse `30` or `task=30`: seconds between two samples of a task's usage, 0 for none. Raises SpritzError."""
    for word in value.split(","):
        name, equals, seconds = word.partition("=")
        if not equals:
            name, seconds = "task", word
        if not (seconds.isascii() and seconds.isdigit()) or name.lower() not in ("task", *_OTHERS):
            raise SpritzError(f"Invalid --acctg-freq specification: {shown(value)}", exit_code=PARSE_STATUS)
        if name.lower() in _OTHERS and int(seconds):
            raise not_built(f"acctg-freq={word}", "only tasks' usage is sampled")
        if name.lower() == "task":
            fields["sample_seconds"] = min(int(seconds), 0xFFFF)
