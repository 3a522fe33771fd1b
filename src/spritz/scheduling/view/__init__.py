"""What a cycle reads: the projection that follows the events, and the snapshot of it."""
