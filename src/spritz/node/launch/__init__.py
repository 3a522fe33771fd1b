"""From a launch message to what a supervisor must know. Pure: paths, numbers and the machine's shape are arguments."""
