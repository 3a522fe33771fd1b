"""One cycle: from a snapshot to a plan.

`cycle` is the entry: it takes the jobs in order, and `decisions` decides about each. `start_now` finds resources that
are free and not planned for another job; `backfill` plans starts for jobs that must wait, within `backfill_limits`, on
`planned_starts`; `preemption` frees resources. `gangs`, `gang_cycle` and `gang_preemption` do the same for all
components of a heterogeneous job together. `limits`, `licenses`, `license_profile`, `power_up` and `complete_wait` hold
jobs back; `verdicts` and `notes` give the reasons. `predicted_order` and `overtaking` set the order; `overdue` finds
planned starts that were missed; `feasible` is asked before a job is accepted.
"""
