"""The dashboard: the cluster in a browser, and actions with the viewer's own privileges.

It uses only slurmrestd (Slurm's resources, `/spritz/v1/…`, the event stream) and reads runs through `spritz`'s
commands, so each viewer sees and does only what Slurm permits. HTML is rendered here; in the browser, htmx requests a
page again when something on it has changed, and inserts the differences.

`main`      the process: options, socket, end
`app`       routes, sessions and security headers around every answer
`sessions`  one-time links, sessions, tokens against forged requests
`records`   jobs and nodes, with the fields that pages show
`picture`   the state of the cluster, kept up to date by events
`drawing`   figures: which job has which GPU, and the time line
`pages`     pages about the cluster
`run_pages` runs, sweeps and their metrics, from the run store
`templates`, `words`   the HTML of pages; reasons, states and times as text
`entry`, `login`   log-in and log-out, and the stream that tells pages what changed; PAM, OIDC, a proxy
`actions`   actions of forms
`users`, `reading`, `commands`   files, and Slurm's and `spritz`'s commands, with the viewer's own privileges
`logs`      the end of a job's output, and additions to it; `downloads`: files of runs
`details`   a job in Slurm's JSON form, by slurmctld or accounting; `attempts`: limits of requests and log-ins
`samples`, `recorder`, `curves`   usage over time: the file, the periodic sampling, and data for plots

A new value on a page: docs/checklists/rest-field.md; a new event: docs/checklists/event.md.

Source: docs/decisions/0188; https://htmx.org/docs.
"""
