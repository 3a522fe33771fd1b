"""One cycle: from a snapshot to a plan.

`cycle` is the entry: it takes the jobs in order, and `decisions` decides about each. `start_now` finds resources that
are free and not planned for another job; `backfill` plans starts for jobs that must wait, within `backfill_limits`, on
`planned_starts`; `preemption` frees resources: by `preemption_rules`, if `preemption_bound` leaves hope and
`failed_preemptions` knows no failure, `victims` are looked for, first on `victim_nodes`; `reservation_preemption` is
for the jobs of a reservation. `gangs`, `gang_cycle` and `gang_preemption` do the same for all components of a
heterogeneous job together. `limits`, `licenses`, `license_profile`, `power_up` and `complete_wait` hold jobs back;
`verdicts` and `notes` give the reasons. `predicted_order` and `overtaking` set the order; `overdue` finds planned
starts that were missed; `feasible` is asked before a job is accepted.
"""
