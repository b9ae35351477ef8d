"""The report of a lake as one HTML page with charts; the console shows its content, computed in a child process."""
