"""Queries of the console: the log over time, the offsets of a partition over time, one step of them, and names."""
