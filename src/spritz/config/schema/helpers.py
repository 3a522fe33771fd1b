"""Keys of helpers.conf. Source: helpers.conf(5)."""

from __future__ import annotations

from spritz.config.kinds import PROGRAM, WORDS, flags, seconds
from spritz.config.schema.key import Key

HELPERS_KEYS = (
    Key("AllowUserBoot", WORDS, (), "Users for whose jobs nodes are changed; all, if it is absent."),
    Key("BootTime", seconds(2**31), 300, "Time that a node may take to come back changed."),
    Key("ExecTime", seconds(2**31), 10, "Time that a Helper may take."),
    Key("Feature", WORDS, (), "Features that nodes can change; Helper stands on the same line."),
    Key("Flags", flags("rebootless"), (), "rebootless: the features change without a reboot."),
    Key("Helper", PROGRAM, None, "Prints the active features, one a line; with an argument, sets that one."),
    Key("MutuallyExclusive", WORDS, (), "Features of which a node has one at most; one line for each group."),
)
