"""Supervisors of steps as slurmd sees them: started, connected to, used again, and what dead ones leave.

`zygote`      the connection to the parent that supervisors are forked from
`pool`        supervisors: idle and new ones, how many start at once
`connection`  `SupervisorLink`: orders to one, reports of it, its end
`leftovers`   ends processes that dead supervisors left
"""
