"""The exceptions of psycopg that the statements of the journal can meet, with their places in its hierarchy.

Source: https://www.psycopg.org/psycopg3/docs/api/errors.html, and appendix A of PostgreSQL's manual.
"""

from __future__ import annotations


class Error(Exception):
    sqlstate: str | None = None


class InterfaceError(Error): ...


class DatabaseError(Error): ...


class OperationalError(DatabaseError): ...


class IntegrityError(DatabaseError): ...


class InternalError(DatabaseError): ...


class ProgrammingError(DatabaseError): ...


class ConnectionTimeout(OperationalError): ...


class DiskFull(OperationalError):
    sqlstate = "53100"


class AdminShutdown(OperationalError):
    sqlstate = "57P01"


class DeadlockDetected(OperationalError):
    sqlstate = "40P01"


class ReadOnlySqlTransaction(InternalError):
    sqlstate = "25006"


class InFailedSqlTransaction(InternalError):
    sqlstate = "25P02"


class IdleInTransactionSessionTimeout(InternalError):
    sqlstate = "25P03"


class UniqueViolation(IntegrityError):
    sqlstate = "23505"


class UndefinedTable(ProgrammingError):
    sqlstate = "42P01"


class InvalidSchemaName(ProgrammingError):
    sqlstate = "3F000"


class DuplicateSchema(ProgrammingError):
    sqlstate = "42P06"


class UnknownStatement(AssertionError):
    """The journal executes a statement that this database was not taught: `statements` must learn its meaning."""


def connection_lost() -> OperationalError:
    """What a client meets whose connection was reset, or whose server has crashed."""
    return OperationalError(
        "consuming input failed: server closed the connection unexpectedly\n"
        "\tThis probably means the server terminated abnormally\n\tbefore or while processing the request."
    )


def connection_closed() -> OperationalError:
    """What a client meets that goes on using a connection which is closed, or was found broken."""
    return OperationalError("the connection is closed")
