"""Real daemons on machines of their own, under faults, for as long as one likes: `make endurance SECONDS=3600`.

Users submit, cancel, hold and read with the real commands. Jobs write down themselves where and when they ran. At the
end the same checks as in the simulation judge that history (`spritz_testing.daemons.checks`).

`site`     the machines, the daemons, and who starts them again
`faults`   kill -9, SIGSTOP, power, full disks, cut cables
`users`    commands, and what they answered
`ran`      what jobs wrote down
"""
