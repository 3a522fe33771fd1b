"""The node daemon (`slurmd`): starts steps on its nodes as the controller says, and tells it how they end.

Map
---
`machine`    what to do, as a pure function of what was told and what has happened; one Machine per node
`actions`    what a Machine asks its shell to do
`agent`      the shell around it: the controller's connection, the spool, supervisors, programs, reports
`forwarding` orders that nodes pass on to each other; `credentials`: what the controller has signed
`launch/`    pure: a launch message -> `stepd.spec.SupervisorSpec` (environment, files, CPUs, GPUs, credentials)
`introduce`  which node a daemon is that slurm.conf does not name
`reporter`   reports, kept until acknowledged; `leftovers`: ending what dead supervisors left
`cgroup`     where supervisors make the cgroups of steps
`hardware`   what this machine has (`slurmd -C`)
`health`     load, free memory, HealthCheckProgram
`spool`      a step's directory on disk
`main`       command line, daemon life

One process may stand for hundreds of nodes: one connection to the controller, one zygote (`stepd.zygote`) for all.
Steps are owned by their supervisors, never by this daemon: killed at any moment and started again it finds them all.
Invariants: the same (job, restart, step) is never started twice; an order of a lower term is refused; the result of a
step stays in the spool until the controller has acknowledged it.
"""
