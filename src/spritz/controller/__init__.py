"""`slurmctld`: the process that owns the cluster's state.

Owns durability, order and all connections. It decides neither about jobs (`core` does) nor about their start times
(`scheduling` does). No reply or effect leaves before its events are durable.

Map
---
`main`, `options`   the command: options, users, pid file, log, detaching
`daemon`            assembly, signals, and the order of stopping
`context`           the parts of a running controller
`needs`             what several parts use of others, as Protocols; the core, for reading
`configuration`     the configuration in force; read as a whole or refused as a whole
`callers/`          who asks, and how often
`writer/`           commands one by one; replies and effects leave after the commit of their events
`journal/`          what is durable, and how it is read again
`lead/`             several controllers: standby, lease, agreement
`nodes/`            links to node daemons, messages to them, machines that joined
`scheduler/`        scheduling passes, their plans, shares and forecasts
`programs/`         the site's programs: prologs, power, triggers, mail
`plugins/`          JobSubmitPlugins: site code that checks and changes submissions and updates
`metrics/`          pages for Prometheus, and health checks, on the same port
`api/`              every request: authenticate, add the time, decide or read, answer
`federation`        federated jobs: what this controller owes other clusters, and what they ask of it
`outbox`            sends the journal's groups to slurmdbd, and keeps them until stored; `jobcomp`: JobCompType
`forked`            long computations on the present state, in a forked child
`diagnostics`, `debug_flags`   figures for sdiag; DebugFlags
`reconfigure_overrides`   changes by scontrol that a reconfiguration keeps
`clock_changes`     notices that the clock was set
`groups`            numbers of AllowGroups and DenyGroups

Journey of a command: `api` (identifies the caller) -> `SingleWriter.handle` -> `Machine.handle` -> events join the
current group -> at the end of the loop's turn the scheduler may add a plan -> the group goes to the journal's thread ->
once it is on disk: replies, then effects.

Invariants: the loop's thread never waits for a file or a user lookup; the machine changes only inside
`SingleWriter.handle`, in the loop's thread; sequence numbers of events are contiguous; an image becomes visible only
when every event in it is durable; one controller a state directory (lock), and a later term fences an earlier one.

Test it with `pytest tests/unit/controller tests/conformance/test_journal.py tests/e2e/test_controller.py
tests/e2e/test_durability.py`; `python -m benchmarks.controller` measures it.
"""
