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
`standby`      several controllers over one PostgreSQL; `copies`: whether their copies of the state are equal
`nodes`        slurmd, and its machine: `files` (disk), `supervisors` and `work` (steps), `local` (sockets of a host)
               `step_clients`: what stands for srun
`accounting`   slurmdbd over SQLite; its database, its policy, its faults, its records
`disk`         what a controller's disk keeps, and how it fails; `disk_calls`: its stand-ins of `os` and `sqlite3`
`site`         a cluster: hosts, slurm.conf, units; `plan`: what users and misfortune do to it; `run`: one run
`triggers`     strigger, and which of their programs ran
`users`        users, whose `command`s run production code over blocking sockets (`blocking`): `requests` (sbatch,
               scancel, scontrol), `launches` (srun, salloc), `operators`, `readings`; a day of them:
               `workload`, `habits`; an hour without faults: `after_hours`
               `mishaps`: requests with faults that strike just then; `close_calls`: narrower ones
`final`        what users are shown in the end; `judge`: the checks of a run
`faults`       kinds of faults, how they are drawn and injected; `coverage`: what a run has touched
`campaign`     many runs in forked children; `shrink`: a failing plan made smaller; `story`: a run to be read
`main`         `python -m spritz_testing.daemons`
`releases`     two releases of Spritz, which store records in two formats
`database`     PostgreSQL and its driver in memory, with faults
`small_limits` limits of production code that some runs make small
`history`      what clients asked and were told, and what nodes ran: the only input of the checks
`followers`    programs that follow the cluster over a connection that they keep
`wanted`       what the workload asks for, as far as the checks depend on it
`checks`       rules that every history must keep
`injectors`  what injects each kind of fault; `restoring`: rotten bits, and who restores the state
`inquiries`  listings, reports, and settings of the log
`checks_inside`  what a controller's own objects must show; `rates`: nothing is tried again without a pause
`executors`  pools of simulated threads; `identity`: hashes that come again with the seed
"""
