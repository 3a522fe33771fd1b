"""Readers of traces: Standard Workload Format, sacct output, Spritz's own journal.

`workload` holds the columns, and counts of skipped rows; one module per form reads it. A bad row is skipped and
counted by reason. A file without a usable row is a `TraceError`.
"""
