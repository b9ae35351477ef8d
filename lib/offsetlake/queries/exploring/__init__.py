"""Queries of the console: the log over time, a partition over time, its commits, one step of it, names to search."""
