"""Logs in folders: segments, their indexes, and reading and cutting partitions."""
