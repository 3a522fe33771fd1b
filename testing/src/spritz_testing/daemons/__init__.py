"""The real daemons on virtual time, under faults drawn from a seed.

What runs is the production code: slurmctld, its standby, slurmd, slurmdbd and the callers of their clients. Below it
everything that a machine gives is replaced: time, threads, the event loop, the network, what a disk keeps, PostgreSQL,
and the supervisors of steps. One seed decides every order, delay and fault, so a seed replays to the byte.

Map
---
`system`       what stands for the operating system: virtual time, processes, threads, network, disks
`seam`         every name of the production code that a simulation replaces, in one table
`database`     PostgreSQL and its driver in memory, with faults
`units`        daemons that a service manager keeps running
`controller`   slurmctld, its standby, and what their own objects must show
`node`         slurmd, its machine and its steps
`accounting`   slurmdbd over SQLite; its database, its policy, its faults, its records
`site`         a cluster: hosts, slurm.conf, units
`plan`         what users and misfortune do to it
`workloads`    what users ask for, drawn from a seed
`clients`      users, their commands and other programs, which carry it out
`wanted`       what the workload asks for, as far as the checks depend on it
`history`      what clients asked and were told, and what nodes ran: the only input of the checks
`checks`       rules that every history must keep
`faults`       kinds of faults, how they are drawn and injected; `coverage`: what a run has touched
`injectors`    what injects each kind of fault
`runs`         one run, its judgement, its story; many runs; a failing plan made smaller
`main`         `python -m spritz_testing.daemons`
"""
