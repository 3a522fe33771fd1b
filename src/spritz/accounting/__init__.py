"""`slurmdbd`: everything that happened, kept in SQL, and asked for again.

Controllers send the groups of their journals; what is stored, and how far, is one transaction. So a batch that comes
twice, a daemon that is killed between two of them and a database restored from a backup all lead to the same tables:
those that the journal alone determines.

Map
---
`main`, `options`   the command: options, slurmdbd.conf, users, pid file, log, detaching
`daemon`            assembly, signals, the order of stopping
`api`               every request: who may ask, what is answered
`links`             the controllers that are connected, and how far each database is behind
`admin`, `described`, `amend`, `select_events`   what else sacctmgr asks: the daemon, events, changes by hand
`events`            bytes of a journal's group -> events
`ledger`            pure: events -> records (jobs, steps, suspensions, reasons, node events)
`steps`, `nodes`, `reservations`   pure: the parts of that for these; `model.step_usage` adds up what steps used
`schema`            the tables, as SQLAlchemy Core has them; one column for each field of the records
`migrations/`       Alembic: how a database gets from any released version to this one
`associations/`     the book of accounts, users, associations and QOS; shares and usage
`configuration`     slurmdbd.conf as the daemon needs it
`engine`            URL -> engine, with what each kind of database needs; errors in words
`store`             the database: `ingest` (one transaction a batch), `register`, documents
`upsert`            "insert or replace" for each kind of database, and a great many rows at once
`purge`, `archive`  forgetting what is older than Purge*After says; keeping it in files, and putting it back
`select`            questions -> SQL, rows -> records, streamed
`rollup/`           usage by hour, day and month, made from all that; what sreport asks

Vocabulary: a *place* is an event's number in all that a cluster ever sent; it goes on rising when a cleared state
directory makes the controller count from 1 again. A *life* of a job is one run of it, from submission or requeue to
the end. A *document* is a script or an environment, kept once however many jobs have it.

Invariants: the tables, those of usage too, are a function of the events up to the cluster's place; that place is
written in the same transaction; nothing is acknowledged before it is committed.

A new kind of record brings its tables with migrations, its requests in `api`, and its queries in modules like `select`.

Test it with `pytest tests/unit/accounting tests/conformance/test_accounting.py tests/e2e/test_accounting.py`;
`make databases` runs the suite on PostgreSQL and MariaDB too; `python -m benchmarks.accounting` and `benchmarks.usage`
measure it.
"""
