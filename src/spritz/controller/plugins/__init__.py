"""JobSubmitPlugins: runs plugins, bounds their time, and applies their answers (docs/decisions/0092).

`submit`    the plugins in order, for submissions and updates, before the core decides
`host`      the controller's side of the process that runs site scripts: requests, time limits, restarts
`child`     that process; `messages`: the protocol between the two
`answer_lines`   adds the plugins' lines for the user to an answer
"""
