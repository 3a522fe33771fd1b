"""PostgreSQL and its driver as the journal uses them, in memory, with faults.

Stands for a server, the network to it, and psycopg, at the level of exactly the statements that
`controller.journal.postgresql` executes. Each is known by its text: a statement that is not known raises
`UnknownStatement`, so a changed one cannot pass with the meaning of the old one. Nothing here waits, draws or reads a
clock except through a `Runtime`. The same suites run on it and on a real server (tests/conformance/test_journal.py,
tests/simulation/daemons/test_database_alike.py).

Map
---
`errors`       the classes of psycopg that can occur
`storage`      schemas, tables and rows; transactions, locks of rows, and the commits that a replica may lack
`statements`   what each statement does
`server`       sessions and their order of work; stop, crash, freeze, failover, no space, read-only
`network`      connections: partitions, losses of requests and answers, clients that vanish
`driver`       the module `psycopg`: `FakePsycopg`, and how it is installed
`runtime`    what the database needs of the world: time, chance, waiting

Left out: isolation above READ COMMITTED, savepoints, server-side cursors, more than one database a server, time that a
statement takes (only its way there and back takes time).
"""

from spritz_testing.daemons.database.driver import Database, FakePsycopg, installed
from spritz_testing.daemons.database.network import Chances, Loss
from spritz_testing.daemons.database.runtime import Runtime, Signal

__all__ = ["Chances", "Database", "FakePsycopg", "Loss", "Runtime", "Signal", "installed"]
