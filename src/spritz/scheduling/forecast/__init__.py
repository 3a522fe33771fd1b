"""When waiting jobs are expected to start, where no start is planned."""
