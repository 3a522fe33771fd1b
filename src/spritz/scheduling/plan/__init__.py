"""One cycle: from a snapshot to a plan."""
