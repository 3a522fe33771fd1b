"""Reading what was submitted: Standard Workload Format, gang and pod lists, sacct output, our own journal.

`workload` holds the columns and what was skipped; each other module reads one form. A bad row is skipped and counted
by reason; a file that holds nothing usable is a `TraceError`.
"""
