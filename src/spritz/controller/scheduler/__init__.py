"""Runs scheduling passes, applies their plans, and tells users what follows from them.

`driver`      quick passes in the loop and full ones in a forked child
`pacing`      when the next pass runs: a pure policy with a table of transitions; `pass_wanted`: after which changes
`slices`      a plan in slices of bounded work, so that requests are answered while a large one is applied
`shares`, `usage_from_accounting`   fair share, every PriorityCalcPeriod; usage by accounting's records
`forecasts`, `estimates`   current priorities and expected starts of pending jobs, those of held jobs when asked
`log`         SlurmSchedLogFile
"""
