"""The dashboard: the cluster in a browser, and actions with the viewer's own privileges.

It uses only slurmrestd (Slurm's resources, `/spritz/v1/…`, the event stream) and reads runs through `spritz`'s
commands, so each viewer sees and does only what Slurm permits. HTML is rendered here; in the browser, htmx requests a
page again when something on it has changed, and inserts the differences.

`main`      the process: options, socket, end
`app`       routes, sessions and security headers around every answer
`sessions`  one-time links, sessions, tokens against forged requests
`rest`      slurmrestd: requests, and its event stream
`records`   jobs and nodes, with the fields that pages show
`picture`   the state of the cluster, kept up to date by events
`drawing`   figures: which job has which GPU, and the time line
`pages`     pages about the cluster
`actions`   actions of forms
`logs`      the end of a job's output, and additions to it
`run_pages` runs, sweeps and their metrics, from the run store

Source: docs/decisions/0188; https://htmx.org/docs.
"""
