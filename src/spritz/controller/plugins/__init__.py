"""JobSubmitPlugins: where plugins run, for how long, and what becomes of their answer (docs/decisions/0092).

`submit`    the plugins in order, for submissions and updates, before the core decides
`host`      the process that runs the scripts of the site, from the controller's side: asked, bounded, replaced
`child`     that process; `messages` what the two say to each other
`told`      a call whose answer carries the plugins' lines for the user
"""
