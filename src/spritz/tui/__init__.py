"""`spritz top`: the cluster in a terminal, live.

    command     options; --once and --json, which need no Textual
    app         the application: views, panes, keys, actions
    details     what the page shows of the row under the cursor
    lines       the lines around table and page, and the line that the user types
    views       contents of the tables: queue, nodes, GPUs, history
    table       a table of any number of rows, which renders only the visible ones
    pages       a page of text that can follow its end
    actions     the command of each key, and the question before it

`spritz.live` has the picture of the cluster. Only `app`, `lines`, `table` and `pages` import Textual.
"""
