"""What each event changes in the projection."""
