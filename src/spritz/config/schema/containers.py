"""Keys of job_container.conf. Source: job_container.conf(5)."""

from __future__ import annotations

from spritz.config.kinds import BOOL, PATH, PROGRAM, STRING, WORDS, seconds
from spritz.config.schema.key import Key

CONTAINER_KEYS = (
    Key("AutoBasePath", BOOL, False, "Create BasePath if it is missing."),
    Key("BasePath", PATH, None, "Parent of the jobs' directories; %h and %n stand for host and node."),
    Key("CloneNSEpilog", PROGRAM, None, "Program run in the namespace after a job's processes have ended."),
    Key("CloneNSEpilog_Wait", seconds(), 10, "Time limit of CloneNSEpilog."),
    Key("CloneNSScript", PROGRAM, None, "Program run in a new namespace before the job's processes."),
    Key("CloneNSScript_Wait", seconds(), 10, "Time limit of CloneNSScript."),
    Key("Dirs", WORDS, ("/tmp",), "Directories that are private to each job, in addition to /dev/shm."),
    Key("EntireStepInNS", BOOL, False, "Put the step's supervisor into the namespace too."),
    Key("InitScript", PROGRAM, None, "Program that slurmd runs, as its user, once a job's directories exist."),
    Key("NodeName", STRING, None, "Nodes to which the line applies; all by default."),
    Key("Shared", BOOL, False, "Show later mounts of the machine to running jobs."),
)
