"""The pure core: the cluster as a state machine. No clock, no randomness, no I/O, no numpy.

`machine`        the only entry: `Machine.handle(command, now, caller) -> Outcome(reply, events, changes, effects)`, and
                 `trial`, which does the same and takes it back
`decision`       the context of one decision: what it reads, where its events and effects go
`state`          dicts of frozen records and their indexes; `image`: the same as bytes; `undo`: how a decision is taken
                 back; `memory`: what decisions may change; `changes`: records before and after a command, for listeners
`decide/`        command -> events and effects, or a refusal; one file per idea
`apply/`         event -> state; never refuses, never reads a clock
`effects`        work for the outside world, by ids only; `pending` derives effects again after a restart
`failures`       nodes on which scripts fail at once
`job/`           what a job's records say: deadlines, charges, eligibility, heterogeneous jobs, siblings
`step/`          where a step's tasks go in its job's allocation
`priority`, `rights`, `licenses`, `flags`    small rules that several decisions share
`node_groups`    nodes of one kind, for requests that none could serve
`policy`         accounting's policy in the state; `shares` how guarantees stand
`reservations`, `power`    when they fall due
`invariants`     what must always hold of the state

To test: `spritz_testing.builders.World`; conversations in `tests/transcripts/core` (`pytest --bless`). To add a
command: a function in `decide/`, its line in `DECISIONS`. To add an event: `model/events/` and `apply/`; a test holds
both tables complete.
"""
