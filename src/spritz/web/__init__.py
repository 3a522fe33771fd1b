"""The dashboard: a picture of the cluster in a browser, and acting on it with one's own rights.

It talks to slurmrestd alone (Slurm's resources, `/spritz/v1/…`, the event stream) and reads runs through `spritz`'s
commands, so that it shows what its viewer may see and does what the viewer may do. HTML is made here; in the browser
htmx asks for a page again when something on it has changed, and puts in what is different.

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
