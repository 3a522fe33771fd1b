"""The step supervisor (`slurmstepd`): one process per job, step and node, which owns that step's tasks there.

Imports almost nothing, and nothing above `model`: it is forked from a warm parent and outlives the daemon that
requested it. One thread, no asyncio, and a few small formats:

`zygote`       the warm parent; a supervisor does one step after another; `rehearsal`: steps that adapt its code
`spec`         the specification of a step; `record`: the step's file in the spool
`control`      orders of the node daemon and reports to it; `daemonlink`: the connection
`protocol`     frames between supervisors and clients (srun, sattach): read this first to write a client
`clients/`     connections to clients: the group of a step's clients, the tree of a wide step's supervisors
`supervisor`   the life of a step; `taskgroup`: its tasks here
`tasks/`       one task: start, batch script, namespaces, epilogs; `_spawn.c`: the quick spawn in C
`streams/`     standard streams of tasks: output by lines, input by credit, files of users
`resources/`   what a step uses and may use: usage and memory limits, energy, GPUs, devices and cores
`processes`    finding and killing everything of a step; `tree`: the same by a version 2 cgroup
`pmi`          the PMI server of the tasks here; `pmi_wire`: its encoding
`mpi`, `pmix/` the server of a step; PMIx by libpmix, in a process of its own
`container`, `oci`, `images`   a task in a container: by bwrap, by an OCI runtime; images as directories
`adopt`        sessions of ssh become part of a job
`reactor`      poll, timers, children; `notes`: lines for slurmd's log

Invariants: a process of a step that is not known by a task is known as our child (subreaper), by its session, by a mark
in its environment, or by its cgroup; none outlives the step. The result is on disk before it is reported, if the disk
takes it; no write decides how a step ends, and none is waited for. The user's files are only touched as the user.
Test it with `pytest tests/unit/stepd`; `python -m benchmarks.stepd`.
"""
