"""Keys that Slurm has removed, and spellings that it has replaced. They cause a warning that names the replacement.

Source: slurm.conf(5) of 22.05 ("Deprecated option"), NEWS and RELEASE_NOTES of later releases.
"""

from __future__ import annotations

#: File ("" for slurm.conf) -> old key (lower case) -> its spelling, and the key that replaces it.
RENAMED: dict[str, dict[str, tuple[str, str]]] = {
    "": {
        "acctgatherinfinibandtype": ("AcctGatherInfinibandType", "AcctGatherInterconnectType"),
        "cryptotype": ("CryptoType", "CredType"),
    },
    "slurmdbd.conf": {
        "jobpurge": ("JobPurge", "PurgeJobAfter"),
        "purgeeventmonths": ("PurgeEventMonths", "PurgeEventAfter"),
        "purgejobmonths": ("PurgeJobMonths", "PurgeJobAfter"),
        "purgestepmonths": ("PurgeStepMonths", "PurgeStepAfter"),
        "purgesuspendmonths": ("PurgeSuspendMonths", "PurgeSuspendAfter"),
        "purgetxnmonths": ("PurgeTXNMonths", "PurgeTXNAfter"),
        "purgeusagemonths": ("PurgeUsageMonths", "PurgeUsageAfter"),
        "steppurge": ("StepPurge", "PurgeStepAfter"),
    },
}

#: File -> old key (lower case) -> its spelling, and what to write instead.
GONE: dict[str, dict[str, tuple[str, str]]] = {
    "": {
        "accountingstorageloc": ("AccountingStorageLoc", "StorageLoc in slurmdbd.conf"),
        "accountingstorejobcomment": ("AccountingStoreJobComment", "AccountingStoreFlags=job_comment"),
        "cachegroups": ("CacheGroups", "GroupUpdateTime"),
        "checkpointtype": ("CheckpointType", "checkpoints that the job makes itself"),
        "chosloc": ("ChosLoc", "nothing"),
        "defaultstoragehost": ("DefaultStorageHost", "AccountingStorageHost"),
        "defaultstorageloc": ("DefaultStorageLoc", "StorageLoc in slurmdbd.conf"),
        "defaultstoragepass": ("DefaultStoragePass", "StoragePass in slurmdbd.conf"),
        "defaultstorageport": ("DefaultStoragePort", "AccountingStoragePort"),
        "defaultstoragetype": ("DefaultStorageType", "AccountingStorageType"),
        "defaultstorageuser": ("DefaultStorageUser", "StorageUser in slurmdbd.conf"),
        "fastschedule": ("FastSchedule", "SlurmdParameters=config_overrides instead of FastSchedule=2"),
        "jobcheckpointdir": ("JobCheckpointDir", "checkpoints that the job makes itself"),
        "jobcredentialprivatekey": ("JobCredentialPrivateKey", "nothing"),
        "jobcredentialpubliccertificate": ("JobCredentialPublicCertificate", "nothing"),
        "layouts": ("Layouts", "nothing"),
        "memlimitenforce": ("MemLimitEnforce", "cgroup.conf or JobAcctGatherParams=OverMemoryKill"),
        "msgaggregationparams": ("MsgAggregationParams", "nothing"),
        "schedulerauth": ("SchedulerAuth", "nothing"),
        "schedulerport": ("SchedulerPort", "nothing"),
        "schedulerrootfilter": ("SchedulerRootFilter", "nothing"),
    },
    "cgroup.conf": {
        "alloweddevicesfile": ("AllowedDevicesFile", "nothing"),
        "cgroupreleaseagentdir": ("CgroupReleaseAgentDir", "nothing"),
        "memorylimitenforcement": ("MemoryLimitEnforcement", "ConstrainRAMSpace"),
        "memorylimitthreshold": ("MemoryLimitThreshold", "AllowedRAMSpace"),
        "taskaffinity": ("TaskAffinity", "TaskPlugin=task/affinity in slurm.conf"),
    },
}

#: the four keys before SlurmctldHost, in lower case with their spelling; `typed` converts them
OLD_HOSTS: dict[str, str] = {
    "controlmachine": "ControlMachine",
    "controladdr": "ControlAddr",
    "backupcontroller": "BackupController",
    "backupaddr": "BackupAddr",
}
