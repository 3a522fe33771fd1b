"""What must hold of every history: pure functions of what clients and nodes wrote, and of what is read at the end."""
