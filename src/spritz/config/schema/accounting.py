"""slurm.conf keys about accounting, usage sampling and job completion records. Source: slurm.conf(5)."""

from __future__ import annotations

from spritz.config.kinds import BOOL, COUNT, OPTIONS, PATH, STRING, WORDS, flags, integer, plugin, seconds
from spritz.config.schema.key import Key

KEYS = (
    Key("AccountingStorageBackupHost", STRING, None, "Host of the backup accounting daemon."),
    Key(
        "AccountingStorageEnforce",
        flags(
            "associations",
            "limits",
            "nojobs",
            "nosteps",
            "qos",
            "safe",
            "wckeys",
            "all",
            "1",
            "2",
            empty="none",
        ),
        (),
        "Checks of a submission against the accounting database.",
    ),
    Key("AccountingStorageExternalHost", WORDS, None, "Further accounting daemons to register with."),
    Key("AccountingStorageHost", STRING, "localhost", "Host of the accounting daemon; other machines are refused."),
    Key("AccountingStorageParameters", OPTIONS, None, "Options of the connection to the accounting database."),
    Key("AccountingStoragePass", STRING, None, "Password or socket used with the accounting daemon."),
    Key("AccountingStoragePort", integer(0, 65535), 0, "Port of the accounting daemon; 0 means 6819."),
    Key(
        "AccountingStorageTRES",
        WORDS,
        ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"),
        "Resources to account for, in addition to the default ones.",
    ),
    Key(
        "AccountingStorageType",
        plugin("accounting_storage", "none", "slurmdbd", "mysql", "ctld_relay"),
        "accounting_storage/none",
        "Storage of accounting records.",
    ),
    Key("AccountingStorageUser", STRING, "root", "User name at the accounting database."),
    Key(
        "AccountingStoreFlags",
        flags("job_comment", "job_env", "job_extra", "job_script", "no_stdio"),
        (),
        "Large fields to store in the accounting records.",
    ),
    Key(
        "AcctGatherEnergyType",
        plugin("acct_gather_energy", "none", "gpu", "ibmaem", "ipmi", "pm_counters", "rapl", "xcc", "cray_aries"),
        "acct_gather_energy/none",
        "How energy use is measured.",
    ),
    Key(
        "AcctGatherFilesystemType",
        plugin("acct_gather_filesystem", "none", "lustre"),
        "acct_gather_filesystem/none",
        "How file system traffic is measured.",
    ),
    Key(
        "AcctGatherInterconnectType",
        plugin("acct_gather_interconnect", "none", "ofed", "sysfs"),
        "acct_gather_interconnect/none",
        "How network traffic is measured.",
    ),
    Key("AcctGatherNodeFreq", seconds(), 0, "Time between samples of a node's usage; 0 disables them."),
    Key(
        "AcctGatherProfileType",
        plugin("acct_gather_profile", "none", "hdf5", "influxdb"),
        "acct_gather_profile/none",
        "Storage of job profiles.",
    ),
    Key("JobAcctGatherFrequency", OPTIONS, ("30",), "Seconds between samples of a step's usage: `30` or `task=30,…`."),
    Key(
        "JobAcctGatherParams",
        flags("DisableGPUAcct", "NoOverMemoryKill", "NoShared", "OverMemoryKill", "UsePss"),
        (),
        "How memory usage is counted.",
    ),
    Key(
        "JobAcctGatherType",
        plugin("jobacct_gather", "none", "linux", "cgroup"),
        "jobacct_gather/none",
        "How the usage of a step's processes is measured.",
    ),
    Key("JobCompHost", STRING, "localhost", "Host of the job completion database."),
    Key("JobCompLoc", STRING, None, "File, database or address that receives job completion records."),
    Key("JobCompParams", OPTIONS, None, "Options of the job completion plugin."),
    Key("JobCompPass", STRING, None, "Password of the job completion database."),
    Key("JobCompPassScript", PATH, None, "Program that prints the password of the job completion database."),
    Key("JobCompPort", integer(0, 65535), 0, "Port of the job completion database."),
    Key(
        "JobCompType",
        plugin("jobcomp", "none", "elasticsearch", "filetxt", "kafka", "lua", "mysql", "script"),
        "jobcomp/none",
        "How job completion is recorded.",
    ),
    Key("JobCompUser", STRING, "root", "User name at the job completion database."),
    Key(
        "MaxDBDMsgs", COUNT, 0, "Records kept while the accounting daemon does not answer; 0: derived from MaxJobCount."
    ),
    Key("MetricsAuthUsers", WORDS, None, "Users that may read metrics."),
    Key("MetricsParameters", OPTIONS, None, "Options of the metrics endpoint."),
    Key(
        "MetricsType",
        plugin("metrics", "none", "openmetrics"),
        "metrics/none",
        "Format in which metrics are published.",
    ),
    Key("TrackWCKey", BOOL, False, "Keep workload characterization keys."),
)
