"""Alembic scripts and the code that runs them. A released script never changes; later changes get a new script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from spritz.accounting import schema
from spritz.accounting.associations import tables
from spritz.accounting.engine import DatabaseError
from spritz.accounting.migrations.repeatable import repeatable

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: Association tables belong to the schema too.
BOOK = tables.TABLES


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "spritz.accounting:migrations")
    return config


def revisions() -> list[str]:
    return [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()][::-1]


def upgrade(connection: Connection, revision: str = "head") -> str | None:
    """Upgrade the database to a revision; returns the previous one. Raises DatabaseError for a database of a later
    release.
    """
    before = schema.revision(connection)
    if before is not None and before not in revisions():
        raise DatabaseError(
            f"the database is of a later release (revision {before})",
            hint="start that release's slurmdbd; databases cannot be downgraded",
            temporary=False,
        )
    config = _config()
    config.attributes["connection"] = connection
    with repeatable(connection):
        command.upgrade(config, revision)
    return before
