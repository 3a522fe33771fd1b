"""The dashboard: the cluster in a browser, and actions with the viewer's own rights.

It uses only slurmrestd (Slurm's resources, `/spritz/v1/…`, the event stream) and reads runs through `spritz`'s
commands, so it shows what its viewer may see and does what the viewer may do. HTML is rendered here; in the browser,
htmx requests a page again when something on it has changed, and inserts the differences.

`main`      the process: options, socket, end
`app`       routes, sessions and security headers around every answer
`sessions`  one-time links, sessions, tokens against forged requests
`rest`      slurmrestd: requests, and its event stream
`records`   jobs and nodes as far as pages show them
`picture`   what is known of the cluster, kept up to date by events
`drawing`   figures: which GPU has which job, and the time line
`pages`     what each address shows
`actions`   what forms do
`logs`      the end of a job's output, and what is added to it
`runs`      runs, sweeps and their metrics, of the run store

Source: docs/decisions/0188; https://htmx.org/docs.
"""
