"""`slurmdbd`: accounting records in an SQL database, written from controllers' events and read by commands.

A controller sends the event groups of its journal in batches. One transaction stores a batch and the position that it
reaches. A repeated batch, a killed daemon and a restored database therefore lead to the same tables: the journal alone
determines them.

Map
---
`main`, `options`   the command: options, slurmdbd.conf, users, pid file, log, detaching
`daemon`            assembly, signals, the order of stopping
`api`               every request: who may ask, what is answered
`spans`             hours, days and months of local time
`links`             connected controllers, and how many events of each are not stored yet
`admin`, `configuration_rows`, `amend`, `select_events`   other sacctmgr requests: the daemon, events, manual changes
`events`            bytes of a journal's group -> events
`ledger/`           pure: events -> records; `model.accounting.step_usage` adds up the usage of steps
`schema`            the tables, as SQLAlchemy Core has them; one column for each field of the records
`migrations/`       Alembic scripts that upgrade a database of any released version to this one
`associations/`     accounts, users, associations and QOS; shares and usage
`configuration`, `debug_flags`   slurmdbd.conf as the daemon needs it; DebugFlags: SQL statements in the log
`engine`            URL -> SQLAlchemy engine with each database's options; error texts
`database_lock`     which of two slurmdbds over one database serves (DbdBackupHost)
`store`             the database: `ingest` (one transaction a batch), `register`, documents
`upsert`            "insert or replace" for each kind of database, and bulk inserts
`purge`, `archive`  deleting records older than Purge*After; writing them to files, and loading such files
`select`            queries -> SQL, rows -> records, streamed
`rollup/`           usage by hour, day and month, and sreport's queries on it

Vocabulary: a *place* is the number of an event among all that a cluster ever sent; it keeps rising when a cleared state
directory makes the controller count from 1 again. A *life* of a job is one run of it, from submission or requeue to its
end. A *document* is a script or an environment, stored once for all jobs that have it.

Invariants: all tables, also those of usage, are a function of the events up to the cluster's place; that place is
written in the same transaction as the records; a batch is acknowledged only after its commit.

A new kind of record needs tables with a migration, requests in `api`, and a query module such as `select`.

Test it with `pytest tests/unit/accounting tests/conformance/test_accounting.py tests/e2e/test_accounting.py`; `make
databases` runs the suite on PostgreSQL and MariaDB too; `python -m benchmarks.accounting` and `benchmarks.usage`
measure it.
"""
