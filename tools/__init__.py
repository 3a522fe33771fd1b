"""Programs for the developers of Spritz; not part of what is installed."""
