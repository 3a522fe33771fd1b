"""The pure heart: the cluster as a state machine. No clock, no chance, no I/O, no numpy.

`machine`        the one door: `Machine.handle(command, now, caller) -> Outcome(reply, events, effects)`, and `check`,
                 which answers the same and changes nothing
`copied`         a copy of a state, on which `Machine.check` decides
`decision`       the context of one decision: what it reads, where its events and effects go
`state`          dicts of frozen records and their indexes (`index`); `image`: the same as bytes
`decide/`        command -> events and effects, or a refusal; one file an idea
`apply/`         event -> state; never refuses, never looks at a clock
`effects`        what the world should do, ids only; `pending` derives them again
`timers`         each job's next deadline, as data
`eligibility`, `priority`, `licenses`, `exit_status`, `flags`    small rules that several decisions share
`holdings`       what is in use on a node; `charges` what a job counts for limits; `shares` how guarantees stand
`het`            heterogeneous jobs; `reservations`, `power` when they call for something
`layout`, `step_layout`, `step_room`, `binding`    where a step's tasks go inside its job's allocation
`invariants`     what must always hold of the state

To test: `spritz.testing.builders.World`; conversations in `tests/transcripts/core` (`pytest --bless`).
To add a command: a function in `decide/`, its line in `DECISIONS`. To add an event: `model/events/`, `apply/`, and the
scheduler's `follow` if it matters there; a test holds all three tables complete.
"""
