"""What a run leaves, read while it runs and after its end.

`logs`        of the batch script and of each rank
`metrics`     last values and histories of a run's metrics
`event_files` a program in the job: metrics from the files of TensorBoard and W&B
`usage`       samples, metrics and log on a common time axis
`checkpoints` a run's checkpoints, and their removal by policy
`codes`       the code of a group's runs, where it differs
`written`     the files that it wrote
`failures`    why it failed
`places`      on which node and GPU a rank was
`markdown`    a run as a section of Markdown
`comparison`  what differs between runs
`columns`     of listings, as the user chooses them
`curve_page`  metrics of several runs on an HTML page
"""
