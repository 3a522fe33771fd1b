"""Errors as values and as exceptions, and Slurm's own list of them.

A `Rejection` is a request that is not allowed: part of normal flow, returned by `decide`. A `SpritzError` is what a
command's
`main` prints before it exits. `ESLURM` gives number and text of each error name, so that commands word them as Slurm
does.

Source: slurm/slurm_errno.h and `slurm_strerror`; numbers are Slurm's (scontrol errnumstr).
"""

from __future__ import annotations

from msgspec import Struct

#: name -> (number, text). Add members here as decisions need them; never invent a text where Slurm has one.
ESLURM: dict[str, tuple[int, str]] = {
    # MaxJobCount: Slurm answers with plain EAGAIN here.
    "ESLURM_MAX_JOB_COUNT": (11, "Resource temporarily unavailable"),
    "SLURM_UNEXPECTED_MSG_ERROR": (1000, "Unexpected message received"),
    "SLURM_COMMUNICATIONS_CONNECTION_ERROR": (1001, "Communication connection failure"),
    "SLURM_COMMUNICATIONS_SEND_ERROR": (1002, "Message send failure"),
    "SLURM_COMMUNICATIONS_RECEIVE_ERROR": (1003, "Message receive failure"),
    "SLURM_COMMUNICATIONS_SHUTDOWN_ERROR": (1004, "Communication shutdown failure"),
    "SLURM_PROTOCOL_VERSION_ERROR": (1005, "Incompatible versions of client and server code"),
    "SLURM_PROTOCOL_IO_STREAM_VERSION_ERROR": (1006, "I/O stream version number error"),
    "SLURM_PROTOCOL_AUTHENTICATION_ERROR": (1007, "Protocol authentication error"),
    "SLURM_PROTOCOL_INSANE_MSG_LENGTH": (1008, "Insane message length"),
    "SLURM_MPI_PLUGIN_NAME_INVALID": (1009, "Invalid MPI plugin name"),
    "SLURM_MPI_PLUGIN_PRELAUNCH_SETUP_FAILED": (1010, "MPI plugin's pre-launch setup failed"),
    "SLURM_PLUGIN_NAME_INVALID": (1011, "Plugin initialization failed"),
    "SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR": (1800, "Unable to contact slurm controller (connect failure)"),
    "SLURMCTLD_COMMUNICATIONS_SEND_ERROR": (1801, "Unable to contact slurm controller (send failure)"),
    "SLURMCTLD_COMMUNICATIONS_RECEIVE_ERROR": (1802, "Unable to contact slurm controller (receive failure)"),
    "SLURMCTLD_COMMUNICATIONS_SHUTDOWN_ERROR": (1803, "Unable to contact slurm controller (shutdown failure)"),
    "ESLURM_INVALID_PARTITION_NAME": (2000, "Invalid partition name specified"),
    "ESLURM_DEFAULT_PARTITION_NOT_SET": (2001, "No partition specified or system default partition"),
    "ESLURM_ACCESS_DENIED": (2002, "Access/permission denied"),
    "ESLURM_JOB_MISSING_REQUIRED_PARTITION_GROUP": (2003, "User's group not permitted to use this partition"),
    "ESLURM_REQUESTED_NODES_NOT_IN_PARTITION": (2004, "Requested nodes not in this partition"),
    "ESLURM_TOO_MANY_REQUESTED_CPUS": (2005, "More processors requested than permitted"),
    "ESLURM_INVALID_NODE_COUNT": (2006, "Node count specification invalid"),
    "ESLURM_ERROR_ON_DESC_TO_RECORD_COPY": (2007, "Unable to create job record, try again"),
    "ESLURM_JOB_MISSING_SIZE_SPECIFICATION": (2008, "Job size specification needs to be provided"),
    "ESLURM_JOB_SCRIPT_MISSING": (2009, "Job script not specified"),
    "ESLURM_USER_ID_MISSING": (2010, "Invalid user id"),
    "ESLURM_DUPLICATE_JOB_ID": (2011, "Duplicate job id"),
    "ESLURM_PATHNAME_TOO_LONG": (2012, "Pathname of a file, directory or other parameter too long"),
    "ESLURM_NOT_TOP_PRIORITY": (2013, "Immediate execution impossible, insufficient priority"),
    "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE": (2014, "Requested node configuration is not available"),
    "ESLURM_REQUESTED_PART_CONFIG_UNAVAILABLE": (2015, "Requested partition configuration not available now"),
    "ESLURM_NODES_BUSY": (2016, "Requested nodes are busy"),
    "ESLURM_INVALID_JOB_ID": (2017, "Invalid job id specified"),
    "ESLURM_INVALID_NODE_NAME": (2018, "Invalid node name specified"),
    "ESLURM_WRITING_TO_FILE": (2019, "I/O error writing script/environment to file"),
    "ESLURM_TRANSITION_STATE_NO_UPDATE": (2020, "Job can not be altered now, try again later"),
    "ESLURM_ALREADY_DONE": (2021, "Job/step already completing or completed"),
    "ESLURM_INTERCONNECT_FAILURE": (2022, "Error configuring interconnect"),
    "ESLURM_BAD_DIST": (2023, "Task distribution specification invalid"),
    "ESLURM_JOB_PENDING": (2024, "Job is pending execution"),
    "ESLURM_BAD_TASK_COUNT": (2025, "Task count specification invalid"),
    "ESLURM_INVALID_JOB_CREDENTIAL": (2026, "Error generating job credential"),
    "ESLURM_IN_STANDBY_MODE": (2027, "Slurm backup controller in standby mode"),
    "ESLURM_INVALID_NODE_STATE": (2028, "Invalid node state specified"),
    "ESLURM_INVALID_FEATURE": (2029, "Invalid feature specification"),
    "ESLURM_INVALID_AUTHTYPE_CHANGE": (
        2030,
        "AuthType change requires restart of all Slurm daemons and commands to take effect",
    ),
    "ESLURM_ACTIVE_FEATURE_NOT_SUBSET": (2031, "Active features not subset of available features"),
    "ESLURM_INVALID_SCHEDTYPE_CHANGE": (
        2032,
        "SchedulerType change requires restart of the slurmctld daemon to take effect",
    ),
    "ESLURM_INVALID_SELECTTYPE_CHANGE": (
        2033,
        "SelectType change requires restart of the slurmctld daemon to take effect",
    ),
    "ESLURM_INVALID_SWITCHTYPE_CHANGE": (
        2034,
        "SwitchType change requires restart of all Slurm daemons and jobs to take effect",
    ),
    "ESLURM_FRAGMENTATION": (2035, "Immediate execution impossible, resources too fragmented for allocation"),
    "ESLURM_NOT_SUPPORTED": (2036, "Requested operation not supported on this system"),
    "ESLURM_DISABLED": (2037, "Requested operation is presently disabled"),
    "ESLURM_DEPENDENCY": (2038, "Job dependency problem"),
    "ESLURM_BATCH_ONLY": (2039, "Only batch jobs are accepted or processed"),
    "ESLURM_TASKDIST_ARBITRARY_UNSUPPORTED": (2040, "Current SwitchType does not permit arbitrary task distribution"),
    "ESLURM_TASKDIST_REQUIRES_OVERCOMMIT": (2041, "Requested more tasks than available processors"),
    "ESLURM_JOB_HELD": (2042, "Job is in held state, pending scheduler release"),
    "ESLURM_INVALID_CRED_TYPE_CHANGE": (2043, "CredType change requires restart of all Slurm daemons to take effect"),
    "ESLURM_INVALID_TASK_MEMORY": (2044, "Memory required by task is not available"),
    "ESLURM_INVALID_ACCOUNT": (2045, "Invalid account or account/partition combination specified"),
    "ESLURM_INVALID_PARENT_ACCOUNT": (2046, "Invalid parent account specified"),
    "ESLURM_SAME_PARENT_ACCOUNT": (2047, "Account already child of parent account specified"),
    "ESLURM_INVALID_LICENSES": (2048, "Invalid license specification"),
    "ESLURM_NEED_RESTART": (
        2049,
        "The node configuration changes that were made require restart of the slurmctld daemon to take effect",
    ),
    "ESLURM_ACCOUNTING_POLICY": (
        2050,
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
    ),
    "ESLURM_INVALID_TIME_LIMIT": (2051, "Requested time limit is invalid (missing or exceeds some limit)"),
    "ESLURM_RESERVATION_ACCESS": (2052, "Access denied to requested reservation"),
    "ESLURM_RESERVATION_INVALID": (2053, "Requested reservation is invalid"),
    "ESLURM_INVALID_TIME_VALUE": (2054, "Invalid time specified"),
    "ESLURM_RESERVATION_BUSY": (2055, "Requested reservation is in use"),
    "ESLURM_RESERVATION_NOT_USABLE": (2056, "Requested reservation not usable now"),
    "ESLURM_INVALID_WCKEY": (2057, "Invalid wckey specification"),
    "ESLURM_RESERVATION_OVERLAP": (2058, "Requested reservation overlaps with another reservation"),
    "ESLURM_PORTS_BUSY": (2059, "Required ports are in use"),
    "ESLURM_PORTS_INVALID": (2060, "Requires more ports than can be reserved"),
    "ESLURM_PROLOG_RUNNING": (2061, "PrologSlurmctld is still running"),
    "ESLURM_NO_STEPS": (2062, "Job steps can not be run on this cluster"),
    "ESLURM_INVALID_BLOCK_STATE": (2063, "Invalid block state specified"),
    "ESLURM_INVALID_BLOCK_LAYOUT": (2064, "Functionality not available with current block layout mode"),
    "ESLURM_INVALID_BLOCK_NAME": (2065, "Invalid block name specified"),
    "ESLURM_INVALID_QOS": (2066, "Invalid qos specification"),
    "ESLURM_QOS_PREEMPTION_LOOP": (2067, "QOS Preemption loop detected"),
    "ESLURM_NODE_NOT_AVAIL": (2068, "Required node not available (down, drained or reserved)"),
    "ESLURM_INVALID_CPU_COUNT": (2069, "CPU count specification invalid"),
    "ESLURM_PARTITION_NOT_AVAIL": (2070, "Required partition not available (inactive or drain)"),
    "ESLURM_CIRCULAR_DEPENDENCY": (2071, "Circular job dependency"),
    "ESLURM_INVALID_GRES": (2072, "Invalid generic resource (gres) specification"),
    "ESLURM_JOB_NOT_PENDING": (2073, "Job is no longer pending execution"),
    "ESLURM_QOS_THRES": (2074, "Requested account has breached requested QOS usage threshold"),
    "ESLURM_PARTITION_IN_USE": (2075, "Partition is in use"),
    "ESLURM_STEP_LIMIT": (2076, "Step limit reached for this job"),
    "ESLURM_JOB_SUSPENDED": (2077, "Job is current suspended, requested operation disabled"),
    "ESLURM_CAN_NOT_START_IMMEDIATELY": (2078, "Job can not start immediately"),
    "ESLURM_INTERCONNECT_BUSY": (2079, "Switch resources currently not available"),
    "ESLURM_RESERVATION_EMPTY": (2080, "Reservation request lacks users, groups or accounts"),
    "ESLURM_INVALID_ARRAY": (2081, "Invalid job array specification"),
    "ESLURM_RESERVATION_NAME_DUP": (2082, "Duplicate reservation name"),
    "ESLURM_JOB_STARTED": (2083, "Job has already started"),
    "ESLURM_JOB_FINISHED": (2084, "Job has already finished"),
    "ESLURM_JOB_NOT_RUNNING": (2085, "Job is not running"),
    "ESLURM_JOB_NOT_PENDING_NOR_RUNNING": (2086, "Job is not pending nor running"),
    "ESLURM_JOB_NOT_SUSPENDED": (2087, "Job is not suspended"),
    "ESLURM_JOB_NOT_FINISHED": (2088, "Job is not finished"),
    "ESLURM_TRIGGER_DUP": (2089, "Duplicate event trigger"),
    "ESLURM_INTERNAL": (2090, "Slurm internal error, contact system administrator"),
    "ESLURM_INVALID_BURST_BUFFER_CHANGE": (
        2091,
        "BurstBufferType change requires restart of slurmctld daemon to take effect",
    ),
    "ESLURM_BURST_BUFFER_PERMISSION": (2092, "Burst Buffer permission denied"),
    "ESLURM_BURST_BUFFER_LIMIT": (2093, "Burst Buffer resource limit exceeded"),
    "ESLURM_INVALID_BURST_BUFFER_REQUEST": (2094, "Burst Buffer request invalid"),
    "ESLURM_PRIO_RESET_FAIL": (2095, "Changes to job priority are not persistent, change nice instead"),
    "ESLURM_CANNOT_MODIFY_CRON_JOB": (2096, "Cannot modify scrontab jobs through scontrol"),
    "ESLURM_INVALID_MCS_LABEL": (2099, "Invalid mcs_label specified"),
    "ESLURM_BURST_BUFFER_WAIT": (2100, "Waiting for burst buffer"),
    "ESLURM_PARTITION_DOWN": (2101, "Partition in DOWN state"),
    "ESLURM_DUPLICATE_GRES": (2102, "Duplicate generic resource (gres) specification"),
    "ESLURM_JOB_SETTING_DB_INX": (
        2103,
        "Job update not available right now, the DB index is being set, try again in a bit",
    ),
    "ESLURM_RSV_ALREADY_STARTED": (2104, "Reservation already started"),
    "ESLURM_SUBMISSIONS_DISABLED": (2105, "System submissions disabled"),
    "ESLURM_NOT_HET_JOB": (2106, "Job not heterogeneous job"),
    "ESLURM_NOT_HET_JOB_LEADER": (2107, "Job not heterogeneous job leader"),
    "ESLURM_NOT_WHOLE_HET_JOB": (2108, "Operation not permitted on individual component of heterogeneous job"),
    "ESLURM_CORE_RESERVATION_UPDATE": (2109, "Core-based reservation can not be updated"),
    "ESLURM_DUPLICATE_STEP_ID": (2110, "Duplicate job step id"),
    "ESLURM_INVALID_CORE_CNT": (2111, "Core count for reservation node list is not consistent!"),
    "ESLURM_X11_NOT_AVAIL": (2112, "X11 forwarding not available"),
    "ESLURM_GROUP_ID_MISSING": (2113, "Invalid group id"),
    "ESLURM_BATCH_CONSTRAINT": (2114, "Job --batch option is invalid or not a subset of --constraints"),
    "ESLURM_INVALID_TRES": (2115, "Invalid Trackable RESource (TRES) specification"),
    "ESLURM_DB_CONNECTION": (7000, "Unable to connect to database"),
    "ESLURM_DB_QUERY_TOO_WIDE": (7007, "Too wide of a date range in query"),
    "ESLURM_INVALID_TRES_BILLING_WEIGHTS": (2116, "Invalid TRESBillingWeights specification"),
    "ESLURM_INVALID_JOB_DEFAULTS": (2117, "Invalid JobDefaults specification"),
    "ESLURM_RESERVATION_MAINT": (2118, "Job can not start due to maintenance reservation."),
    "ESLURM_INVALID_GRES_TYPE": (2119, "Invalid GRES specification (with and without type identification)"),
    "ESLURM_REBOOT_IN_PROGRESS": (2120, "Reboot already in progress"),
    "ESLURM_MULTI_KNL_CONSTRAINT": (
        2121,
        "Multiple KNL NUMA and/or MCDRAM constraints require use of a heterogeneous job",
    ),
    "ESLURM_UNSUPPORTED_GRES": (2122, "Requested GRES option unsupported by configured SelectType plugin"),
    "ESLURM_INVALID_NICE": (2123, "Invalid --nice value"),
    "ESLURM_INVALID_TIME_MIN_LIMIT": (2124, "Invalid time-min specification (exceeds job's time or other limits)"),
    "ESLURM_DEFER": (2125, "Immediate execution impossible. Individual job submission scheduling attempts deferred"),
    "ESLURM_CONFIGLESS_DISABLED": (2126, "ConfigLess mode is disabled in slurm configuration."),
    "ESLURM_ENVIRONMENT_MISSING": (2127, "Environment is missing in job"),
    "ESLURM_REQUESTED_TOPO_CONFIG_UNAVAILABLE": (2178, "Requested topology configuration is not available"),
    "ESLURM_RESERVATION_NO_SKIP": (2128, "Reservation given is not skipable, try deleting instead"),
    "ESLURM_RESERVATION_USER_GROUP": (
        2129,
        "Reservations can't have users and groups specified, only one or the other",
    ),
    "ESLURM_PARTITION_ASSOC": (
        2130,
        "Multiple partition job request not supported when a partition is set in the association",
    ),
    "ESLURM_IN_STANDBY_USE_BACKUP": (2131, "Controller is in standby mode, try a different controller"),
    "ESLURM_BAD_THREAD_PER_CORE": (2132, "Cannot request more threads per core than the job allocation"),
    "ESLURM_INVALID_PREFER": (2133, "Invalid preferred feature specification"),
    "ESLURM_INSUFFICIENT_GRES": (2134, "Insufficient GRES available in allocation"),
    "ESLURM_MISSING_TIME_LIMIT": (8000, "Time limit specification required, but not provided"),
    "ESLURMD_PIPE_ERROR_ON_TASK_SPAWN": (4000, "Pipe error on task spawn"),
    "ESLURMD_KILL_TASK_FAILED": (4001, "Kill task failed"),
    "ESLURMD_INVALID_ACCT_FREQ": (4003, "Invalid accounting frequency requested"),
    "ESLURMD_INVALID_JOB_CREDENTIAL": (4004, "Invalid job credential"),
    "ESLURMD_UID_NOT_FOUND": (4005, "User not found on host"),
    "ESLURMD_GID_NOT_FOUND": (4006, "Group ID not found on host"),
    "ESLURMD_CREDENTIAL_EXPIRED": (4007, "Job credential expired"),
    "ESLURMD_CREDENTIAL_REVOKED": (4008, "Job credential revoked"),
    "ESLURMD_CREDENTIAL_REPLAYED": (4009, "Job credential replayed"),
    "ESLURMD_CREATE_BATCH_DIR_ERROR": (4010, "Slurmd could not create a batch directory or file"),
    "ESLURMD_MODIFY_BATCH_DIR_ERROR": (4011, "Slurmd could not chown or chmod a batch directory"),
    "ESLURMD_CREATE_BATCH_SCRIPT_ERROR": (4012, "Slurmd could not create a batch script"),
    "ESLURMD_MODIFY_BATCH_SCRIPT_ERROR": (4013, "Slurmd could not chown or chmod a batch script"),
    "ESLURMD_SETUP_ENVIRONMENT_ERROR": (4014, "Slurmd could not set up environment for batch job"),
    "ESLURMD_SHARED_MEMORY_ERROR": (4015, "Slurmd shared memory error"),
    "ESLURMD_SET_UID_OR_GID_ERROR": (4016, "Slurmd could not set UID or GID"),
    "ESLURMD_SET_SID_ERROR": (4017, "Slurmd could not set session ID"),
    "ESLURMD_CANNOT_SPAWN_IO_THREAD": (4018, "Slurmd could not spawn I/O thread"),
    "ESLURMD_FORK_FAILED": (4019, "Slurmd could not fork job"),
    "ESLURMD_EXECVE_FAILED": (4020, "Slurmd could not execve job"),
    "ESLURMD_IO_ERROR": (4021, "Slurmd could not connect IO"),
    "ESLURMD_PROLOG_FAILED": (4022, "Job prolog failed"),
    "ESLURMD_EPILOG_FAILED": (4023, "Job epilog failed"),
    "ESLURMD_SESSION_KILLED": (4024, "Session manager killed"),
    "ESLURMD_TOOMANYSTEPS": (4025, "Too many job steps on node"),
    "ESLURMD_STEP_EXISTS": (4026, "Job step already exists"),
    "ESLURMD_JOB_NOTRUNNING": (4027, "Job step not running"),
    "ESLURMD_STEP_SUSPENDED": (4028, "Job step is suspended"),
    "ESLURMD_STEP_NOTSUSPENDED": (4029, "Job step is not currently suspended"),
    "ESLURMD_INVALID_SOCKET_NAME_LEN": (4030, "Unix socket name exceeded maximum length"),
    "ESLURMD_CONTAINER_RUNTIME_INVALID": (4031, "Container runtime not configured or invalid"),
    "ESLURMD_CPU_BIND_ERROR": (4032, "Unable to satisfy cpu bind request"),
    "ESLURMD_CPU_LAYOUT_ERROR": (4033, "Unable to layout tasks on given cpus"),
    "SLURM_PROTOCOL_SOCKET_IMPL_ZERO_RECV_LENGTH": (5000, "x"),
}


class Rejection(Struct, frozen=True, kw_only=True, gc=False):
    """The request is not allowed. `code` is an `ESLURM` key; `message` replaces Slurm's text when it can say more;
    `hint` helps people."""

    code: str
    message: str = ""
    hint: str = ""
    #: lines that Slurm prints as errors of their own before the failure itself
    details: tuple[str, ...] = ()
    #: so many of `details`, the first ones, are what the site's plugins have for the user
    told: int = 0

    @property
    def text(self) -> str:
        """One line for people: the given message or Slurm's."""
        return self.message or ESLURM.get(self.code, (0, self.code))[1]

    @property
    def number(self) -> int:
        """Slurm's error number, or 1 for codes that Slurm does not have."""
        return ESLURM.get(self.code, (1, ""))[0]


class SpritzError(Exception):
    """Base of errors that reach a user. Only a command's `main` prints it and exits with `exit_code`."""

    def __init__(
        self, message: str, *, code: str = "", hint: str = "", exit_code: int = 1, details: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.exit_code = exit_code
        #: lines printed as errors of their own before the message
        self.details = details
