"""What a job's records say: which deadline is next, what counts towards limits, what belongs together. No state.

`timers`        each job's next deadline, as data
`charges`       what a job counts towards limits, and towards their usage
`eligibility`   whether a waiting job may be considered for a start, and if not, the reason
`het`           heterogeneous jobs
`siblings`      siblings of federated jobs
`exit_status`   arithmetic on wait statuses
"""
