"""The node daemon (`slurmd`): starts steps on its nodes by order of the controller, and reports their ends.

Map
---
`machine`    decisions, as a pure function of orders and events; one Machine per node
`actions`    instructions of a Machine to its shell
`agent`      the shell around it: the controller's connection, the spool, supervisors, programs, reports
`supervisors/` the zygote that they are forked from, idle and new ones, connections to them, what dead ones left
`forwarding` orders forwarded between nodes; `credentials`: verification of the controller's signatures
`launch/`    pure: a launch message -> `stepd.spec.SupervisorSpec` (environment, files, CPUs, GPUs, credentials)
`dynamic_node`  finds the node of a daemon that slurm.conf does not name
`reporter`   reports, kept until acknowledged
`cgroup`     directories for the cgroups of steps
`hardware/`  the machine's hardware (`slurmd -C`), its GPUs, the system's own cores, features that programs set
`health`     load, free memory, HealthCheckProgram; `health_check`: one such program, of the faults of `machine_checks`
`metrics/`   what GPUs and jobs use, for metrics
`spool`      a step's directory on disk; `stored_job`: a job in a step's record
`main`       command line, daemon life
`daemon`     the process: adopts steps, connects, serves, stops; `options`: its command line; `settings`
`cancelled`  the line on a job's standard error when it is terminated
`container`  private /tmp and /dev/shm; `hosts`: /etc/hosts for tasks on virtual nodes
`enforcement`  how limits hold here, as text

One process may stand for hundreds of nodes: one connection to the controller, one zygote (`stepd.zygote`) for all.
Steps are owned by their supervisors, never by this daemon: killed at any moment and started again it finds them all.
Invariants: the same (job, restart, step) is never started twice; an order of a lower term is refused; the result of a
step stays in the spool until the controller has acknowledged it.
"""
