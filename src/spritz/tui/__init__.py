"""`spritz top`: the cluster in a terminal, live.

    command     options; --once and --json, which need no Textual
    app         the application: views, panes, keys, actions
    views       what the tables show: queue, nodes, GPUs, history
    table       a table of any number of rows, of which the visible ones are made
    pages       a page of text that can follow its end
    actions     which command each key runs, and what it asks before

`spritz.live` has the picture of the cluster. Textual is imported by `app`, `table` and `pages` alone.
"""
