"""`slurmctld`: the process that owns the cluster's state.

Owns durability, order and all connections. It decides neither about jobs (`core` does) nor about their start times
(`scheduling` does). No reply or effect leaves before its events are durable.

Map
---
`main`, `options`   the command: options, users, pid file, log, detaching
`daemon`            assembly, signals, and the order of stopping
`context`           the parts of a running controller
`configuration`     the configuration in force; read as a whole or refused as a whole
`loop`              `SingleWriter`: commands one by one; replies and effects leave after the commit of their events
`commit`            the thread that writes and syncs the journal
`events`, `blobs`   events as bytes; scripts and environments by content
`journal`           the contract of the store; `journal_sqlite` for one controller, `journal_postgresql` for several
                    (`standby` until it leads, `lease` while it does), `journal_memory` for tests;
                    `journal_reader` reads it while the daemon serves, in a thread
`images`, `forked`  periodic images of the whole state, written by a forked child
`recovery`, `state_directory`   from disk to state; `-c`, `-i`, and the check of the cluster's name
`nodes`, `node_messages`   links to node daemons, heartbeats, silence; effects as messages
`machines`, `peers`, `standby_users`   other machines that joined; requests to and through other controllers
`federation`        federated jobs: what this controller owes other clusters, and what they ask of it
`fanout`            messages for many nodes, through a tree of daemons (TreeWidth)
`scheduler`         runs scheduling passes and applies their plans
`pacing`            when the next pass runs: a pure policy with a table of transitions
`plan_slices`       a plan in slices of bounded work, so that requests are answered while a large one is applied
`outbox`            sends the journal's groups to slurmdbd, and keeps them until stored; `jobcomp`: JobCompType
`mail`, `mail_text`, `mail_limits`   `--mail-type`: when MailProg runs, and its arguments
`shares`, `usage_from_accounting`   fair share, every PriorityCalcPeriod; usage by accounting's records
`forecasts`, `estimates`   current priorities and expected starts of pending jobs, those of held jobs when asked
`diagnostics`, `scheduling_log`, `debug_flags`   figures for sdiag; SlurmSchedLogFile; DebugFlags
`site_programs`, `power_programs`, `reservation_programs`   site programs that run here as SlurmUser; `job_facts` are
                    their variables
`rate_limits`, `reconfigure_overrides`   limits on users' requests; changes by scontrol that a reconfiguration keeps
`plugins/`          JobSubmitPlugins: site code that checks and changes submissions and updates
`metrics/`          pages for Prometheus, and health checks, on the same port
`triggers`, `listeners`   programs of strigger; parts of the controller that follow events
`timers`            `Tick` at the core's next deadline; other calls at a time of day
`clock_changes`     notices that the clock was set
`api/`              every request: authenticate, add the time, decide or read, answer
`agreement`  what the controllers of a cluster must have in common
`groups`     numbers of AllowGroups and DenyGroups
`journal_copy`  a standby's copy of the leader's state; `journal_log`, `journal_mark`: whether SQLite's end is missing

Journey of a command: `api` (identifies the caller) -> `SingleWriter.handle` -> `Machine.handle` -> events join the
current group -> at the end of the loop's turn the scheduler may add a plan -> the group goes to the journal's thread ->
once it is on disk: replies, then effects.

Invariants: the loop's thread never waits for a file or a user lookup; the machine changes only inside
`SingleWriter.handle`, in the loop's thread; sequence numbers of events are contiguous; an image becomes visible only
when every event in it is durable; one controller a state directory (lock), and a later term fences an earlier one.

Test it with `pytest tests/unit/controller tests/conformance/test_journal.py tests/e2e/test_controller.py
tests/e2e/test_durability.py`; `python -m benchmarks.controller` measures it.
"""
