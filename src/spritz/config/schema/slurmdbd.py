"""Keys of slurmdbd.conf. Source: slurmdbd.conf(5). `StorageUrl` is ours."""

from __future__ import annotations

import re

from spritz.config.kinds import (
    BOOL,
    COUNT,
    LOG_LEVEL,
    OPTIONS,
    PATH,
    PORT,
    PROGRAM,
    STRING,
    TIME_SECONDS,
    Kind,
    Value,
    choice,
    flags,
    integer,
    plugin,
    plugins,
    seconds,
)
from spritz.config.schema.key import Key

_PERIOD = re.compile(r"(\d{1,9})(hour|day|month)s?")


def _period(text: str) -> str:
    """Parse `12`, `12month`, `30days` or `6hours` into `12month` …; a bare number counts months."""
    word = text.lower()
    match = _PERIOD.fullmatch(word if not word.isdecimal() else word + "month")
    if match is None or not int(match[1]):
        raise ValueError
    return f"{int(match[1])}{match[2]}"


def _plain(value: Value) -> str:
    return "" if value is None else str(value)


#: Kind of value for the time for which records are kept.
PERIOD = Kind(
    name="period",
    accepted='a number of months, or with its unit: "6hours", "30days", "12months"',
    parse=_period,
    show=_plain,
    write=_plain,
)


def _archive(what: str) -> Key:
    return Key(f"Archive{what}", BOOL, False, "Write these records to a file before they are purged.")


def _purge(what: str) -> Key:
    return Key(f"Purge{what}After", PERIOD, None, "Delete these records when they are older; never by default.")


_DEBUG_FLAGS = (
    *("AuditRPCs", "AuditTLS", "DB_ARCHIVE", "DB_ASSOC", "DB_EVENT", "DB_JOB", "DB_QOS", "DB_QUERY"),
    *("DB_RESERVATION", "DB_RESOURCE", "DB_STEP", "DB_TRES", "DB_USAGE", "DB_WCKEY", "FEDERATION", "Network"),
)

DBD_KEYS = (
    Key("AllResourcesAbsolute", BOOL, False, "Count shared resources in units instead of percent."),
    Key("AllowNoDefAcct", BOOL, False, "Allow users without a default account."),
    Key("ArchiveDir", PATH, "/tmp", "Directory of archive files."),
    _archive("Events"),
    _archive("JobEnv"),
    _archive("Jobs"),
    _archive("JobScript"),
    _archive("Resvs"),
    Key("ArchiveScript", PROGRAM, None, "Program that archives instead of slurmdbd."),
    _archive("Steps"),
    _archive("Suspend"),
    _archive("TXN"),
    _archive("Usage"),
    Key("AuthAltParameters", OPTIONS, None, "Options of the alternative authentication types."),
    Key("AuthAltTypes", plugins("auth", "jwt"), None, "Alternative authentication types: auth/jwt, by tokens."),
    Key("AuthInfo", STRING, None, "Options of authentication."),
    Key("AuthType", plugin("auth", "slurm", "munge", "none"), "auth/slurm", "How daemons authenticate."),
    Key("CommitDelay", seconds(), 0, "Seconds between commits; 0 commits each batch."),
    Key("CommunicationParameters", OPTIONS, None, "Options of connections."),
    Key("DbdAddr", STRING, None, "Address to listen on; that of DbdHost by default."),
    Key("DbdBackupHost", STRING, None, "Host of the backup slurmdbd."),
    Key("DbdHost", STRING, "localhost", "Host that slurmdbd runs on."),
    Key("DbdPort", PORT, 6819, "Port that slurmdbd listens on."),
    Key("DebugFlags", flags(*_DEBUG_FLAGS), (), "Subjects to log more about."),
    Key("DebugLevel", LOG_LEVEL, "info", "Log level."),
    Key("DebugLevelSyslog", LOG_LEVEL, None, "Log level for syslog."),
    Key("DefaultQOS", STRING, None, "QOS of new clusters."),
    Key("DisableArchiveCommands", BOOL, False, "Refuse `sacctmgr archive`."),
    Key("DisableCoordDBD", BOOL, False, "Coordinators may not change users and associations of their accounts."),
    Key("DisableRollups", BOOL, False, "Do not add up usage for sreport."),
    Key("HashPlugin", STRING, None, "How messages are hashed."),
    Key("LogFile", PATH, None, "Log of slurmdbd."),
    Key(
        "LogTimeFormat",
        choice("iso8601_ms", "iso8601", "rfc5424_ms", "rfc5424", "rfc3339", "clock", "short", "thread_id"),
        "iso8601_ms",
        "Form of times in the log.",
    ),
    Key("MaxQueryTimeRange", TIME_SECONDS, None, "Longest period that users may query."),
    Key("MessageTimeout", seconds(low=1), 10, "Time limit of an answer, in seconds."),
    Key("Parameters", OPTIONS, None, "Further options."),
    Key("PidFile", PATH, "/var/run/slurmdbd.pid", "File with the daemon's process id."),
    Key("PluginDir", PATH, None, "Directory of Slurm's C plugins."),
    Key(
        "PrivateData",
        flags("accounts", "events", "jobs", "reservations", "usage", "users", empty="none"),
        (),
        "Information about other users that only administrators see.",
    ),
    _purge("Event"),
    _purge("Job"),
    _purge("JobEnv"),
    _purge("JobScript"),
    _purge("Resv"),
    _purge("Step"),
    _purge("Suspend"),
    _purge("TXN"),
    _purge("Usage"),
    Key("SlurmUser", STRING, "root", "User that slurmdbd runs as."),
    Key("StorageBackupHost", STRING, None, "Host of the database to use if StorageHost does not answer."),
    Key("StorageHost", STRING, "localhost", "Host of the database."),
    Key("StorageLoc", STRING, None, "Name of the database; for SQLite its file."),
    Key("StorageParameters", OPTIONS, None, "Options of the connection: SSL_CA, SSL_CERT, SSL_KEY."),
    Key("StoragePass", STRING, None, "Password for the database."),
    Key("StoragePassScript", PROGRAM, None, "Program that prints the password."),
    Key("StoragePort", integer(0, 65535), 0, "Port of the database; 0: the database's default."),
    Key(
        "StorageType",
        plugin("accounting_storage", "mysql", "postgresql", "sqlite"),
        "accounting_storage/mysql",
        "Kind of database.",
    ),
    Key(
        "StorageUrl",
        STRING,
        None,
        "URL of the database, instead of the other Storage keys: sqlite:////var/lib/acct.db, "
        "postgresql://user:password@host/name, mariadb://…",
    ),
    Key("StorageUser", STRING, "root", "User name for the database."),
    Key("TCPTimeout", seconds(), 2, "Time limit for making a connection, in seconds."),
    Key("TrackSlurmctldDown", BOOL, False, "Count time without slurmctld as down time."),
    Key("TLSParameters", OPTIONS, None, "Options of encryption."),
    Key("TLSType", plugin("tls", "none", "s2n"), "tls/none", "Whose certificates daemons have."),
    Key("TrackWCKey", BOOL, False, "Keep workload characterization keys."),
    Key("MaxPurgeLimit", COUNT, None, "Maximum number of records purged at a time."),
)
