"""Keys of oci.conf. Source: oci.conf(5) of 22.05 and later."""

from __future__ import annotations

from spritz.config.kinds import BOOL, PATH, STRING, WORDS, choice
from spritz.config.schema.key import Key

_ENV_FILE = choice("null", "newline", "disabled", aliases={"true": "null", "false": "disabled"})

OCI_KEYS = (
    Key("ContainerPath", STRING, None, "Pattern of the directory for generated files of a task; made as the user."),
    Key("CreateEnvFile", _ENV_FILE, "disabled", "Write the variables to a file (%e); what ends each in it."),
    Key("DebugFlags", STRING, None, "What scrun and slurmstepd log of containers."),
    Key("DisableCleanup", BOOL, False, "Keep the generated files."),
    Key("DisableHooks", WORDS, (), "Kinds of hooks that are taken out of config.json."),
    Key("EnvExclude", STRING, None, "Regular expression of variables (NAME=value) that containers do not get."),
    Key("FileDebug", STRING, None, "Level of what scrun logs to a file."),
    Key(
        "IgnoreFileConfigJson",
        BOOL,
        False,
        "The bundle is a plain directory: its config.json is neither needed nor read.",
    ),
    Key("MountSpoolDir", STRING, None, "Pattern of where the generated files are seen inside; nowhere, without it."),
    Key("RunTimeCreate", STRING, None, "Pattern of the command that makes a container."),
    Key("RunTimeDelete", STRING, None, "Pattern of the command that removes it."),
    Key("RunTimeEnvExclude", STRING, None, "Regular expression of variables that the RunTime commands do not get."),
    Key("RunTimeKill", STRING, None, "Pattern of the command that ends what runs in it."),
    Key("RunTimeQuery", STRING, None, "Pattern of the command that prints its state as JSON."),
    Key("RunTimeRun", STRING, None, "Pattern of the command that makes and starts it and waits; for Create and Start."),
    Key("RunTimeStart", STRING, None, "Pattern of the command that starts it."),
    Key("SrunArgs", STRING, None, "Arguments that scrun gives srun."),
    Key("SrunPath", PATH, None, "The srun that scrun calls."),
    Key("StdIODebug", STRING, None, "Level of what scrun logs to its terminal."),
    Key("SyslogDebug", STRING, None, "Level of what scrun logs to syslog."),
)
