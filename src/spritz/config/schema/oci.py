"""Keys of oci.conf. Source: oci.conf(5) of 22.05 and later."""

from __future__ import annotations

from spritz.config.kinds import BOOL, PATH, STRING, WORDS, choice
from spritz.config.schema.key import Key

_ENV_FILE = choice("null", "newline", "disabled", aliases={"true": "null", "false": "disabled"})

OCI_KEYS = (
    Key("ContainerPath", STRING, None, "Pattern of the directory for a task's generated files; created as the user."),
    Key("CreateEnvFile", _ENV_FILE, "disabled", "Write the variables to a file (%e), with this terminator after each."),
    Key("DebugFlags", STRING, None, "Subjects about which scrun and slurmstepd log more."),
    Key("DisableCleanup", BOOL, False, "Keep the generated files."),
    Key("DisableHooks", WORDS, (), "Kinds of hooks that are removed from config.json."),
    Key("EnvExclude", STRING, None, "Regular expression of variables (NAME=value) to hide from containers."),
    Key("FileDebug", STRING, None, "Log level of scrun for its file."),
    Key(
        "IgnoreFileConfigJson",
        BOOL,
        False,
        "Treat the bundle as a plain directory, without reading config.json.",
    ),
    Key(
        "MountSpoolDir",
        STRING,
        None,
        "Pattern of the path of the generated files inside the container; none by default.",
    ),
    Key("RunTimeCreate", STRING, None, "Pattern of the command that creates a container."),
    Key("RunTimeDelete", STRING, None, "Pattern of the command that removes a container."),
    Key("RunTimeEnvExclude", STRING, None, "Regular expression of variables to hide from the RunTime commands."),
    Key("RunTimeKill", STRING, None, "Pattern of the command that ends a container's processes."),
    Key("RunTimeQuery", STRING, None, "Pattern of the command that prints a container's state as JSON."),
    Key(
        "RunTimeRun",
        STRING,
        None,
        "Pattern of the command that creates and starts a container and waits; replaces Create and Start.",
    ),
    Key("RunTimeStart", STRING, None, "Pattern of the command that starts a container."),
    Key("SrunArgs", STRING, None, "Arguments that scrun passes to srun."),
    Key("SrunPath", PATH, None, "The srun that scrun calls."),
    Key("StdIODebug", STRING, None, "Log level of scrun for its terminal."),
    Key("SyslogDebug", STRING, None, "Log level of scrun for syslog."),
)
