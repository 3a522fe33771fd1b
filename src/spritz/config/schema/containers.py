"""Keys of job_container.conf. Source: job_container.conf(5)."""

from __future__ import annotations

from spritz.config.kinds import BOOL, PATH, PROGRAM, STRING, WORDS
from spritz.config.schema.key import Key

CONTAINER_KEYS = (
    Key("AutoBasePath", BOOL, False, "Make BasePath where it is missing."),
    Key("BasePath", PATH, None, "Directory that holds those of jobs; %h and %n stand for host and node."),
    Key("Dirs", WORDS, ("/tmp",), "Directories that jobs have of their own, besides /dev/shm."),
    Key("EntireStepInNS", BOOL, False, "Have the supervisor of a step see them as well."),
    Key("InitScript", PROGRAM, None, "Run by slurmd, as its user, when a job's directories have been made."),
    Key("NodeName", STRING, None, "Nodes that the line is for; all, without it."),
    Key("Shared", BOOL, False, "Show jobs what the machine mounts while they run."),
)
