"""The real daemons on virtual time, under faults drawn from a seed.

What runs is the production code: slurmctld, its standby, slurmd, slurmdbd and the callers of their clients. Below it
everything that a machine gives is replaced: time, threads, the event loop, the network, what a disk keeps, PostgreSQL,
and the supervisors of steps. One seed decides every order, delay and fault, so a seed replays to the byte.

Map
---
`database`     PostgreSQL and its driver in memory, with faults
`history`      what clients asked and were told, and what nodes ran: the only input of the checks
"""
