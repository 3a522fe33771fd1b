"""Commands that take verbs: those that show, change and report a cluster and its accounts.

`control/`   scontrol: one file per verb or noun
`manager/`   sacctmgr: edits of the accounting policy, what `show` prints, dump and load
`report/`    sreport: reports of usage and of jobs by size
"""
