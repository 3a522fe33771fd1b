"""`slurmctld`: the one process that owns the cluster's state.

Owns durability, order and the connection to the world; decides nothing about jobs (that is `core`) nor about who runs
when (that is `scheduling`). Nothing observable leaves before it is durable.

Map
---
`main`, `options`   the command: options, users, pid file, log, detaching
`daemon`            assembly, signals, and the order of stopping
`context`           the parts of a running controller
`configuration`     slurm.conf as the shell needs it; read whole or refused whole
`loop`              `SingleWriter`: commands one by one, replies and effects after the commit that holds their events
`commit`            the thread that waits for the disk
`events`, `blobs`   events as bytes; scripts and environments by content
`journal`           the contract of the store; `journal_sqlite` for one controller, `journal_postgresql` for several
                    (`standby` until it leads, `lease` while it does), `journal_memory` for tests;
                    `journal_reader` reads it while the daemon serves, in a thread
`images`, `forked`  the state as a whole, now and then, written by a forked child
`recovery`, `state_directory`   from disk to state; `-c`, `-i`, whose directory it is
`nodes`, `launch`   links to node daemons, effects as messages, heartbeats, silence
`fanout`            orders for many nodes: whom to tell, and what they pass on (TreeWidth)
`scheduler`         runs scheduling passes and applies their plans
`pacing`            when the next pass runs: a pure policy with its table of transitions
`plan_slices`       a plan in slices of bounded work, so that requests are answered while a large one is applied
`outbox`            the journal's groups to slurmdbd, kept until they are stored; `ended`: JobCompType
`mail`, `mail_text` `--mail-type`: when MailProg runs, and what it is told
`shares`, `recorded`   fair share, every PriorityCalcPeriod; usage by accounting's records
`forecasts`, `diagnostics`   current priorities and expected starts of pending jobs; figures for sdiag
`site_programs`, `power_programs`, `reservation_programs`   what runs here as SlurmUser
`plugins/`          JobSubmitPlugins: the site's say in submissions and updates
`timers`            `Tick` when something falls due, and calls at other moments of the clock
`clockset`          tells when the clock was set
`api/`              every request: authenticate, stamp, decide or read, answer

Journey of a command: `api` (who asks) -> `SingleWriter.handle` -> `Machine.handle` -> events join the gathered group ->
at the end of the loop's turn the scheduler may add a plan -> the group goes to the journal's thread -> when it is on
disk: replies, then effects.

Invariants: nothing in the loop's thread waits for a file or for users and groups; the machine is changed only inside
`SingleWriter.handle`, in the loop's thread; sequence numbers of events are contiguous; an image becomes visible only
when every event in it is durable; one controller a state directory (lock), and a later term fences an earlier one.

Test it with `pytest tests/unit/controller tests/conformance/test_journal.py tests/e2e/test_controller.py
tests/e2e/test_durability.py`; `python -m benchmarks.controller` measures it.
"""
