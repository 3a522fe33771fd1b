"""The step supervisor (`slurmstepd`): one process per job, step and node, which owns that step's tasks there.

Imports almost nothing, and nothing above `model`: it is forked from a warm parent and outlives the daemon that asked
for it. One thread, no asyncio; what it reads and writes is a few small formats:

`zygote`       the warm parent; a supervisor does one step after another
`spec`         what it is told of a step; `record`: the step's file in the spool
`control`      orders of the node daemon and reports to it; `daemonlink`: the connection
`protocol`     frames between supervisors and clients (srun, sattach): read this first to write a client
`clients`, `client_group`   connections to clients; `streams`: output by lines, input by credit
`supervisor`   the life of a step; `taskgroup`, `spawn` (compiled, quick) and `start`, `files`, `namespaces`: its tasks
`processes`    finding and killing everything of a step; `usage`: usage and memory limits; `gpu`: NVML
`energy`       what the node's processors (RAPL) or the step's GPUs (NVML) used
`confine`      devices and cores of a step, held by cgroups; `devicefilter`: its eBPF program
`pmi`          the PMI server of the tasks here; `pmi_wire`: bytes and fields of it
`mpi`, `pmix`  which server a step has; PMIx, by libpmix in a process beside us
`reactor`      poll, timers, children

Invariants: a process of a step that is not known by a task is known as our child (subreaper), by its session, by a mark
in its environment, or by its cgroup; none outlives the step. The end is on disk before it is told. Nothing of the
user's is touched as anybody but the user. Test it with `pytest tests/unit/stepd`; `python -m benchmarks.stepd`.
"""
