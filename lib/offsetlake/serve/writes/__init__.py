"""Writes to the log: commits, deletions and the job socket, in rounds that are durable before they are acknowledged."""
