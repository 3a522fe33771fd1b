"""Pipelines: steps that use one another's results, as jobs with dependencies (docs/decisions/0172).

No process of Spritz stays alive. `advance` submits the steps whose jobs and dependencies are known: at first in the
user's process, later in the job of a step that determines the number of its successors' tasks.

`definition`  steps and pipelines in Python or YAML, traced into a plain record
`state`       a pipeline on disk: definition, values, batches of jobs and their claims
`cache`       values of earlier steps, by the content from which they were computed
`advance`     submits steps; `retry` and `stop`
`renewing`    new code for steps that have no result yet
`stepping`    the program of a step's job
`graph`       the state of a pipeline, for the terminal and as JSON
"""
