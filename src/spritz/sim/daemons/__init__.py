"""The real daemons on virtual time, under faults drawn from a seed.

What runs is the production code: slurmctld, its standby, slurmd, slurmdbd and the callers of their clients. Below it
everything that a machine gives is replaced: time, threads, the event loop, the network, what a disk keeps, PostgreSQL,
and the supervisors of steps. One seed decides every order, delay and fault, so a seed replays to the byte.

Map
---
`world`        virtual time, hosts, processes, the order of events; `loop`, `threads`: what a process runs on
`seam`         every name of the production code that a simulation replaces, in one table
`machine`      what every simulated machine gives: users, the site's programs, children, logs
`network`      connections between processes: delay, partition, reset
`units`        daemons that a service manager keeps running; `controllers`: slurmctld
`nodes`        slurmd, and its machine: `files` (disk), `supervisors`, `work` (steps), `local` (sockets within a host)
`site`         a cluster: hosts, slurm.conf, units; `plan`: what users and misfortune do to it; `run`: one run
`history`      what clients asked and were told, and what nodes ran: the only input of the checks
"""
