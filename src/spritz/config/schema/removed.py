"""Keys that Slurm once had, and spellings that it replaced. They are accepted with a warning that names the new way.

Source: slurm.conf(5) of 22.05 ("Deprecated option"), NEWS and RELEASE_NOTES of later releases.
"""

from __future__ import annotations

#: old key (lower case) -> its spelling, and the key with its meaning
RENAMED: dict[str, tuple[str, str]] = {
    "acctgatherinfinibandtype": ("AcctGatherInfinibandType", "AcctGatherInterconnectType"),
    "cryptotype": ("CryptoType", "CredType"),
}

#: old key (lower case) -> its spelling and what to write instead.
GONE: dict[str, tuple[str, str]] = {
    "accountingstorageloc": ("AccountingStorageLoc", "StorageLoc in slurmdbd.conf"),
    "accountingstorejobcomment": ("AccountingStoreJobComment", "AccountingStoreFlags=job_comment"),
    "cachegroups": ("CacheGroups", "GroupUpdateTime"),
    "checkpointtype": ("CheckpointType", "checkpoints that the job makes itself"),
    "fastschedule": ("FastSchedule", "SlurmdParameters=config_overrides instead of FastSchedule=2"),
    "jobcheckpointdir": ("JobCheckpointDir", "checkpoints that the job makes itself"),
    "jobcredentialprivatekey": ("JobCredentialPrivateKey", "nothing"),
    "jobcredentialpubliccertificate": ("JobCredentialPublicCertificate", "nothing"),
    "memlimitenforce": ("MemLimitEnforce", "cgroup.conf or JobAcctGatherParams=OverMemoryKill"),
    "schedulerauth": ("SchedulerAuth", "nothing"),
    "schedulerport": ("SchedulerPort", "nothing"),
    "schedulerrootfilter": ("SchedulerRootFilter", "nothing"),
}

#: the four keys before SlurmctldHost, in lower case with their spelling; `typed` converts them
OLD_HOSTS: dict[str, str] = {
    "controlmachine": "ControlMachine",
    "controladdr": "ControlAddr",
    "backupcontroller": "BackupController",
    "backupaddr": "BackupAddr",
}
