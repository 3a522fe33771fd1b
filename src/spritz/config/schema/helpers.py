"""Keys of helpers.conf. Source: helpers.conf(5)."""

from __future__ import annotations

from spritz.config.kinds import PROGRAM, STRING, WORDS, flags, integer, seconds
from spritz.config.schema.key import Key

HELPERS_KEYS = (
    Key("AllowUserBoot", WORDS, (), "Users whose jobs may change nodes; all by default."),
    Key("BootTime", seconds(2**31), 300, "Time limit for a node to reboot with changed features."),
    Key("ExecTime", seconds(2**31), 10, "Time limit of a Helper."),
    Key("Feature", WORDS, (), "Features that nodes can change, by the Helper on the same line."),
    Key("Flags", flags("rebootless"), (), "rebootless: the features can change without a reboot."),
    Key(
        "Helper",
        PROGRAM,
        None,
        "Program that prints the active features, one per line; with an argument, it activates that feature.",
    ),
    Key("MutuallyExclusive", WORDS, (), "Features of which at most one can be active; a line for each group."),
    Key("NodeName", STRING, None, "Nodes to which the line applies; all by default."),
    Key("NodeRebootWeight", integer(0, 2**32 - 3), None, "Weight of nodes that would have to reboot for a job."),
)
