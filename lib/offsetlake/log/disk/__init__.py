"""Logs in folders: segments, their indexes, reading partitions, and deleting old segments."""
