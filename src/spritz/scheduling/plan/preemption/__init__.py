"""Frees resources for a blocked job: which jobs to preempt, as few and as cheap as possible.

`preemptor`        the entry: one blocked job after the other
`rules`            which classes of jobs may preempt which, how, and what each victim costs
`bound`            the most that a preemptor could have
`failed`           requests for which no victims were found
`victims`          the search for victims; `victim_nodes`: on which nodes to look
`in_reservation`   for the jobs of a reservation that lets others run until its own come
"""
