"""Keys that Slurm has removed, and spellings that it has replaced. They cause a warning that names the replacement.

Source: slurm.conf(5) of 22.05 ("Deprecated option"), NEWS and RELEASE_NOTES of later releases.
"""

from __future__ import annotations

#: Old key (lower case) -> its spelling, and the key that replaces it.
RENAMED: dict[str, tuple[str, str]] = {
    "acctgatherinfinibandtype": ("AcctGatherInfinibandType", "AcctGatherInterconnectType"),
    "cryptotype": ("CryptoType", "CredType"),
}

#: Old key (lower case) -> its spelling, and what to write instead.
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
