"""sprio: the columns of a job's priority, and their listing."""
