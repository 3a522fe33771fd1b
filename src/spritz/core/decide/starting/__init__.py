"""What the scheduler proposes is checked and carried out: starts, and the preemptions that make room for them.

`plan`          ApplyPlan: every item against the present state
`start`         the start of one job; `het_start`: of all components of a heterogeneous job
`preempt`       preemption of victims; `reclaim`: whether a guarantee permits it
`freed_state`   the use of a node as if some jobs were gone or suspended
"""
